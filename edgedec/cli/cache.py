"""``edgedec cache``: shows and clears the user's cache."""

from __future__ import annotations

import click

from edgedec.cli import _options, _output


@click.command()
@click.option(
    "--clear", is_flag=True, help="Empty the cache; its contents are made again when needed."
)
@_options.as_json
def command(clear: bool, as_json: bool) -> None:
    """Show the files that edgedec keeps between runs, and their size.

    Plans decide how models are run (`edgedec plan MODEL --forget` removes one); profiles are
    measurements; checks record which GGUF files and tokenizers opened without harm, and how passes
    are padded; packed weights are written by `edgedec prepare MODEL`, 8.6 GB at most, of which the
    least recently used are removed first. The files are in the user's cache folder, or in
    $EDGEDEC_CACHE.

    \b
    edgedec cache
    edgedec cache --clear
    """  # fmt: skip
    from datetime import datetime

    from edgedec._support import kept

    found = kept.clear() if clear else kept.entries()
    written = [datetime.fromtimestamp(one.used) for one in found]
    if as_json:
        listed = [
            {
                "kind": one.kind,
                "path": str(one.path),
                "size_bytes": one.size_bytes,
                "written": when.isoformat(timespec="seconds"),
                "what": one.what,
            }
            for one, when in zip(found, written, strict=True)
        ]
        _output.print_json({"cleared": clear, "files": listed})
        return
    if found:
        _output.table(
            (one.kind, f"{when:%Y-%m-%d}, {_output.size(one.size_bytes)}: {one.what}")
            for one, when in zip(found, written, strict=True)
        )
    total = _output.size(sum(one.size_bytes for one in found))
    files = f"{len(found)} file{'' if len(found) == 1 else 's'}, {total}"
    click.echo(f"Removed: {files}." if clear else f"Kept: {files}.")
