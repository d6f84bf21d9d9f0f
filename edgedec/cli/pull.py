"""``edgedec pull``: adds a model to the library."""

from __future__ import annotations

from typing import Any

import click

from edgedec.cli import _library, _options, _output, _partner
from edgedec.cli._flags import flags
from edgedec.errors import InputError
from edgedec.records.function_options import PULL


@click.command()
@click.argument("model", type=_library.MODEL)
@_options.options([*_partner.OPTIONS, *flags(PULL)])
@_options.as_json
def command(model: str, as_json: bool, **chosen: Any) -> None:
    """Add MODEL to the library, to use it by its name.

    MODEL is a name on a hub, such as org/name, org/name@revision or, for one of a repository's GGUF
    files or ONNX models, org/name:Q4_K_M or org/name:q4; or a Hugging Face folder, or one with an
    ONNX model; or, with --format onnx, a GGUF file. From a hub's repository only the necessary
    files are downloaded (extra `hub`): configuration, tokenizer, and safetensors, one GGUF or one
    ONNX model, nothing that could be executed. The revision's commit, the licence and each file's
    sha256 are printed and recorded, and files that do not match the hub's hash are removed. An
    interrupted download is resumed. For gated models use `hf auth login`; edgedec stores no token.
    Safetensors are converted to a bundle as by `edgedec run`; ONNX models are tried, and used as
    they are.

    The library is in the user's data folder, or in $EDGEDEC_LIBRARY. A model that is there in this
    form is not made again, unless the hub has a newer revision. The same files under two names are
    two models, which share what is stored.

    \b
    edgedec pull Qwen/Qwen3-0.6B
    edgedec pull Qwen/Qwen3-0.6B-GGUF:Q8_0
    edgedec pull onnx-community/Qwen3-0.6B-ONNX:q4
    edgedec pull ./Qwen3-0.6B --name small
    edgedec pull ./Qwen3-0.6B --calibrated
    edgedec pull ./Qwen3-0.6B --weights int8
    edgedec pull ./model-q8_0.gguf --format onnx --weights int8
    """  # fmt: skip
    from edgedec.library.records import as_json as facts

    found = _partner.located(model, chosen, _library.query(chosen, refresh=True)).model
    if found is None:
        raise InputError(f"{model} needs no library: use it as `edgedec run {model}`")
    if as_json:
        _output.print_json(facts(found))
    else:
        click.echo(
            f"{found.name}  {found.id}  {found.record.form}  {_output.size(found.size_bytes)}"
        )
        _library.suggest(found.name, found.path)
