"""Writes a bundle's target as a folder that onnxruntime-genai opens: graph, weights, tokenizer.

The weights are the bundle's own, and so is the graph, behind a few nodes that count the mask: that
runtime gives neither a bias nor the rows whose logits are wanted, which drafts need.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgedec._support.atomic import write_json
from edgedec._support.ready_path import GENAI
from edgedec.bundle import Bundle
from edgedec.bundle.ready_onnx import IDS, LOGITS, MASK, POSITIONS
from edgedec.errors import InputError
from edgedec.export.atomic import appearing
from edgedec.export.bundling import write_bundle
from edgedec.export.options import ExportOptions, ExportReport, Progress
from edgedec.export.source import open_source
from edgedec.text import tokenizer_files

_GRAPH = "model.onnx"
_BIAS, _TOP, _PARTS = "attention_bias", "top_logits", ("key", "value")
_ROWS = ("rows", "attention_rows", "computed_rows")
_CACHES = {"past": "past_key_values.{}.{}", "present": "present.{}.{}"}
# Texts are this long at most unless a program of that runtime says otherwise.
_MOST_TOKENS = 4096


def export(options: ExportOptions, progress: Progress) -> ExportReport:
    """Export a bundle and make a folder for onnxruntime-genai of it; see ``export_bundle``."""
    _check(options)
    open_source(options.target).spec.check_attends("genai")
    with appearing(options.out, overwrite=options.overwrite) as folder:
        made = folder / "made" / "bundle"  # whose parent is locked while it is made
        report = write_bundle(dataclasses.replace(options, out=made, mtp=False), progress)
        write(Bundle.open(made), folder)
        shutil.rmtree(made.parent)
        size = sum(file.stat().st_size for file in folder.iterdir())
    (model,) = report.models
    model = dataclasses.replace(model, files=tuple(Path(name).name for name in model.files))
    return dataclasses.replace(report, path=options.out, size_bytes=size, models=(model,))


def _check(options: ExportOptions) -> None:
    if options.formats != ("onnx",):
        asked = ", ".join(options.formats)
        raise InputError(
            f"--layout genai writes onnx, not {asked}: leave --format and --static-rows out"
        )
    for name in ("draft", "head"):
        if getattr(options, name) is not None:
            raise InputError(
                f"--layout genai writes one model: leave --{name} out, and export a draft by itself"
            )
    if options.batch_invariant:
        raise InputError(
            "--layout genai is for a program that pads no passes: leave --batch-invariant out"
        )
    if options.kv != "fp32":
        raise InputError(
            f"--layout genai keeps keys and values in fp32: leave --kv {options.kv} out"
        )


def write(bundle: Bundle, out: Path) -> None:
    """Write the target in ONNX for onnxruntime-genai.

    Args:
        bundle: its weight files are moved, since both layouts store them alike.
        out: a folder on the same disk, with nothing of these names.

    """
    variant = bundle.target.variants["onnx"]
    model = onnx.load(variant.path, load_external_data=False)
    facts = json.loads(model.metadata_props[0].value)
    _rewire(model.graph, facts["layers"])
    del model.metadata_props[:]
    onnx.save(model, out / _GRAPH)
    for name in map(Path, variant.files):
        if name.name != _GRAPH:
            shutil.move(bundle.path / name, out / name.name)
    for text in (tokenizer_files.TOKENIZER, tokenizer_files.CONFIG, tokenizer_files.TEMPLATE):
        if (bundle.target.tokenizer / text).exists():
            shutil.copyfile(bundle.target.tokenizer / text, out / text)
    write_json(out / GENAI, _config(bundle, facts), indent=1)


def _rewire(graph: onnx.GraphProto, layers: int) -> None:
    """Give a graph the inputs and outputs that onnxruntime-genai uses."""
    names = {
        f"{side}_{part}_{layer}": name.format(layer, part)
        for side, name in _CACHES.items()
        for part in _PARTS
        for layer in range(layers)
    }
    names[LOGITS] = "logits.rows"
    nodes = [node for node in graph.node if _TOP not in node.output]
    for node in nodes:
        for side in (node.input, node.output):
            side[:] = [names.get(name, name) for name in side]
        if node.op_type == "GroupQueryAttention":  # causal without a bias
            node.input[:] = ["" if name == _BIAS else name for name in node.input]
    given = [one for one in graph.input if one.name in (IDS, POSITIONS, *names)]
    caches = [one for one in graph.output if one.name in names]
    columns = next(one for one in graph.output if one.name == LOGITS).type.tensor_type.shape.dim[1]
    for value in (*given, *caches):
        value.name = names.get(value.name, value.name)
    mask, logits = (
        helper.make_tensor_value_info(MASK, TensorProto.INT64, [1, "total"]),
        helper.make_tensor_value_info(LOGITS, TensorProto.FLOAT, [1, "n", columns.dim_value]),
    )
    del graph.node[:], graph.input[:], graph.output[:]
    graph.node.extend(
        [*_counted(graph), *nodes, _node("Unsqueeze", [names[LOGITS], "at.0"], LOGITS)]
    )
    graph.input.extend([*given[:1], mask, *given[1:]])
    graph.output.extend([logits, *caches])


def _node(kind: str, inputs: list[str], out: str, **facts: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, [out], **facts)


def _counted(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Return nodes that compute a bundle's other inputs from the mask, ``[1, total]``.

    No token is masked, and the logits of every row are returned.
    """
    whole, single = np.int64, [np.array([number], np.int64) for number in (0, 1)]
    constants = {"at.0": single[0], "at.1": single[1], "one": whole(1), "zero": whole(0)}
    graph.initializer.extend(
        numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()
    )
    return [
        _node("Shape", [MASK], "mask.shape"),
        _node("Gather", ["mask.shape", "one"], "mask.total", axis=0),
        _node("Cast", ["mask.total"], "total_sequence_length", to=TensorProto.INT32),
        _node("ReduceSum", [MASK, "at.1"], "mask.sums", keepdims=0),
        _node("Sub", ["mask.sums", "one"], "mask.before"),
        _node("Cast", ["mask.before"], "seqlens_k", to=TensorProto.INT32),
        _node("Shape", [IDS], "ids.shape"),
        _node("Gather", ["ids.shape", "one"], "ids.count", axis=0),
        _node("Range", ["zero", "ids.count", "one"], "ids.rows"),
        *(_node("Identity", ["ids.rows"], name) for name in _ROWS),
        _node("Unsqueeze", ["ids.count", "at.0"], "ids.counts"),
        _node("Unsqueeze", ["mask.total", "at.0"], "mask.totals"),
        _node("Concat", ["at.1", "at.1", "ids.counts", "mask.totals"], "bias.shape", axis=0),
        _node("ConstantOfShape", ["bias.shape"], _BIAS),
    ]


def _config(bundle: Bundle, facts: dict[str, Any]) -> dict[str, Any]:
    """Return ``genai_config.json``."""
    dims, ends = bundle.target.dims, facts["eos_ids"]
    names = {
        f"{side}_{part}_names": name.format("%d", part)
        for side, name in _CACHES.items()
        for part in _PARTS
    }
    inputs = {name: text for name, text in names.items() if name.startswith("past")}
    outputs = {name: text for name, text in names.items() if name not in inputs}
    decoder = {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "filename": _GRAPH,
        "head_size": facts["head_dim"],
        "hidden_size": dims["hidden"],
        "num_attention_heads": dims["heads"],
        "num_hidden_layers": facts["layers"],
        "num_key_value_heads": facts["kv_heads"],
        "inputs": {IDS: IDS, MASK: MASK, POSITIONS: POSITIONS, **inputs},
        "outputs": {LOGITS: LOGITS, **outputs},
    }
    return {
        "model": {
            "type": "decoder",
            "bos_token_id": ends[0] if ends else 0,
            "eos_token_id": ends,
            "pad_token_id": ends[0] if ends else 0,
            "vocab_size": facts["vocab_size"],
            "context_length": facts["max_context"],
            "decoder": decoder,
        },
        "search": {
            "do_sample": False,
            **bundle.generation,
            "max_length": min(_MOST_TOKENS, facts["max_context"]),
            "past_present_share_buffer": True,
        },
    }
