"""``edgedec show``: shows one model of the library."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from edgedec.cli import _library, _options, _output
from edgedec.cli._output import count, size

if TYPE_CHECKING:
    from edgedec.library.records import Model


@click.command()
@click.argument("model", type=_library.IN_LIBRARY)
@_options.as_json
def command(model: str, as_json: bool) -> None:
    """Show a model of the library: source, licence, files, sizes.

    MODEL is a name, which shows every model and form of that name, or an id or its beginning.
    `edgedec inspect` shows the contents of any model.

    \b
    edgedec show Qwen3-0.6B
    edgedec show 4be1 --json
    """  # fmt: skip
    from edgedec.library.records import as_json as facts

    found = _library.matching(model)
    if as_json:
        _output.print_json({"models": [facts(one) for one in found]})
        return
    for index, one in enumerate(found):
        if index:
            click.echo()
        _output.table(_rows(one))


def _rows(model: Model) -> list[tuple[str, str]]:
    record, origin = model.record, model.record.origin
    revision = "" if origin.revision is None else f", revision {origin.revision}"
    rows = [
        ("name", model.name),
        ("id", model.id),
        ("model", f"{record.architecture}, {count(record.parameters)} parameters"),
        (
            "weights",
            f"{record.kind}, {record.form.weights if record.kind == 'gguf' else record.form}",
        ),
        ("licence", record.licence or "unstated"),
        ("size", size(model.size_bytes)),
        ("path", str(model.path)),
        ("added", record.made),
        ("from", f"{origin.where}{revision}, {size(origin.bytes)}"),
    ]
    if (head := record.head) is not None:
        rows.append(("head", f"{head.where}, revision {head.revision}, {size(head.bytes)}"))
    return rows + [("", f"{name}  sha256 {digest}") for name, digest in origin.files.items()]
