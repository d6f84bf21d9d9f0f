"""``edgedec rm``: removes models from the library."""

from __future__ import annotations

from collections.abc import Sequence

import click

from edgedec.cli import _library, _options, _output


@click.command()
@click.argument("models", nargs=-1, metavar="[MODEL]...", type=_library.IN_LIBRARY)
@click.option(
    "--unused",
    is_flag=True,
    help="Remove what no model needs to run: leftovers of interrupted commands, and downloaded"
    " checkpoints that were converted to bundles.",
)
@click.option("--all", "everything", is_flag=True, help="Remove all models and downloads.")
@_options.as_json
def command(models: Sequence[str], unused: bool, everything: bool, as_json: bool) -> None:
    """Remove models from the library, with their downloads.

    MODEL is a name or an id, or its beginning; a name of several models or forms is refused, with
    their ids. Files shared with other models are kept. A process that has a model open can use it
    until it ends.

    \b
    edgedec rm Qwen3-0.6B
    edgedec rm 4be1
    edgedec rm --unused
    edgedec rm --all
    """  # fmt: skip
    from edgedec.library import Library

    if (len(models) > 0) + unused + everything != 1:
        raise click.UsageError("give one of MODEL, --unused and --all")
    library = Library()
    found = [_library.one(word) for word in models]
    removed = library.models() if everything else found
    before = library.size_bytes()
    for model in found:
        library.remove(model)
    if everything:
        library.clear()
    if unused:
        library.clean()
    freed = before - library.size_bytes()
    if as_json:
        _output.print_json({"removed": [one.id for one in removed], "freed_bytes": freed})
        return
    for one in removed:
        click.echo(f"removed {one.name} ({one.id}, {one.record.form})")
    click.echo(f"freed {_output.size(freed)}")
