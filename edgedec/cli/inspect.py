"""``edgedec inspect``: shows the contents of a bundle or a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from edgedec._support.fields import one_line
from edgedec._support.model_path import is_gguf
from edgedec.cli import _help, _library, _model, _options, _output
from edgedec.cli._output import figures, size, table
from edgedec.errors import InputError, RuntimeUnavailable
from edgedec.generation.own_sampling import described, sampling_of
from edgedec.runtimes import registry

if TYPE_CHECKING:
    from edgedec.bundle import Bundle, Role
    from edgedec.gguf import GgufHeader


@click.command(cls=_help.GroupedCommand)
@_model.model
@click.option("--quick", is_flag=True, help="Do not hash the large files.")
@click.option(
    "--for", "for_system", type=click.Choice(["android"]),
    help="Say instead what would not run there, a line for each; the exit code is 1 if anything "
    "would not.",
)  # fmt: skip
@_options.as_json
def command(bundle: str, quick: bool, for_system: str | None, as_json: bool) -> None:
    """Show the contents of MODEL: a bundle or a GGUF file.

    MODEL is what `edgedec run` takes; of a checkpoint's folder it shows the bundle that is made of
    it. Every file of a bundle is checked against the manifest; files that it does not list are
    named. Only the header of a GGUF file is read.

    \b
    edgedec inspect demo
    edgedec inspect ./my-bundle --json
    edgedec inspect ./my-bundle --for android
    edgedec inspect model.gguf
    """
    from edgedec.bundle import Bundle
    from edgedec.bundle.chat import Chat

    bundle = _library.path(bundle)
    if is_gguf(bundle):
        if for_system is not None:
            raise InputError(f"{bundle}: --for {for_system} expects a bundle, found a GGUF file")
        _gguf(bundle, as_json)
        return
    opened = Bundle.open(bundle, verify=not quick)
    if for_system is not None:
        _android(opened, as_json)
    elif as_json:
        facts = {"path": str(opened.path), "size_bytes": opened.size_bytes, "hashed": not quick}
        chat = Chat.of(opened)
        facts["chat"] = {"template": chat.template, "pieces": chat.pieces is not None}
        _output.print_json({**facts, "unlisted": opened.unlisted, "manifest": opened.manifest})
    else:
        _print(opened, quick)


def _android(bundle: Bundle, as_json: bool) -> None:
    """Print what would not run on Android; exit with code 1 if there is anything."""
    from edgedec.bundle.android import ONNX_RUNTIME, fitness

    found = fitness(bundle)
    if as_json:
        facts = {"path": str(bundle.path), "onnxruntime": ONNX_RUNTIME}
        _output.print_json({**facts, "problems": found.problems, "needs": found.needs})
    elif found.problems:
        for line in found.problems:
            click.echo(line)
    else:
        needs = "".join(f"; {line}" for line in found.needs)
        click.echo(f"runs on Android with ONNX Runtime {ONNX_RUNTIME}{needs}")
    if found.problems:
        raise click.exceptions.Exit(1)


def _gguf(path: str, as_json: bool) -> None:
    from edgedec.gguf import GgufHeader, describe
    from edgedec.gguf.describe import as_json as facts
    from edgedec.gguf.sampling import stated_sampling

    header = GgufHeader.read(path)
    if as_json:
        _output.print_json(facts(header))
    else:
        sampling = _sampling(stated_sampling(header.metadata))
        _output.table([*describe(header), *sampling, *_as_source(header)])


def _as_source(header: GgufHeader) -> list[tuple[str, str]]:
    """Return a row that says whether a GGUF file can be exported; none without that extra."""
    from edgedec.export import reads_back

    try:
        known = reads_back(header.architecture)
    except RuntimeUnavailable:
        return []
    return [("export", "to onnx and coreml" if known else "not of this architecture")]


def _print(bundle: Bundle, quick: bool) -> None:
    roles = filter(None, (*bundle.roles, bundle.head))
    rows = [
        ("bundle", str(bundle.path)),
        ("size", f"{size(bundle.size_bytes)} in {len(bundle.files)} files, "
                 + ("small ones as the manifest says" if quick else "all as the manifest says")),
        *_unlisted(bundle),
        *(row for role in roles for row in _role(bundle, role)),
        *_sampling(bundle.generation),
    ]  # fmt: skip
    table(rows)


def _sampling(stated: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a row with the sampling that the model asks for in its answers, if it does."""
    own = sampling_of(stated)
    return [] if own is None else [("answers", described(own))]


def _unlisted(bundle: Bundle) -> list[tuple[str, str]]:
    """Return a row for files in the folder that are not part of the bundle."""
    names = [one_line(name) for name in bundle.unlisted]
    if not names:
        return []
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return [("not listed", f"{shown}: the manifest does not list them, and nothing reads them")]


def _role(bundle: Bundle, role: Role) -> list[tuple[str, str]]:
    from edgedec.bundle.chat import Chat

    dims = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in role.dims.items())
    licence = f"licence {role.licence or 'unstated'}"
    rows = [
        (role.role, f"{role.architecture} from {role.source}, {licence}"),
        ("", dims),
        ("", f"tokenizer sha256 {role.tokenizer_hash[:16]}"),
    ]
    if role.role == "target":
        rows.append(("", Chat.of(bundle).describe()))
    for variant in role.variants.values():
        stored = bundle.stored_bytes(role, variant.format)
        kind = f"{variant.format}, weights {variant.weights}, KV {variant.kv}, {size(stored)}"
        if variant.draft_vocab is not None:
            kind += f", drafts {variant.draft_vocab} tokens"
        rows.append(("", kind))
        lines = registry.describe(variant.format, variant.path)
        rows.extend(("", one_line(line)) for line in lines)
        raw = bundle.manifest["roles"][role.role]["variants"][variant.format]
        notes = raw.get("notes")
        for note in notes if isinstance(notes, list) else ():
            rows.append(("", one_line(str(note))))
        parity = raw.get("parity")
        if isinstance(parity, dict) and parity:
            rows.append(("", f"parity: {figures(parity)}"))
    return rows
