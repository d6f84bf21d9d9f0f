"""``edgedec plan``: where to run what, decided from measurements."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgedec.cli import _options

if TYPE_CHECKING:
    from edgedec.placement.plan import Candidate, Decision

_SHOWN = 12
_HEADS = ("plan", "tokens/s", "vs plain", "first token", "memory")


@click.command()
@click.argument("bundle", default="demo")
@click.option(
    "--draft",
    "draft_model",
    metavar="FILE.gguf",
    type=click.Path(exists=True, path_type=Path),
    help="A draft model's file, or a bundle whose target drafts; default: the draft "
    "that comes with BUNDLE.",
)
@click.option(
    "--memory",
    type=_options.size,
    metavar="SIZE",
    help="For weights, caches and buffers together, as 2GB; default: all there is.",
)
@click.option(
    "--max-context",
    type=click.IntRange(min=2),
    metavar="TOKENS",
    help="Tokens a text may have, its prompt included; default: the model's limit, or "
    "what the memory holds.",
)
@click.option(
    "--temperature",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="Texts are sampled with; 0 is greedy.",
)
@click.option(
    "--prompt-tokens",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    metavar="N",
    help="Tokens of a typical prompt.",
)
@click.option(
    "--new-tokens",
    type=click.IntRange(min=1),
    default=128,
    show_default=True,
    metavar="N",
    help="Tokens of a typical text.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.json",
    help="Write the plan to a file, for `edgedec generate --plan`.",
)
@click.option("--refresh", is_flag=True, help="Measure anew.")
@click.option("--all", "show_all", is_flag=True, help="Show every plan that was weighed.")
@_options.as_json
def command(
    bundle: str,
    draft_model: Path | None,
    memory: int | None,
    max_context: int | None,
    temperature: float,
    prompt_tokens: int,
    new_tokens: int,
    out: Path | None,
    refresh: bool,
    show_all: bool,
    as_json: bool,
) -> None:
    """Decide where BUNDLE's models run, who drafts and how much.

    Measures every place first, as `edgedec profile` does, where that was not done yet. Shows
    what each plan is predicted to give, the choice, and why. From then on these models are run
    here as decided, unless told otherwise (--plan none).

    \b
    edgedec plan demo
    edgedec plan ./my-bundle --memory 2GB --max-context 4096 --out plan.json
    edgedec plan large.gguf --draft small.gguf --temperature 0.8 --json
    """  # fmt: skip
    from edgedec import planning, remembered
    from edgedec.cli import _output
    from edgedec.pair import every_format
    from edgedec.placement.stored import to_json
    from edgedec.placement.workload import Workload
    from edgedec.profiling import ProfileOptions
    from edgedec.profiling.identity import identity

    workload = Workload(prompt_tokens, new_tokens, temperature, max_context)
    with _output.stages() as on_progress:
        decision = planning.plan(
            bundle,
            workload,
            memory=memory,
            options=ProfileOptions(draft_model=draft_model, refresh=refresh),
            on_progress=on_progress,
        )
    if out is not None:
        planning.save(decision, out)
    remembered.remember(decision, identity(bundle, draft_model, every_format(bundle, draft_model)))
    if as_json:
        _output.print_json(to_json(decision))
    else:
        _print(decision, show_all=show_all)


def _print(decision: Decision, *, show_all: bool) -> None:
    usable = [one for one in decision.candidates if not one.refused]
    refused = [one for one in decision.candidates if one.refused]
    plain = max((one.prediction.tokens_per_second for one in usable if one.plan.plain), default=0.0)
    shown = usable if show_all else _worth_showing(usable, decision.chosen)
    _columns([_HEADS, *(_row(one, plain, one == decision.chosen) for one in shown)])
    by_reason: dict[str, list[str]] = {}
    for one in refused:
        by_reason.setdefault(one.refused, []).append(one.plan.label)
    for reason, labels in by_reason.items():
        named = labels if show_all else labels[:1]
        others = f" and {len(labels) - len(named)} more" if len(named) < len(labels) else ""
        click.echo(f"refused: {', '.join(named)}{others}: {reason}")
    if len(shown) < len(usable):
        click.echo(f"{len(usable) - len(shown)} more with --all")
    click.echo()
    for reason in decision.reasons:
        click.echo(reason)
    if decision.fallbacks:
        click.echo(f"Should that fail: {'; then '.join(one.label for one in decision.fallbacks)}.")


def _worth_showing(usable: list[Candidate], chosen: Candidate) -> list[Candidate]:
    """The best few, what is chosen, and plain decoding wherever it runs."""
    kept = (
        one for place, one in enumerate(usable) if place < _SHOWN or one == chosen or one.plan.plain
    )
    return list(kept)


def _row(one: Candidate, plain: float, chosen: bool) -> tuple[str, ...]:
    from edgedec.cli._output import size

    found = one.prediction
    return (
        ("* " if chosen else "  ") + one.plan.label,
        f"{found.tokens_per_second:.0f}",
        f"{found.tokens_per_second / plain:.2f}" if plain else "",
        f"{found.ttft_s * 1000:.0f} ms",
        size(found.peak_bytes),
    )


def _columns(rows: Iterable[tuple[str, ...]]) -> None:
    """The first column to the left, the others to the right."""
    listed = list(rows)
    widths = [max(map(len, column)) for column in zip(*listed, strict=True)]
    for row in listed:
        first, *others = (
            text.rjust(width) if place else text.ljust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        click.echo("  ".join((first, *others)).rstrip())
