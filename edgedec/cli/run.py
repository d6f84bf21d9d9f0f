"""``edgedec run``: runs any kind of model with one command."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgedec._support.model_path import DEMO, exists, names_model
from edgedec.cli import (
    _config,
    _conversation,
    _help,
    _library,
    _model,
    _options,
    _output,
    _partner,
    _sampling,
)
from edgedec.cli._conversation import Conversation
from edgedec.cli._values import in_library
from edgedec.cli.chat import SESSION, converse
from edgedec.cli.generate import prompt_text, user, with_system

if TYPE_CHECKING:
    from edgedec.library.locate import Query
    from edgedec.pipeline import GenerateOptions, Generation, Pipeline


@click.command(cls=_help.LoadCommand)
@click.argument("words", nargs=-1, metavar="[MODEL] [PROMPT]", type=_library.MODEL)
@_model.option
@click.option(
    "--draft",
    default="auto",
    metavar="MODEL",
    help=_partner.DRAFT_HELP,
)
@_sampling.SYSTEM
@SESSION
@click.option("--raw", is_flag=True, help="Continue PROMPT as text, without a chat template.")
@_options.options(
    [*_partner.OPTIONS, *_library.FORM, _library.NAME, *_sampling.ANSWER, _sampling.HIDE],
    _sampling.FORM,
    _options.SETTINGS,
    _options.LOAD_AND_WRITE,
)
@_options.as_json
def command(words: Sequence[str], named: str | None, as_json: bool, **chosen: Any) -> None:
    """Run a model of any kind: answer PROMPT, or chat.

    MODEL, in this and every command, is a bundle's folder; a Hugging Face folder, which is first
    converted to a bundle in the library, once (in int4, and int8 where the model needs it to stay
    close to its checkpoint; --calibrated needs less of it and takes minutes); a GGUF file, or a
    folder with one, which runs in llama.cpp as it is, or with --format onnx is converted likewise;
    the name of a model in the library; a name on a hub, such as org/name, which is first downloaded
    as by `edgedec pull`; or demo.

    A model with a chat template answers PROMPT as a message; others, and all with --raw, continue
    it as text. demo, which was trained on code only, continues it. Without PROMPT this is a chat,
    as `edgedec chat`; if standard input is not a terminal, or with -, the prompt is read from it.
    Text that is piped in stands before PROMPT, with an empty line between them.
    The text's last line is ended if it is not; `edgedec generate` and --json give it as it is.
    With --session FILE, PROMPT is the next message of the conversation in that file, which a chat
    continues, too.

    Answers are drawn as the model's files ask for, else at temperature 0.7 with top-k 40 and top-p
    0.9, unless an option says otherwise; --temperature 0 is greedy. The thinking of a model that
    thinks goes to standard error, dimmed in a terminal.

    \b
    edgedec run demo "def __lt__(self, other):"
    edgedec run ./Qwen3-0.6B "Why is the sky blue?"
    edgedec run ./Qwen3-8B "Why is the sky blue?" --draft ./Qwen3-0.6B
    edgedec run Qwen/Qwen3-0.6B "Why is the sky blue?"
    edgedec run large.gguf "Once upon a time" --raw
    edgedec run large.gguf "Why is the sky blue?" --format onnx --weights int8
    edgedec run ./Qwen3-0.6B "Name a colour." --regex "red|green|blue"
    edgedec run ./Qwen3-0.6B
    edgedec run ./Qwen3-0.6B "And at dusk?" --session sky.chat
    cat script.py | edgedec run demo
    cat notes.txt | edgedec run ./Qwen3-0.6B "Summarise these notes."
    """  # fmt: skip
    model, prompt = _meant(words, named)
    if chosen["raw"] or model == DEMO:  # which follows no instructions
        chosen["system"] = _config.typed("system", chosen["system"])
    query, options = _library.query(chosen), _sampling.generate_options(chosen)
    text = None if prompt is None and _chats(as_json, chosen["raw"]) else prompt_text(prompt)
    _check(chosen, options, chats=text is None)
    target = _located(model, chosen, query)
    opening, session = _options.open_options(chosen, target), chosen["session"]
    completes = model == DEMO and chosen["system"] is None and session is None
    if text is None:
        converse(model, target, opening, chosen, completes)
        return
    with _options.opened(target, opening, text) as pipeline:
        answers = _answer if session is None else _continue
        answers(pipeline, chosen, text, plain=chosen["raw"] or completes, as_json=as_json)


def _located(model: str, chosen: dict[str, Any], query: Query) -> str | Path:
    """Return the path of the model; ``chosen["draft"]`` becomes what drafts for it."""
    _sampling.note_system(model, chosen["system"])
    target = _partner.located(model, chosen, query).path
    if isinstance(chosen["draft"], str):
        chosen["draft"] = _library.draft(chosen["draft"], query)
    return target


def _answer(
    pipeline: Pipeline, chosen: dict[str, Any], text: str, *, plain: bool, as_json: bool
) -> None:
    """Print what the model writes after a text."""
    system = chosen["system"]
    needs_template = _config.typed("system", system) is not None
    raw = plain or (pipeline.tokenizer.chat_template is None and not needs_template)
    options = _sampling.for_text(chosen, pipeline, answers=not raw)
    if raw:
        stream = pipeline.stream(text, options)
    else:
        stream = pipeline.chat(with_system(user(text), system), options)
    hides = chosen["hide_thinking"]
    _output.answer(pipeline, stream, options, as_json=as_json, hides_thinking=hides, wraps=not raw)


def _continue(
    pipeline: Pipeline, chosen: dict[str, Any], text: str, *, plain: bool, as_json: bool
) -> None:
    """Print the answer to the next message of the conversation in a file, and keep both there."""
    system = chosen["system"]
    conversation = Conversation(_config.typed("system", system))
    with _conversation.opened(chosen["session"], pipeline, conversation) as file:
        assert file is not None, "a path was given"
        if system is not None and not len(conversation):
            conversation.instruct(system)
        conversation.waiting = text
        options = _sampling.for_text(chosen, pipeline, answers=True)
        stream = pipeline.chat(conversation.messages, options)

        def keep(result: Generation) -> None:
            if result.events:
                conversation.answer(result.text, result.thinking)
                file.write()

        hides = chosen["hide_thinking"]
        _output.answer(
            pipeline, stream, options, as_json=as_json, hides_thinking=hides, wraps=True, keep=keep
        )


def _meant(words: Sequence[str], named: str | None) -> tuple[str, str | None]:
    """Return the model, which an option may name, and the prompt."""
    if named is not None:
        words = (named, *words)
    if len(words) > 2:
        raise _model.unquoted("run", words[:1], words[1:])
    model, prompt = (*words, None, None)[:2]
    default = _model.default()
    if model is not None and prompt is None and _is_question(model, default):
        return default, model
    return default if model is None else model, prompt


def _is_question(word: str, default: str) -> bool:
    """Return whether a single word is the prompt of the configured model: it names no model."""
    if default == DEMO or not any(character.isspace() for character in word):
        return False
    return not (names_model(word) or exists(word) or in_library(word))


def _check(chosen: dict[str, Any], options: GenerateOptions, *, chats: bool) -> None:
    for name in ("system", "session"):
        if chosen[name] is not None and chosen["raw"]:
            raise click.UsageError(f"--{name} goes with a chat template: leave it or --raw out")
    if chats and options.constraint is not None:
        raise click.UsageError(
            "--json-mode, --json-schema, --regex and --grammar go with a prompt: give one"
        )


def _chats(as_json: bool, raw: bool) -> bool:
    """Return whether a command without a prompt is a chat."""
    return sys.stdin.isatty() and not as_json and not raw
