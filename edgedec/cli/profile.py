"""``edgedec profile``: measures a pair at every place where it can run on this machine."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgedec._support.fields import one_line, to_json
from edgedec.cli import (
    _help,
    _library,
    _model,
    _options,
    _output,
    _progress,
    _prompts,
    _remote,
    _terminal,
    _values,
)
from edgedec.cli._output import size

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from edgedec.records.profile import Measured, Profile

ROWS = (4, 8, 16)
_HEADS = (
    "T(1) ms", *(f"T({rows})" for rows in ROWS), "spread", "prefill tok/s", "load s", "memory",
    "same first", "KL nats",
)  # fmt: skip
# Columns that are dropped on a narrow terminal, in this order.
_LESS = ("load s", "spread", "KL nats", "T(16)")
# Narrowest width to which a place is wrapped.
_PLACE, _PLACE_WIDTH, _UNBOUNDED = 1, 26, 1000


@click.command(cls=_help.GroupedCommand)
@_model.model
@_options.DRAFT_MODEL
@click.option(
    "--place",
    "labels",
    multiple=True,
    metavar="TEXT",
    help="Only places with this in their name, such as cpu:0 or Vulkan; repeatable.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 1024),
    multiple=True,
    metavar="N",
    help="Only these numbers of CPU threads; repeatable.",
)
@click.option(
    "--format",
    "formats",
    multiple=True,
    type=_values.formats(),
    help="Only these formats; repeatable.",
)
@click.option(
    "--thorough",
    is_flag=True,
    help="More places, widths and contexts; takes several times as long.",
)
@_options.options(_remote.OPTIONS)
@_prompts.option
@click.option("--refresh", is_flag=True, help="Measure again what was measured before.")
@_options.as_json
def command(
    bundle: str,
    draft_model: Path | None,
    prompts: Path | None,
    refresh: bool,
    as_json: bool,
    **wanted: Any,
) -> None:
    """Measure MODEL at every place where it can run on this machine.

    Measures each model at each place, in a process of its own: passes over 1 to 32 rows, prefill,
    loading, memory, and whether its logits agree with those of other places. Then every drafter
    decodes a few calibration texts. The profile is valid until the machine, the runtimes or the
    files change. MODEL is what `edgedec run` takes.

    \b
    edgedec profile
    edgedec profile ./my-bundle --prompts prompts.jsonl
    edgedec profile large.gguf --draft small.gguf --threads 4 --thorough
    edgedec profile large.gguf --draft small.gguf --rpc 192.168.1.7:50052
    """  # fmt: skip
    from edgedec.functions import profile_options
    from edgedec.loading.sources import Models
    from edgedec.profiling.places import PlaceFilter
    from edgedec.profiling.run import profile

    options = profile_options(prompts, PlaceFilter(**wanted), refresh=refresh)
    target = _library.path(bundle)
    models = Models.find(target, _library.draft_path(draft_model, target))
    with _progress.steps() as on_progress:
        found = profile(models, options, on_progress)
    if as_json:
        _output.print_json(to_json(found))
    else:
        show(found)


def show(profile: Profile) -> None:
    """Print a table of usable places, then the unusable ones and what was left out."""
    from rich.console import Console

    # Nothing is dropped without a terminal.
    console = Console() if Console().is_terminal else Console(width=140)
    left_out: tuple[str, ...] = ()
    for count in range(len(_LESS) + 1):
        left_out = _LESS[:count]
        table = _table(profile, left_out)
        if _widest(table, console) <= console.width:
            break
    console.print(table, highlight=False, markup=False)
    if left_out:
        _terminal.print_text(f"({', '.join(left_out)}: in a wider terminal, or with --json)")
    for line in notes(profile):
        _terminal.print_text(line)


def _widest(table: Table, console: Console) -> int:
    """Return the width of a line in which only places are wrapped."""
    from rich.measure import Measurement

    table.columns[_PLACE].min_width = table.columns[_PLACE].max_width = _PLACE_WIDTH
    found = Measurement.get(console, console.options.update(max_width=_UNBOUNDED), table).maximum
    table.columns[_PLACE].max_width = None
    return found


def _table(profile: Profile, left_out: Collection[str]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    shown = [head for head in _HEADS if head not in left_out]
    table.add_column("model", no_wrap=True)
    table.add_column("place", overflow="fold")
    for head in shown:
        # Headings may be wrapped, figures may not.
        table.add_column(head.replace(" ", "\n"), justify="right", no_wrap=True)
    for measured in profile.measured:
        if measured.parity.usable:
            cells = dict(zip(_HEADS, _cells(measured), strict=True))
            figures = [cells[head] for head in shown]
            table.add_row(measured.role, measured.place.label, *figures)
    return table


def _cells(measured: Measured) -> list[str]:
    times = measured.times[0]
    one = times.curve.at(1)
    widest = times.widths[-1]
    ratios = [f"{times.curve.at(rows) / one:.2f}" if rows <= widest else "-" for rows in ROWS]
    spread = sorted(times.spread)[len(times.spread) // 2]
    prefill = f"{1 / measured.prefill_s:.0f}" if measured.prefill_s else "-"
    busy = "" if measured.steady else " ?"
    return [
        f"{one * 1e3:.3g}{busy}", *ratios, f"{spread:.0%}", prefill, f"{measured.load_s:.2g}",
        size(measured.rss_bytes), f"{measured.parity.agreement:.0%}",
        f"{measured.parity.divergence:.2g}",
    ]  # fmt: skip


def notes(profile: Profile) -> Iterator[str]:
    """Return notes below the table, one per line."""
    from edgedec.hardware.contention import BUSY

    for measured in profile.measured:
        if not measured.parity.usable:
            why = one_line(measured.parity.reason)
            yield f"{measured.role} on {measured.place.label} cannot be used: {why}"
    yield from _rounds(profile)
    for note in profile.notes:
        yield f"left out: {one_line(note)}"
    if profile.busy is not None and profile.busy > BUSY:
        yield (
            f"? the machine was busy, other programs used {profile.busy:.0%} of the processor's"
            " time: measure again with --refresh when it is quiet"
        )
    elif not all(measured.steady for measured in profile.measured):
        yield "? passes were interrupted: measure again with --refresh when the machine is quiet"


def _rounds(profile: Profile) -> Iterator[str]:
    """Yield the draft model's acceptance, and the time of a round outside its passes."""
    for rounds in profile.rounds:
        if rounds.drafter == "model" and rounds.draft_length:
            for drafts in rounds.drafts:
                yield (
                    f"the draft model's first token is right {drafts.chances[0]:.0%} of the time,"
                    f" all of {len(drafts.chances)} are {drafts.chances[-1]:.0%}"
                    f" ({rounds.rounds} rounds on {profile.texts})"
                )
    more = f", and {profile.draft_overhead_s * 1e6:.0f} us more for each token a draft model drafts"
    plain = [rounds for rounds in profile.rounds if rounds.drafter == "none"]
    for rounds in plain[:1]:
        yield (
            f"a round takes {rounds.overhead_s * 1e6:.0f} us in addition to its passes"
            + (more if profile.of("draft") else "")
        )
