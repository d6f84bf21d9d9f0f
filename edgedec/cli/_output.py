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
from typing import TYPE_CHECKING, Any

import click

from edgedec._support.fields import printable
from edgedec.cli._terminal import INTERRUPTED, wrapped
from edgedec.cli._terminal import width as width_of
from edgedec.decoding.drafting import PLAIN

# A wait for a core is reported above this share of the time, since it slows passes noticeably; so
# are passes slower by more than this factor than at opening.
_BUSY, _SLOWER = 0.15, 1.5

if TYPE_CHECKING:
    from edgedec.decoding.metrics import Metrics
    from edgedec.pipeline import Generation, Stream


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


def show(stream: Stream, *, sampled: bool, coloured: bool = False) -> tuple[Generation, bool]:
    """Print the text as it comes and figures after it; also return whether Ctrl-C ended it.

    ``coloured`` shows accepted draft tokens in green, in a terminal.
    """
    coloured = coloured and sys.stdout.isatty()
    written = 0
    with cancelled_by_ctrl_c(stream) as stopped:
        for event in stream:
            if event.text:
                drafted = coloured and event.source == "draft"
                sys.stdout.write(click.style(event.text, fg="green") if drafted else event.text)
                sys.stdout.flush()
                written += len(event.text)
    result = finished(stream)
    # Text that was held back because it may begin a stop string.
    sys.stdout.write(result.text[written:])
    if sys.stdout.isatty() and not result.text.endswith("\n"):
        sys.stdout.write("\n")
    sys.stdout.flush()
    show_figures(result, sampled=sampled)
    return result, stopped.is_set()


def answer(stream: Stream, *, sampled: bool, as_json: bool) -> None:
    """Print a text, or one JSON object about it; end the program if Ctrl-C ended the text."""
    if as_json:
        from edgedec.batch import run

        result, stopped = collect(stream)
        print_json(run.record(result))
    else:
        _, stopped = show(stream, sampled=sampled)
    if stopped:
        raise click.exceptions.Exit(INTERRUPTED)


def show_figures(result: Generation, *, sampled: bool) -> None:
    """Print the line of figures on stderr; in a terminal, as many lines as needed."""
    for line in _packed(_figures(result, sampled=sampled), width_of(sys.stderr)):
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


def _figures(result: Generation, *, sampled: bool) -> list[str]:
    """Return short clauses on how the text was decoded, with the seed if it had an effect."""
    metrics, plan = result.metrics, result.plan
    plain = plan.get("drafter") == PLAIN
    tokens = "1 token" if metrics.emitted == 1 else f"{metrics.emitted} tokens"
    parts = [f"{tokens} ({result.finish_reason})"]
    if metrics.tokens_per_second:
        parts.append(f"{metrics.tokens_per_second:.0f} tokens/s")
    if metrics.speedup_estimate is not None and not plain:
        parts.append(f"about {metrics.speedup_estimate:.2f}x plain decoding")
    if metrics.emitted:
        known = metrics.reused_tokens
        kept = f" ({known} prompt tokens kept from before)" if known else ""
        parts.append(f"first token {metrics.ttft_s * 1000:.0f} ms{kept}")
        parts.append(f"{metrics.block_efficiency:.2f} tokens per target pass")
    parts += [] if plain else _accepted(metrics)
    parts += _busy(metrics)
    parts += _memory(metrics)
    if "shared_of_sample" in plan:
        parts.append(f"vocabularies: {plan['vocabulary']}")
    if metrics.emitted and "drafter" in plan:
        drafted_by = "plain decoding" if plain else f"drafter {plan['drafter']}"
        parts.append(drafted_by + _place(plan))
    parts += _exact(plan)
    if metrics.emitted and plan.get("plan"):
        parts.append(f"plan {plan['plan']}")
    elif metrics.emitted and plan.get("no_plan"):
        parts.append(f"no plan ({plan['no_plan']})")
    if sampled:
        parts.append(f"seed {result.seed}")
    return parts


def _place(plan: Mapping[str, Any]) -> str:
    """Return where the target ran, such as `` on onnx (openvino)``."""
    if "format" not in plan:
        return ""
    named = plan.get("provider") or plan.get("device")
    return f" on {plan['format']} ({named})" if named else f" on {plan['format']}"


def _accepted(metrics: Metrics) -> list[str]:
    """Describe the share of drafted tokens that the target accepted."""
    drafted = metrics.drafted_tokens
    if drafted:
        return [f"{metrics.acceptance_rate:.0%} of {drafted} drafted tokens accepted"]
    return ["nothing drafted"] if metrics.emitted else []


def _busy(metrics: Metrics) -> list[str]:
    """Describe the effect of other load on the machine; empty if it is small."""
    if metrics.waited_share < _BUSY:
        return []
    if metrics.slowdown is not None and metrics.slowdown >= _SLOWER:
        return [f"busy machine: {metrics.slowdown:.1f}x slower passes"]
    return [f"busy machine: {min(metrics.waited_share, 1):.0%} of the time waiting for a core"]


def _memory(metrics: Metrics) -> list[str]:
    """Describe the last retreat or return due to the memory limit; empty if there was none."""
    if metrics.memory is None or not metrics.memory.events:
        return []
    last = metrics.memory.events[-1]
    return [f"memory: {last.after} after {last.emitted} tokens, of {size(metrics.memory.granted)}"]


def _exact(plan: Mapping[str, object]) -> list[str]:
    """Return a clause if the text is guaranteed to equal plain decoding's, including near-ties."""
    from edgedec.decoding.acceptance import RULES

    rule = RULES.get(str(plan.get("accept")))
    drafts = plan.get("drafter") != PLAIN
    exact = plan.get("batch_invariant") and rule is not None and rule.seeds_text
    return ["its text exactly that of plain decoding"] if exact and drafts else []


def _packed(parts: Iterable[str], room: int) -> list[str]:
    """Pack clauses into lines of at most ``room`` characters, broken after a comma if possible."""
    lines = [""]
    for part in parts:
        longer = f"{lines[-1]}, {part}" if lines[-1] else part
        # Plus one for the comma after it.
        if len(longer) < room or not lines[-1]:
            lines[-1] = longer
        else:
            lines[-1] += ","
            lines.append(part)
    return [piece for line in lines for piece in wrapped(line, room)]


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


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Return a listener ``(done, total)`` that draws a bar on stderr; None without a terminal."""
    with stages(transient=True) as listen:
        if listen is not None:
            listen(what, 0, None)
        yield None if listen is None else partial(listen, what)


@contextmanager
def stages(*, transient: bool = False) -> Iterator[Callable[[str, int, int | None], None] | None]:
    """Return a listener ``(stage, done, total)`` with a bar on stderr for each stage.

    Transient bars are removed at the end.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    tasks = {}
    with Progress(console=Console(stderr=True), transient=transient) as bar:

        def listen(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)

        yield listen


# Formats of parity figures; others are printed as name and number.
_PARITY = {
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
