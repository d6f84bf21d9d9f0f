"""``edgedec card``: writes the page that a hub shows beside a bundle."""

from __future__ import annotations

from pathlib import Path

import click

from edgedec.cli import _library, _model
from edgedec.errors import InputError

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@_model.model
@click.option(
    "-o",
    "--out",
    type=_FILE,
    metavar="FILE",
    help="Write there, as README.md for a hub; default: standard output.",
)
@click.option(
    "--certificate", type=_FILE, metavar="FILE",
    help="Add the verdict of this certificate.json, which must be about the same files.",
)  # fmt: skip
def command(bundle: str, out: Path | None, certificate: Path | None) -> None:
    """Write the model card of a bundle for a hub.

    Base models, licences, sizes, divergence from the base model and how to run it, as the
    manifest has them, with the head in YAML that hubs read. Every file is hashed first.

    \b
    edgedec card demo
    edgedec card ./my-bundle --out ./my-bundle/README.md
    edgedec card ./my-bundle --certificate certificate/certificate.json
    """  # fmt: skip
    from edgedec._support.atomic import replacing
    from edgedec._support.model_path import is_gguf
    from edgedec.bundle import Bundle
    from edgedec.bundle.card import card

    path = _library.path(bundle)
    if is_gguf(path):
        raise InputError(f"{path}: expected a bundle, found a GGUF file: `edgedec export` it first")
    text = card(Bundle.open(path, verify=True), certificate)
    if out is None:
        click.echo(text, nl=False)
        return
    if not out.parent.is_dir():
        raise InputError(f"--out {out}: the folder {out.parent} is missing: make it first")
    with replacing(out) as stream:
        stream.write(text.encode("utf-8"))
