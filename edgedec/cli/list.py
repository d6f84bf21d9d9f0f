"""``edgedec list``: lists the models of the library."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from edgedec._support.fields import printable
from edgedec.cli import _options, _output, _terminal

if TYPE_CHECKING:
    from edgedec.library.records import Model

_HEADS = ("name", "id", "weights", "parameters", "size")


@click.command()
@_options.as_json
def command(as_json: bool) -> None:
    """List the models of the library.

    Sizes are those of each model's files; files that several models share count once in the total,
    which also includes downloaded checkpoints. The library is in the user's data folder, or in
    $EDGEDEC_LIBRARY.

    \b
    edgedec list
    edgedec list --json
    """  # fmt: skip
    from edgedec.library import Library
    from edgedec.library.records import as_json as facts

    library = Library()
    models = library.models()
    if as_json:
        listed = [facts(model) for model in models]
        where = {"folder": str(library.folder), "size_bytes": library.size_bytes()}
        _output.print_json({**where, "models": listed})
        return
    if models:
        _terminal.columns([_HEADS, *(_row(model) for model in models)])
    count = f"{len(models)} model{'' if len(models) == 1 else 's'}"
    click.echo(f"{count}, {_output.size(library.size_bytes())} in {library.folder}")


def _row(model: Model) -> tuple[str, ...]:
    from edgedec.cli._output import count, size

    name = printable(model.name)
    form = model.record.form.weights if model.record.kind == "gguf" else str(model.record.form)
    return name, model.id, form, count(model.record.parameters), size(model.size_bytes)
