"""Prints a generation: streamed text with a line of figures, or one JSON object."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING, TextIO

import click

from edgedec._support.fields import printable
from edgedec.cli import _figures
from edgedec.cli._terminal import INTERRUPTED, note, wrapped
from edgedec.cli._terminal import width as width_of
from edgedec.cli._wrapping import Style, Wrapping, plainly
from edgedec.generation.figures import is_busy
from edgedec.hardware.energy import EnergyMeter

# Whether a line of figures has mentioned that the machine is busy, in the context's ``meta``.
_SAID_BUSY = "edgedec.said_busy"
_GREEN, _DIM = partial(click.style, fg="green"), partial(click.style, dim=True)

if TYPE_CHECKING:
    from edgedec.hardware.energy import EnergyMeter
    from edgedec.pipeline import GenerateOptions, Generation, Pipeline, Stream


def tolerant_output() -> None:
    """Make a terminal print escapes for characters it cannot show, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def print_json(record: object) -> None:
    """Print one object on stdout."""
    click.echo(json.dumps(record, ensure_ascii=False))


@contextmanager
def cancelled_by_ctrl_c(stream: Stream) -> Iterator[Event]:
    """Let the first Ctrl-C end the generation after the current pass, a second one the program."""
    stopped = Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()
        stream.cancel()

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)


def show(
    stream: Stream,
    *,
    coloured: bool = False,
    hides_thinking: bool = False,
    exact: bool = False,
    wraps: bool = False,
) -> tuple[Generation, bool]:
    """Print the text as it comes; return its result and whether Ctrl-C ended it.

    The thinking before an answer goes to standard error.

    Args:
        coloured: show accepted draft tokens in green, in a terminal.
        hides_thinking: leave the thinking out.
        exact: outside a terminal write the text alone, so that it can be added to what it
            continues; otherwise its last line is ended.
        wraps: in a terminal break lines between words.

    """
    coloured = coloured and sys.stdout.isatty()
    written = 0
    thinking = _Thinking(hidden=hides_thinking, wraps=wraps)
    shown = _Shown(sys.stdout, sys.stdout.write, wraps=wraps)
    with cancelled_by_ctrl_c(stream) as stopped, shown:
        for event in stream:
            thinking.show(event.thinking)
            if event.text:
                thinking.end()
                shown.add(event.text, _GREEN if coloured and event.source == "draft" else plainly)
                written += len(event.text)
        result = finished(stream)
        thinking.end()
        # Text that was held back because it may begin a stop string.
        shown.add(result.text[written:])
    if (sys.stdout.isatty() or (result.text and not exact)) and not result.text.endswith("\n"):
        sys.stdout.write("\n")
    sys.stdout.flush()
    return result, stopped.is_set()


def _on_stderr(text: str) -> None:
    click.echo(text, err=True, nl=False)  # without colours where it is no terminal


class _Shown:
    """A text on a stream, as it comes; what was held back is written where the context ends.

    Args:
        stream: standard output or standard error.
        wraps: whether a terminal gets lines that end between words.

    """

    def __init__(self, stream: TextIO, write: Callable[[str], object], *, wraps: bool) -> None:
        self._stream, self._write = stream, write
        wraps = wraps and stream.isatty()
        self._wrapping = Wrapping(write, lambda: width_of(stream)) if wraps else None

    def __enter__(self) -> None:
        pass

    def __exit__(self, *details: object) -> None:
        self.end()

    def add(self, text: str, style: Style = plainly) -> None:
        if self._wrapping is None:
            self._write(style(text))
        else:
            self._wrapping.add(text, style)
        self._stream.flush()

    def end(self) -> None:
        """Write what was held back."""
        if self._wrapping is not None:
            self._wrapping.end()
            self._stream.flush()


class _Thinking:
    """Prints the thinking before an answer, dimmed, in paragraphs of its own."""

    def __init__(self, *, hidden: bool, wraps: bool) -> None:
        self._hidden, self._wraps = hidden, wraps
        self._shown: _Shown | None = None

    def show(self, text: str | None) -> None:
        """Print a part of it."""
        if text and not self._hidden:
            self._shown = self._shown or _Shown(sys.stderr, _on_stderr, wraps=self._wraps)
            self._shown.add(text, _DIM)

    def end(self) -> None:
        """End its last line, if there is any."""
        if self._shown is not None:
            self._shown.end()
            click.echo("\n", err=True)
        self._shown = None


def answer(
    pipeline: Pipeline,
    stream: Stream,
    options: GenerateOptions,
    *,
    as_json: bool,
    hides_thinking: bool = False,
    exact: bool = False,
    wraps: bool = False,
    keep: Callable[[Generation], None] = lambda result: None,
) -> None:
    """Print a text, its figures and how to go on where it was cut, or one JSON object about it.

    Ends the program if Ctrl-C ended the text, after it was given to ``keep``. The other arguments
    are those of ``show``.
    """
    meter = EnergyMeter()
    if as_json:
        from edgedec.batch import run

        result, stopped = collect(stream)
        joules = meter.per_token(result.metrics)
        known = {} if joules is None else {"joules_per_token": joules}
        unused = {"seed": None} if options.sampling.greedy else {}  # nothing was drawn with it
        print_json(run.record(result) | unused | known)
    else:
        result, stopped = show(stream, hides_thinking=hides_thinking, exact=exact, wraps=wraps)
        show_figures(result, meter, sampled=not options.sampling.greedy)
        if hint := _figures.cut(result, options, pipeline.target.info.max_context):
            note(hint)
    keep(result)
    if stopped:
        raise click.exceptions.Exit(INTERRUPTED)


def show_figures(result: Generation, meter: EnergyMeter, *, sampled: bool) -> None:
    """Print the figures on stderr, all of them with -v; in a terminal, as many lines as needed.

    Without -v a busy machine is mentioned once in a run of the program.

    Args:
        meter: read before its first token.
        sampled: its seed had an effect.

    """
    joules = meter.per_token(result.metrics)
    context = click.get_current_context(silent=True)
    if context is not None and context.params.get("verbosity"):
        parts = _figures.details(result, sampled=sampled, joules=joules)
    else:
        said = context.meta if context is not None else {}
        said_busy = said.get(_SAID_BUSY, False)
        parts = _figures.short(result, sampled=sampled, joules=joules, said_busy=said_busy)
        said[_SAID_BUSY] = said_busy or is_busy(result.metrics)
    for line in _figures.packed(parts, width_of(sys.stderr)):
        click.secho(line, err=True, dim=True)


def collect(stream: Stream) -> tuple[Generation, bool]:
    """Generate to the end without output; also return whether Ctrl-C ended it."""
    with cancelled_by_ctrl_c(stream) as stopped:
        for _ in stream:
            pass
    return finished(stream), stopped.is_set()


def finished(stream: Stream) -> Generation:
    """Return the result of a stream that has ended."""
    result = stream.result
    if result is None:
        raise RuntimeError("the stream ended without a result")
    return result


def table(rows: Iterable[tuple[str, str]]) -> None:
    """Print names and values in two columns; a terminal wraps long values within theirs."""
    listed = [(name, printable(value)) for name, value in rows]
    width = max(len(name) for name, _ in listed)
    room = width_of(sys.stdout) - width - 2
    for name, value in listed:
        first, *more = wrapped(value, room)
        click.echo(f"{click.style(name.ljust(width), bold=True)}  {first}")
        for line in more:
            click.echo(f"{'':{width}}  {line}")


def size(count: int | None) -> str:
    """Format bytes for people."""
    if count is None:
        return "unknown"
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} bytes"


def count(number: int) -> str:
    """Format a number of parameters for people."""
    for unit, factor in (("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= factor:
            return f"{number / factor:.1f} {unit}"
    return str(number)


# Formats of parity figures; others are printed as name and number.
_PARITY = {
    "agreement_1": "first choice is the target's at depth 1 {:.0%}",
    "agreement_2": "2 {:.0%}",
    "agreement_3": "3 {:.0%}",
    "agreement_gguf": "in gguf {:.0%}",
    "tokens": "{:.0f} tokens",
    "kl_nats": "KL {:.2g} nats",
    "top1": "same best token {:.1%}",
    "perplexity_source": "perplexity of the source {:.4g}",
}


def figures(facts: Mapping[str, object]) -> str:
    """Format numbers by name, in one line."""
    numbers = [(k, v) for k, v in facts.items() if isinstance(v, (int, float))]
    written = (_PARITY.get(name, f"{name.replace('_', ' ')} {{:.4g}}") for name, _ in numbers)
    return ", ".join(text.format(value) for text, (_, value) in zip(written, numbers, strict=True))
