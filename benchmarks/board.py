"""``python -m benchmarks board``: the block that an owner of a board pastes into an issue.

What a data sheet or an emulator cannot tell: how a pass's time grows with its rows, what drafting
gains, and whether the board gets too hot for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import click

from benchmarks.program import Program
from edgedec._support.amounts import size
from edgedec._support.fields import printable
from edgedec.cli import _library, _options, _output, _progress, _prompts
from edgedec.compare.drafters import PLAIN, opened
from edgedec.compare.interleaved import Comparison, OnProgress, compare
from edgedec.compare.records import Recorder
from edgedec.decoding import drafting
from edgedec.doctor import report
from edgedec.errors import RuntimeUnavailable
from edgedec.hardware import machine
from edgedec.hardware.contention import BUSY, by_others, usage
from edgedec.hardware.resident import peak_bytes
from edgedec.hardware.strain import Strain, strain
from edgedec.loading.build import OpenOptions, find_pair
from edgedec.loading.sources import Source
from edgedec.pipeline import GenerateOptions, Prompt
from edgedec.profiling.passes import sweep
from edgedec.records.load import LoadOptions
from edgedec.runtimes import registry

# A line of the block: what it is about, and what was found.
Line = tuple[str, str]

_WIDTHS = (1, 2, 4, 8, 16)
_TOKENS, _PROMPT, _CONTEXT, _SWEEP_S = 128, 64, 256, 1.0
_COMPUTING = {"onnxruntime", "llama-cpp-python", "openvino"}
# Enough for a ratio, few enough for a slow board.
_TEXTS = 4
_BOARD = Path("/proc/device-tree/model")


@click.command(cls=Program)
@click.argument("bundle", metavar="[MODEL]", default="demo")
@_options.as_json
def command(bundle: str, as_json: bool) -> None:
    """Measure a bundle, or the demo pair, on this machine, as one block to paste into an issue.

    Passes, texts plain and drafted, memory and heat: edgedec has never yet run on a Raspberry Pi.
    """
    with _progress.progress("decoding") as listen:
        lines = bench_report(_library.path(bundle), _prompts.named(None, _TEXTS), listen)
    if as_json:
        _output.print_json([{"about": name, "found": text} for name, text in lines])
    else:
        click.echo(block(lines))


def bench_report(
    bundle: str | Path,
    prompts: Sequence[tuple[str, Prompt]],
    on_progress: OnProgress | None = None,
) -> list[Line]:
    """Measure a bundle on this machine; some minutes on a small board.

    Args:
        bundle: a bundle's folder, ``demo``, or a GGUF file.
        prompts: texts that are continued, plain and drafted, by 128 tokens each.
        on_progress: called with texts decoded so far, and in all.

    Raises:
        BundleError, InputError, RuntimeUnavailable: as ``Pipeline.open``.

    """
    before, began = strain(), usage()
    pair = find_pair(bundle, OpenOptions())
    lines = [*_about(), ("model", printable(Path(bundle).name))]
    lines += _passes(pair.target)
    if pair.draft is not None:
        lines += _passes(pair.draft)
    ways = {
        PLAIN: OpenOptions(drafter="none", batch_invariant=False),
        drafting.AUTO: OpenOptions(),
    }
    options = GenerateOptions(_TOKENS, ignore_eos=True)
    with opened(bundle, ways) as pipelines:
        drafter = str(pipelines[drafting.AUTO].plan["drafter"])
        recorder = Recorder(lambda _: None, "board")
        found = compare(pipelines, prompts, options, recorder, on_progress=on_progress)
    lines += [("texts", _compared(found, drafter)), ("peak", size(peak_bytes() or 0))]
    return [*lines, *_heat(before, strain()), *_busy(by_others(began, usage()))]


def block(lines: Sequence[Line]) -> str:
    """Return lines as one block of Markdown."""
    shown = [f"{name:10}{text}" for name, text in lines]
    return "\n".join(["```", "python -m benchmarks board", *shown, "```"])


def _about() -> list[Line]:
    facts = report.examine()
    cpu, found = facts["cpu"], machine.memory()
    clusters = " + ".join(cpu["clusters"])
    lines = [
        ("edgedec", f"{facts['edgedec']}, Python {facts['python']}, {facts['system']}"),
        ("board", _board()),
        ("processor", f"{cpu['name']}, {clusters}, {' '.join(cpu['features'])}"),
        ("memory", f"{size(found.total or 0)}, {size(found.free or 0)} free"),
        ("limit", "" if found.limit is None else size(found.limit)),
        ("swap", report.swap_in_words(facts["swap"])),
    ]
    packages = machine.package_versions(_COMPUTING)
    lines.append(("packages", ", ".join(f"{n} {v}" for n, v in packages.items() if n != "edgedec")))
    return [line for line in lines if line[1]]


def _board() -> str:
    """Return a board's name from its device tree; "" elsewhere."""
    try:
        return printable(_BOARD.read_text("utf-8", errors="replace").rstrip("\0"))
    except OSError:
        return ""


def _passes(source: Source) -> list[Line]:
    """Return a model's size, whether its text is exact, and the times of its passes."""
    source.admit()
    with closing(registry.load(source.format, source.path, LoadOptions())) as model:
        exact = "by default" if model.capabilities.batch_invariant else _when_asked(source)
        about = f"{source.format}, {size(model.info.weight_bytes)}, exact text {exact}"
        with closing(model.open(min(_CONTEXT, model.info.max_context))) as session:
            tokens = list(range(1, min(_PROMPT, model.info.vocab_size)))
            session.prefill(tokens)
            times = sweep(session, _WIDTHS, tokens, _SWEEP_S).times
    each = ", ".join(f"{1000 * seconds:.3g}" for seconds in times.seconds)
    rows = "/".join(str(width) for width in times.widths)
    return [(source.role, about), ("", f"passes of {rows} rows: {each} ms")]


def _when_asked(source: Source) -> str:
    try:
        options = LoadOptions(batch_invariant=True)
        registry.load(source.format, source.path, options).close()
    except RuntimeUnavailable:
        return "in no way here"
    return "with --batch-invariant"


def _compared(found: Comparison, drafter: str) -> str:
    plain, drafted = found.summary(PLAIN), found.summary(drafting.AUTO)
    return (
        f"of {_TOKENS} tokens: {plain['tokens_per_second']:.1f} tokens/s plain,"
        f" {drafted['tokens_per_second']:.1f} with {drafter}, {drafted['speedup']:.2f}x;"
        f" {drafted['identical']} of {drafted['prompts']} texts equal"
    )


def _heat(before: Strain, after: Strain) -> list[Line]:
    """Return the temperatures, and what lowered the clock or went to swap."""
    lines: list[Line] = []
    if before.celsius is not None and after.celsius is not None:
        lines.append(("heat", f"{before.celsius:.0f} °C before, {after.celsius:.0f} °C after"))
    for when, found in (("before", before), ("after", after)):
        if found.slowed_by:
            lines.append(("slowed", f"by {found.slowed_by}, {when}"))
    if after.swapped_bytes:
        lines.append(("in swap", size(after.swapped_bytes)))
    return lines


def _busy(share: float | None) -> list[Line]:
    """Return a line if other programs used the processor during the measurements."""
    if share is None or share <= BUSY:
        return []
    return [("busy", f"other programs used {share:.0%} of the processor's time")]
