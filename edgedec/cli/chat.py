"""``edgedec chat``: a conversation in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgedec._support.fields import printable
from edgedec._support.model_path import DEMO
from edgedec.cli import (
    _config,
    _conversation,
    _help,
    _model,
    _options,
    _partner,
    _sampling,
    _slash,
    _terminal,
)  # fmt: skip
from edgedec.cli._conversation import Conversation
from edgedec.cli._output import size
from edgedec.cli._talk import Talk
from edgedec.cli._terminal import note
from edgedec.decoding.drafting import PLAIN
from edgedec.errors import InputError

if TYPE_CHECKING:
    from edgedec.cli._prompt import Messages
    from edgedec.decoding.sampling import SamplingParams
    from edgedec.loading.build import OpenOptions
    from edgedec.loading.sources import Source
    from edgedec.pipeline import GenerateOptions, Pipeline

SESSION = click.option(
    "--session",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Keep the conversation in this file: continue it, and save it after each answer.",
)


@click.command(cls=_help.LoadCommand)
@_model.model
@_sampling.SYSTEM
@SESSION
@_options.options(
    [*_sampling.ANSWER, _sampling.HIDE],
    _options.FINDS,
    _options.LOAD_AND_WRITE,
)
def command(bundle: str, **chosen: Any) -> None:
    """Chat with a model in the terminal.

    MODEL is what `edgedec run` takes: a folder, a file or a name. /help lists the commands:
    system message, saving and loading, clearing and dropping turns, any option of a text, and green
    for accepted draft tokens. Ctrl-C stops an answer; pressed twice it ends the chat. Write // for
    a message that begins with /.

    Answers are drawn as the model's files ask for, else at temperature 0.7 with top-k 40 and top-p
    0.9, unless an option says otherwise; --temperature 0 is greedy. The thinking of a model that
    thinks goes to standard error, dimmed in a terminal, and stays in the history as far as its chat
    template takes it up.

    In a terminal Enter sends and Alt-Enter starts a new line; a paste of several lines is one
    message; the arrow keys recall earlier messages, which are kept in a file in the user's state
    folder (or $EDGEDEC_HISTORY). A model without a chat template continues each line as text.
    Otherwise every line of standard input is a message, and a chat template is needed.

    Each turn computes only its new tokens. With --session FILE this also holds after a restart: the
    file contains the conversation and both models' keys and values.

    \b
    edgedec chat
    edgedec chat large.gguf --draft small.gguf
    edgedec chat ./qwen --system "Answer in one sentence." --temperature 0.7
    edgedec chat ./qwen --system @instructions.txt
    edgedec chat ./qwen --session monday.chat
    """  # fmt: skip
    if bundle == DEMO:  # which follows no instructions
        chosen["system"] = _config.typed("system", chosen["system"])
    _sampling.generate_options(chosen)  # wrong ones are reported before a model is loaded
    _sampling.note_system(bundle, chosen["system"])
    path = _partner.path(bundle, chosen)
    converse(bundle, path, _options.open_options(chosen, path), chosen)


def converse(
    title: str,
    path: str | Path,
    opening: OpenOptions,
    chosen: dict[str, Any],
    completes: bool = False,
) -> None:
    """Open a model, which the user called ``title``, and chat until the user leaves.

    With ``completes``, or without a chat template, each line is continued as text. ``chosen`` has
    the values of the command's options.

    Raises:
        InputError: there is neither a template nor a terminal, or the session cannot be used.

    """
    from edgedec.cli import _prompt

    system, session = chosen["system"], chosen["session"]
    typed = _config.typed("system", system)
    with _options.opened(path, opening) as pipeline:
        if pipeline.tokenizer.chat_template is None:
            completes = True
            if not sys.stdin.isatty() or session is not None or typed is not None:
                raise InputError(f"{title}: no chat template: use `edgedec generate` instead")
            note(f"{title} has no chat template")
        own = None if completes else pipeline.sampling
        options = _sampling.generate_options(chosen, own)
        if completes or path == DEMO:  # which was trained on code and ends no answer
            options = _sampling.as_text(options)
        conversation = Conversation(typed)
        with _conversation.opened(session, pipeline, conversation) as file:
            if system is not None and not len(conversation):
                conversation.instruct(system)
            about = _banner(title, pipeline)
            talk = Talk(pipeline, options, conversation, file, completes=completes, about=about)
            talk.hides_thinking = chosen["hide_thinking"]
            if sys.stdin.isatty():
                _show_banner(about, options, own)
            if completes:
                note("each line is continued as text")
            talk.greet()
            _take_all(talk, _prompt.messages(_slash.names()))


def _take_all(talk: Talk, messages: Messages) -> None:
    """Handle every message; Ctrl-C twice in a row ends the chat."""
    while True:
        try:
            line = messages.next()
        except KeyboardInterrupt:
            if talk.stopped:
                return
            talk.stopped = True
            note("Ctrl-C once more leaves, as Ctrl-D and /quit do")
            continue
        if line is None or line in _slash.ENDS:
            return
        if line:
            _slash.take(talk, line)


# -- the banner: target, draft, plan and context ------------------------------------------------


def _show_banner(
    about: Sequence[tuple[str, str]], options: GenerateOptions, own: SamplingParams | None
) -> None:
    """Print the banner on stderr, in as many lines as a terminal needs."""
    rows = [*about]
    if own is not None or not options.sampling.greedy:
        rows.append(("sampling", _sampling.described(options.sampling, own)))
    width = max(8, *(len(name) + 2 for name, _ in rows))
    for name, value in rows:
        _terminal.print_text(f"{name:{width}}{printable(value)}", err=True)
    click.secho("/help lists the commands, Ctrl-D leaves", err=True, dim=True)


def _banner(title: str, pipeline: Pipeline) -> list[tuple[str, str]]:
    """Return the banner's names and values."""
    pair, plan = pipeline.pair, pipeline.plan
    drafter = plan["drafter"]
    if drafter == PLAIN:
        draft = "none: plain decoding"
    elif pair.draft is None:
        draft = "the text itself"
    else:
        draft = _named(pair.draft)
    length = plan["draft_length"]
    rule = "" if plan["lossless"] else ", not lossless"
    how = [
        f"drafter {drafter}",
        "length by measured cost" if length == "auto" else f"length {length}",
        plan["schedule"],
        f"{plan['threads']} threads" if plan["threads"] else "threads by default",
        f"rule {plan['accept']}{rule}",
    ]
    how += [f"as planned: {plan['plan']}"] if plan.get("plan") else []
    context = f"{plan['max_context']} tokens"
    named = _named(pair.target)
    shown = named if named.startswith(f"{Path(title).name}, ") else f"{title}, {named}"
    return [
        ("model", shown),
        ("draft", draft),
        ("plan", ", ".join(how)),
        ("context", context),
    ]


def _named(source: Source) -> str:
    """Return a model's name, format and size."""
    stored = sum(file.stat().st_size for file in source.files.values())
    name = f"{source.path.name}, " if source.format == "gguf" else ""
    return f"{name}{source.format}, {size(stored)}"
