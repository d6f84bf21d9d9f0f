"""``edgedec devices``: lists the devices that each runtime can use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from edgedec._support.fields import printable, to_json
from edgedec._support.parts import part
from edgedec.cli import _library, _options, _output, _progress, _remote
from edgedec.cli._library import MODEL
from edgedec.cli._output import size

if TYPE_CHECKING:
    from rich.table import Table

    from edgedec.doctor.coreml.plans import PlacedProgram
    from edgedec.doctor.survey import Survey, SurveyedDevice

# Width of lines without a terminal, since programs that read them expect no wrapped lines.
_WIDE = 1000


@click.command()
@click.argument("model", required=False, type=MODEL)
@click.option(
    "--try/--no-try",
    "attempt",
    default=True,
    help="Try which bundles each device takes, or only list the devices.",
)
@click.option("--measure/--no-measure", default=None, hidden=True)
@_options.options(_remote.OPTIONS)
@_options.as_json
def command(
    model: str | None, attempt: bool, measure: bool | None, rpc: str | None, as_json: bool
) -> None:
    """List the devices that the runtimes can use.

    How fast they decode depends on the model: edgedec profile MODEL measures that.

    Packages such as onnxruntime-ep-openvino add devices to ONNX Runtime; the extra openvino adds
    other kernels for the processor. llama.cpp has the devices of its build, and one more if
    GGML_BACKEND_PATH names a backend's library.

    Which bundles a device can run is tested as well: a tiny decoder is loaded on it in each form of
    ONNX, with a cache of any size (onnx) and of static shape (onnx-static).

    With --rpc, the devices of other machines are listed as well, with their memory.

    With MODEL, a bundle that contains CoreML programs, also list where CoreML would compute each
    of their functions, according to its compute plan: on macOS only, and not a measurement.

    \b
    edgedec devices
    edgedec devices --no-try
    edgedec devices ./my-bundle --no-try
    edgedec devices --rpc 192.168.1.7:50052,192.168.1.8:50052
    edgedec devices --json
    """
    from edgedec.doctor.survey import survey

    if measure:
        raise click.UsageError("--measure was removed: edgedec profile MODEL measures every device")
    placed = () if model is None else _placed(_library.path(model))

    with _progress.progress("trying") as listen:
        found = survey(
            attempt=attempt and measure is None,
            rpc=rpc,
            on_progress=(lambda _, done, total: listen(done, total)) if listen else None,
        )
    if as_json:
        _output.print_json(to_json(found) | ({"coreml": to_json(placed)} if placed else {}))
        return
    _print(found)
    if placed:
        click.echo()
        _output.table(line for program in placed for line in program.lines())


def _placed(bundle: str) -> tuple[PlacedProgram, ...]:
    coreml = part("edgedec.doctor.coreml", "what CoreML places where")
    found: tuple[PlacedProgram, ...] = coreml.placed(coreml.programs_of(bundle))
    return found


def _print(found: Survey) -> None:
    import shutil
    import sys

    from rich.console import Console

    from edgedec.cli._output import size, table
    from edgedec.hardware.machine import describe

    memory = found.memory
    limit = f", limited to {size(memory.limit)}" if memory.limit else ""
    click.echo(f"memory  {size(memory.total)}{limit}, {size(memory.free)} free")
    click.echo(f"cores   {' + '.join(describe(cluster) for cluster in found.clusters)}")
    click.echo()
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDE
    console = Console(file=sys.stdout, width=width, highlight=False)
    with console.capture() as shown:
        console.print(_table(found.found))
    for line in shown.get().splitlines():
        click.echo(line.rstrip())
    click.echo()
    named = {f"{one.device.runtime} {one.device.name}": one.device for one in found.found}
    if named:
        table((name, device.description) for name, device in named.items())
    reported = (one.refusal for one in found.found if one.refusal)
    for problem in dict.fromkeys([*reported, *found.problems]):
        click.echo(printable(problem))


def _table(found: Iterable[SurveyedDevice]) -> Table:
    from rich.table import Table
    from rich.text import Text

    listed = list(found)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    tried = any(one.takes is not None for one in listed)
    columns = ["runtime", "device", "kind", "cores or memory", *(["bundles"] if tried else [])]
    for name in columns:
        table.add_column(name, overflow="fold")
    for one in listed:
        device = one.device
        cells = [device.runtime, device.name, device.kind, _size(one)]
        cells += [", ".join(one.takes or ()) or "none"] if tried else []
        # As plain text: a driver's device name is not markup.
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table


def _size(one: SurveyedDevice) -> str:
    from edgedec.hardware.machine import describe

    if one.cluster is not None:
        return describe(one.cluster)
    if one.device.memory_total is None:
        return ""
    free = one.device.memory_free
    return size(one.device.memory_total) + (f", {size(free)} free" if free is not None else "")
