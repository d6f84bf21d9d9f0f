"""``edgedec prepare``: packs weights for this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from edgedec.cli import _help, _library, _model, _options, _output

if TYPE_CHECKING:
    from edgedec.records.adapter import Prepared


@click.command(cls=_help.GroupedCommand)
@_model.model
@_options.as_json
def command(bundle: str, as_json: bool) -> None:
    """Pack the weights of MODEL into a file that is memory-mapped.

    ONNX Runtime packs weights at every load, into memory of the process. Packed in advance, they
    are pages of a file in the user's cache, or in $EDGEDEC_CACHE: shared by all processes that load
    the model, and reclaimed by the system when memory is short. Results do not change by a bit. The
    file takes twice the model's space, and ONNX Runtime reads all of it at a load, so a load from a
    cold disk takes longer. Packed weights in a file stay in small pages, from which plain decoding
    is slower on Linux, where those in memory are put into huge pages. `edgedec cache` lists and
    removes the file. Models below 34 MB, and GGUF files, which are mapped as they are, need no
    preparation. MODEL is what `edgedec run` takes.

    \b
    edgedec prepare ./my-bundle
    edgedec prepare ./my-bundle --json
    """  # fmt: skip
    from edgedec.loading.prepare import prepare

    found = prepare(_library.path(bundle))
    if as_json:
        models = [
            {
                "role": one.role,
                "format": one.format,
                "what": one.prepared.what,
                "size_bytes": one.prepared.size_bytes,
                "seconds": one.prepared.seconds,
            }
            for one in found
        ]
        _output.print_json({"models": models})
        return
    _output.table((one.role, _row(one.prepared)) for one in found)


def _row(done: Prepared) -> str:
    if not done.size_bytes:
        return done.what
    return f"{done.what}: {_output.size(done.size_bytes)} in {done.seconds:.1f} s"
