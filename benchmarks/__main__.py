"""``python -m benchmarks``: the suite behind ``make bench``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from benchmarks.bundles import Bundles, Suite
from benchmarks.suite import SECTIONS, run
from edgedec.errors import EdgedecError


@click.command()
@click.argument("sections", nargs=-1, type=click.Choice(sorted(SECTIONS)))
@click.option("--out", type=click.Path(path_type=Path), default="bench-out", show_default=True)
@click.option("--work", type=click.Path(path_type=Path), default="build/bench", show_default=True)
@click.option(
    "--checkpoints", type=click.Path(path_type=Path), default="models/demo", show_default=True
)
@click.option("--prompts", type=click.IntRange(1), default=20, show_default=True)
@click.option("--threads", type=click.IntRange(1), help="Of each model; default: all cores.")
@click.option(
    "--gguf",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Files for rows_by_width; default: the target that ships.",
)
def main(sections: tuple[str, ...], work: Path, checkpoints: Path, **settings: Any) -> None:
    """Run the benchmark suite: all sections, or the named ones."""
    suite = Suite(Bundles(checkpoints, work), **settings)
    try:
        for name in sections or SECTIONS:
            click.echo(f"== {name}: {SECTIONS[name].__doc__}")
            for row in run(suite, name):
                click.echo("   " + "  ".join(f"{key} {_short(v)}" for key, v in row.items()))
    except EdgedecError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    click.echo(f"raw records in {suite.out}")


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
