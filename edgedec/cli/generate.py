"""``edgedec generate``: text after a prompt."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgedec.cli import _options
from edgedec.cli._group import INTERRUPTED

if TYPE_CHECKING:
    from edgedec.batch import Sink
    from edgedec.jobs import Job
    from edgedec.pipeline import GenerateOptions, Generation, Pipeline, Stream

EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path, allow_dash=True)


@click.command()
@click.argument("prompt", required=False)
@_options.bundle
@_options.options(_options.SAMPLE, _options.OPEN, _options.LOAD)
@click.option(
    "--logprobs",
    type=click.IntRange(0, 100),
    metavar="N",
    help="Log probabilities of the tokens and of the N best; needs --json or --prompts.",
)
@click.option(
    "--messages",
    type=EXISTING,
    metavar="FILE",
    help="A conversation, a JSON list of {role, content}, through the chat template.",
)
@click.option(
    "--prompts",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE.jsonl",
    help='Many: lines such as {"id": "a", "prompt": "Hello"}.',
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where results of --prompts go, a line each; ids already there are skipped.",
)
@_options.as_json
def command(
    prompt: str | None,
    bundle: str,
    messages: Path | None,
    prompts: Path | None,
    out: Path | None,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Write what follows PROMPT or standard input.

    Without PROMPT, or with -, standard input is read. The text comes as it is written; figures
    go to standard error.

    \b
    edgedec generate "def fibonacci(n):"
    cat script.py | edgedec generate --max-new-tokens 64 --stop $'\\ndef '
    edgedec generate --temperature 0.8 --seed 7 --json "import os"
    edgedec generate --draft none --messages chat.json
    edgedec generate --target large.gguf --draft small.gguf "Once upon a time"
    edgedec generate --prompts in.jsonl --out out.jsonl
    """  # fmt: skip
    _check(prompt, messages, prompts, out, as_json or prompts is not None, chosen["logprobs"])
    from edgedec import batch
    from edgedec.jobs import Job, read_jobs

    # Whatever is wrong with the question is said before a model is loaded.
    if prompts is not None:
        jobs = read_jobs(prompts)
    elif messages is not None:
        jobs = [Job("1", read_messages(messages))]
    else:
        jobs = [Job("1", read_text() if prompt in (None, "-") else str(prompt))]
    options = _options.generate_options(chosen)
    from edgedec.cli import _output
    from edgedec.pipeline import Pipeline

    _output.tolerant_output()
    with Pipeline.open(bundle, _options.open_options(chosen)) as pipeline:
        if prompts is not None:
            _run_all(pipeline, jobs, options, out, chosen["accept"])
            return
        stream = jobs[0].stream(pipeline, options)
        if as_json:
            result, stopped = _output.collect(stream)
            _output.print_json(batch.record(result))
        else:
            _, stopped = _output.show(stream, sampled=not options.sampling.greedy)
    if stopped:
        raise click.exceptions.Exit(INTERRUPTED)


def _check(
    prompt: str | None,
    messages: Path | None,
    prompts: Path | None,
    out: Path | None,
    facts: bool,
    logprobs: int | None,
) -> None:
    given = [value for value in (prompt, messages, prompts) if value is not None]
    if len(given) > 1:
        raise click.UsageError("give one of PROMPT, --messages and --prompts")
    if out is not None and prompts is None:
        raise click.UsageError("--out goes with --prompts; for one prompt redirect the output")
    if logprobs is not None and not facts:
        raise click.UsageError("--logprobs goes with --json or --prompts")


def read_text() -> str:
    """Standard input as text.

    Raises:
        InputError: it is not UTF-8, or empty.

    """
    from edgedec.errors import InputError

    if sys.stdin.isatty():
        click.echo("reading the prompt from the terminal; end it with Ctrl-D", err=True)
    data = sys.stdin.buffer.read()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"standard input is not UTF-8 at byte {error.start}: convert it first (iconv -t utf-8)"
        ) from None
    if not text:
        raise InputError("the prompt is empty: give some text, as an argument or on standard input")
    return text


def read_messages(path: Path) -> list[dict[str, Any]]:
    """A conversation from a file; ``-`` is standard input.

    Raises:
        InputError: not a JSON list of messages.

    """
    from edgedec.errors import InputError

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


class _Printed:
    """Results that go to standard output."""

    def __init__(self) -> None:
        self.done: set[str] = set()

    def add(self, job: Job, fields: dict[str, Any]) -> None:
        from edgedec.cli import _output

        _output.print_json({"id": job.id, **fields})

    def close(self) -> None:
        """Nothing to close."""


def _run_all(
    pipeline: Pipeline,
    jobs: list[Job],
    options: GenerateOptions,
    out: Path | None,
    accept: str | None,
) -> None:
    from edgedec import batch
    from edgedec.cli import _output

    results: Sink = _Printed()
    if out is not None:
        results = batch.Results(out, batch.settings_of(pipeline, options, accept))

    def decode(stream: Stream) -> tuple[Generation, bool]:
        finished, stopped = _output.collect(stream)
        click.secho(
            _output.summary(finished, sampled=not options.sampling.greedy), err=True, dim=True
        )
        return finished, stopped

    try:
        failed, stopped = batch.run(pipeline, jobs, results, options, decode)
    except KeyboardInterrupt:  # between two prompts
        failed, stopped = 0, True
    finally:
        results.close()
    if stopped:
        click.echo("stopped: run the same command again to go on", err=True)
        raise click.exceptions.Exit(INTERRUPTED)
    if failed:
        click.echo(f"{failed} of {len(jobs)} prompts could not be decoded", err=True)
        raise click.exceptions.Exit(2)
