"""``edgedec generate``: continues a prompt."""

from __future__ import annotations

import json
import os
import select
import stat
import sys
from pathlib import Path
from typing import Any

import click

from edgedec._support.parts import part
from edgedec.cli import _help, _library, _model, _options, _output, _sampling, _values
from edgedec.cli._terminal import note
from edgedec.errors import InputError

EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path, allow_dash=True)

# How long text from a program that is started at the same time is waited for.
_GRACE_S = 0.3


@click.command(cls=_help.LoadCommand)
@_model.model_and_prompt
@_options.options(
    [*_sampling.ANSWER, _sampling.HIDE],
    [*_sampling.FORM, _sampling.LOGPROBS],
    _options.OPEN,
    _options.LOAD_AND_WRITE,
)
@_sampling.SYSTEM
@click.option(
    "--messages",
    type=EXISTING,
    metavar="FILE",
    help="A conversation, as a JSON list of {role, content}, for the chat template.",
)
@click.option(
    "--prompts",
    type=_values.FILE,
    metavar="FILE.jsonl",
    help='Many prompts: lines such as {"id": "a", "prompt": "Hello"}.',
)
@click.option(
    "-o",
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File for the results of --prompts, one per line; ids already there are skipped, and"
    " refused where their prompt is another now.",
)
@click.option(
    "--ray",
    is_flag=False,
    flag_value="auto",
    metavar="[HOST:PORT]",
    help="Decode --prompts on a Ray cluster (extra ray): this machine's, or the one with this head."
    " A node runs one process on all of its cores, or as many of --threads N as it has room for.",
)
@_options.as_json
def command(
    bundle: str,
    prompt: str | None,
    system: str | None,
    messages: Path | None,
    prompts: Path | None,
    out: Path | None,
    ray: str | None,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Continue PROMPT or standard input.

    MODEL is what `edgedec run` takes: a folder, a file or a name. A single argument that names no
    model is the prompt, and the demo model continues it. Without PROMPT, or with -, standard input
    is read. The text is printed as it is decoded, and into a file or a pipe byte for byte, without
    the end of line that `edgedec run` adds; figures go to standard error. With --system the
    prompt is a message to a chat model; otherwise the model continues the prompt without a
    template. A text is continued greedily; messages are answered with the sampling that the
    model's files ask for, else at temperature 0.7 with top-k 40 and top-p 0.9. Options say
    otherwise. Text that is piped in stands before PROMPT, with an empty line between them.

    \b
    edgedec generate "def __lt__(self, other):"
    edgedec generate ./my-bundle "import os" --temperature 0.8 --seed 7 --json
    edgedec generate large.gguf "Once upon a time" --draft small.gguf
    cat script.py | edgedec generate demo -n 64 --stop '\\ndef '
    edgedec generate ./my-bundle "Why is the sky blue?" --system "Be brief."
    edgedec generate ./my-bundle "A person in JSON: " --json-schema person.json
    edgedec generate ./my-bundle --prompts in.jsonl --out out.jsonl
    edgedec generate ./my-bundle --prompts in.jsonl --out out.jsonl --ray
    """  # fmt: skip
    _check(prompts, out, system, as_json, chosen["logprobs"])
    if ray is not None and out is None:
        raise click.UsageError("--ray goes with --prompts and --out")
    # Errors in the request are reported before a model is loaded.
    if prompts is not None:
        _run_all(bundle, prompts, out, chosen, ray)
        return
    asked = _prompt(prompt, messages, system)
    _sampling.note_system(bundle, system)
    _sampling.generate_options(chosen)
    _run_one(bundle, asked, as_json, chosen)


def _check(
    prompts: Path | None, out: Path | None, system: str | None, as_json: bool, logprobs: int | None
) -> None:
    if prompts is None and out is not None:
        raise click.UsageError("--out goes with --prompts; for one prompt redirect the output")
    if prompts is None and logprobs is not None and not as_json:
        raise click.UsageError("--logprobs goes with --json or --prompts")
    if prompts is not None and system is not None:
        raise click.UsageError(
            "--system goes with PROMPT or --messages; lines of --prompts have messages of their own"
        )


def _prompt(
    prompt: str | None, messages: Path | None, system: str | None
) -> str | list[dict[str, Any]]:
    """Return the text to continue, or the conversation to answer."""
    if messages is not None:
        return with_system(read_messages(messages), system)
    text = prompt_text(prompt)
    return text if system is None else with_system(user(text), system)


def user(text: str) -> list[dict[str, Any]]:
    """Return a conversation that begins with this message."""
    return [{"role": "user", "content": text}]


def with_system(messages: list[Any], system: str | None) -> list[Any]:
    """Return a conversation that begins with this message; InputError if it has one already."""
    if system is None:
        return messages
    if messages and isinstance(messages[0], dict) and messages[0].get("role") == "system":
        raise InputError("the messages already begin with a system message: leave --system out")
    return [{"role": "system", "content": system}, *messages]


def read_text() -> str:
    """Return standard input as text; InputError if it is not UTF-8, or empty."""
    if sys.stdin.isatty():
        click.echo("reading the prompt from the terminal; end it with Ctrl-D", err=True)
    text = _decoded(sys.stdin.buffer.read())
    if not text:
        raise InputError("the prompt is empty: give some text, as an argument or on standard input")
    return text


def prompt_text(prompt: str | None) -> str:
    """Return the prompt: an argument, behind the text that is piped in, if any; or that alone.

    Raises:
        InputError: it is not UTF-8, or empty.

    """
    if prompt is None or prompt == "-":
        return read_text()
    asked, piped = _values.text(prompt), _piped()
    return f"{piped.rstrip()}\n\n{asked}" if piped.strip() else asked


def _piped() -> str:
    """Return the text of a pipe or a file that is standard input; "" without one.

    A program that starts this one may leave a pipe open and never write: that is not waited for.
    """
    try:
        kind = os.fstat(sys.stdin.fileno()).st_mode
        if stat.S_ISFIFO(kind) and not select.select([sys.stdin.fileno()], [], [], _GRACE_S)[0]:
            if sys.stderr.isatty():  # a program that starts this one may not mean to write
                note("standard input is open, and nothing came from it in time: it is not read")
            return ""
    except (AttributeError, OSError, ValueError):  # closed, or no file
        return ""
    if not stat.S_ISFIFO(kind) and not stat.S_ISREG(kind):
        return ""
    return _decoded(sys.stdin.buffer.read())


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"standard input is not UTF-8 at byte {error.start}: convert it first (iconv -t utf-8)"
        ) from None


def read_messages(path: Path) -> list[dict[str, Any]]:
    """Read a conversation from a file, a JSON list of messages; ``-`` is standard input."""
    try:
        text = read_text() if str(path) == "-" else path.read_text("utf-8")
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(f"{path}: expected JSON in UTF-8: a list of messages") from None
    if isinstance(found, dict):
        found = found.get("messages")
    if not isinstance(found, list):
        raise InputError(f'{path}: expected a list such as [{{"role": "user", "content": "Hi"}}]')
    return found


def _run_one(
    bundle: str, asked: str | list[dict[str, Any]], as_json: bool, chosen: dict[str, Any]
) -> None:
    """Continue a text, or answer a conversation."""
    target = _library.path(bundle, chosen["format"])
    opening = _options.open_options(chosen, target)
    with _options.opened(target, opening, asked) as pipeline:
        options = _sampling.for_text(chosen, pipeline, answers=not isinstance(asked, str))
        stream = (
            pipeline.stream(asked, options)
            if isinstance(asked, str)
            else pipeline.chat(asked, options)
        )
        hides = chosen["hide_thinking"]
        _output.answer(pipeline, stream, options, as_json=as_json, hides_thinking=hides, exact=True)


def _run_all(
    bundle: str, prompts: Path, out: Path | None, chosen: dict[str, Any], ray: str | None
) -> None:
    """Continue all prompts of a file, here or on a cluster."""
    if ray is None or out is None:
        from edgedec.cli import _batch

        _batch.run(bundle, prompts, out, chosen)
    else:
        part("edgedec.cli._cluster", "--ray").run(bundle, prompts, out, chosen, ray)
