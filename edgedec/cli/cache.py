"""``edgedec cache``: what is kept between runs."""

from __future__ import annotations

import click

from edgedec.cli import _options


@click.command()
@click.option(
    "--clear", is_flag=True, help="Remove all of it; it will be measured, checked and packed again."
)
@_options.as_json
def command(clear: bool, as_json: bool) -> None:
    """Show what edgedec keeps between runs, and how large it is.

    Plans decide how models are run from now on (`edgedec plan MODEL --forget` removes one);
    profiles are measurements; checks say which GGUF files and tokenizers opened without
    harm, and how passes are padded; packed weights are what `edgedec prepare MODEL` wrote,
    8.6 GB at most, of which the least recently used leave first. They are in the user's cache
    folder, or in $EDGEDEC_CACHE.

    \b
    edgedec cache
    edgedec cache --clear
    """  # fmt: skip
    from edgedec.cli import _output
    from edgedec.planning import cache

    found = cache.clear() if clear else cache.kept()
    if as_json:
        listed = [
            {
                "kind": one.kind,
                "path": str(one.path),
                "size_bytes": one.size_bytes,
                "written": one.written.isoformat(timespec="seconds"),
                "what": one.what,
            }
            for one in found
        ]
        _output.print_json({"cleared": clear, "files": listed})
        return
    if found:
        _output.table(
            (one.kind, f"{one.written:%Y-%m-%d}, {_output.size(one.size_bytes)}: {one.what}")
            for one in found
        )
    total = _output.size(sum(one.size_bytes for one in found))
    files = f"{len(found)} file{'' if len(found) == 1 else 's'}, {total}"
    click.echo(f"Removed: {files}." if clear else f"Kept: {files}.")
