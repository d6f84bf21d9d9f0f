"""``python -m benchmarks.report.submissions DIR``: a page of ``edgedec bench --submit``'s files."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import click

from benchmarks.report.page import template
from edgedec._support.atomic import replacing
from edgedec._version import __version__
from edgedec.compare.submission import RULES, read, remarks
from edgedec.errors import EdgedecError, InputError


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    default="submissions.html",
    show_default=True,
    help="The page.",
)
def main(folder: Path, html: Path) -> None:
    """Draw the table of all submissions in a folder; those that break a rule are named instead."""
    try:
        if not html.parent.is_dir():
            raise InputError(f"--html {html}: the folder {html.parent} is missing: make it first")
        files = sorted(folder.glob("*.json"))
        if not files:
            raise InputError(f"{folder} has no *.json, as `edgedec bench --submit` writes")
        with replacing(html) as stream:
            stream.write(page(files).encode("utf-8", "replace"))
    except EdgedecError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    click.echo(f"page in {html}")


def page(files: Iterable[Path]) -> str:
    """Return the page of these files, each of which is untrusted."""
    found, refused = [], []
    for file in files:
        try:
            found.append(read(file))
        except InputError as error:
            refused.append(str(error))
    return template("submissions.html").render(
        found=found, refused=refused, rules=RULES, remarks=remarks, version=__version__
    )


if __name__ == "__main__":
    main()
