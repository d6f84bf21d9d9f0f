"""``edgedec chat``: a conversation in the terminal."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any

import click

from edgedec.cli import _model, _options

if TYPE_CHECKING:
    from edgedec.pipeline import GenerateOptions


@click.command()
@_model.model
@click.option(
    "--system", type=_options.text, metavar="TEXT", help="What the assistant is told first."
)
@_options.options(_options.SAMPLE, _options.OPEN, _options.LOAD)
def command(bundle: str, system: str | None, **chosen: Any) -> None:
    """Talk with a model in the terminal.

    MODEL, a bundle's folder or a GGUF file, needs a chat template. A line is a message; /reset
    starts anew, /draft none decodes plainly from here on and /draft auto speculates again, /exit
    or Ctrl-D ends. Ctrl-C stops an answer.

    \b
    edgedec chat
    edgedec chat large.gguf --draft small.gguf
    edgedec chat ./qwen --system "Answer in one sentence." --temperature 0.7
    """  # fmt: skip
    options = _options.generate_options(chosen)
    from edgedec.cli import _output
    from edgedec.errors import InputError
    from edgedec.pipeline import Pipeline

    first = [] if system is None else [{"role": "system", "content": system}]
    messages = list(first)
    with Pipeline.open(bundle, _options.open_options(chosen)) as pipeline:
        if pipeline.tokenizer.chat_template is None:
            raise InputError(f"{bundle}: no chat template: use `edgedec generate` instead")
        while (line := _read()) is not None:
            if line == "/reset":
                messages = list(first)
            elif line.startswith("/draft"):
                options = _with_draft(options, line.removeprefix("/draft").strip())
            elif line:
                messages.append({"role": "user", "content": line})
                stream = pipeline.chat(messages, options)
                result, _ = _output.show(stream, sampled=not options.sampling.greedy)
                if not result.events:  # Ctrl-C or the timeout came before the first word
                    messages.pop()
                    continue
                messages.append({"role": "assistant", "content": result.text})


def _with_draft(options: GenerateOptions, name: str) -> GenerateOptions:
    """The options for the messages that follow; as they were, and a line, for a mistake."""
    from edgedec.errors import InputError

    try:
        return dataclasses.replace(options, draft=None if name == "auto" else name)
    except InputError as error:
        click.echo(f"{error}, or auto", err=True)
        return options


def _read() -> str | None:
    """The next message; None at the end."""
    if sys.stdin.isatty():
        click.echo("> ", nl=False, err=True)
    try:
        line = sys.stdin.readline()
    except KeyboardInterrupt:
        click.echo(err=True)
        return None
    except UnicodeDecodeError as error:
        from edgedec.errors import InputError

        raise InputError(f"standard input is not UTF-8 ({error.reason}): convert it") from None
    if not line or line.strip() == "/exit":
        return None
    return line.strip()
