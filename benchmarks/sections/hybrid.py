"""Measures a hybrid: what its memory and its passes cost, by kind of layer.

``--target`` names its checkpoint or its bundle. Memory is compared with that of a model of the same
sizes whose layers all attend. The runtime's own profile breaks passes down, by their rows. For a
checkpoint, the loss by int4 is measured for each kind of matrix, as ``--weights auto`` does. The
section ``drafts`` measures what a head and lookup gain, ``same_texts`` whether texts stay the same.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from statistics import median

import onnx

from benchmarks.bundles import Suite, Unusable
from benchmarks.sections.limits import PASSES, profiled
from benchmarks.workloads import heldout_tokens
from edgedec.bundle import Bundle
from edgedec.compare.records import Recorder, Row
from edgedec.export import sensitivity
from edgedec.export.checkpoint import Checkpoint
from edgedec.export.quantize import PlainRounding
from edgedec.export.weighed import KeptRounding, KeptTensors
from edgedec.hardware.device import available_cores
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.text.tokenizer import Tokenizer

_TEXTS, _WIDTHS = (2048, 32768), (1, 2, 4, 8)
# Held-out texts on which int4 is measured, tokens of each, and weights that share a scale.
_READ, _LENGTH, _BLOCK = 4, 256, 32
_RECURRENCE, _GROUPED = "LinearAttention", "GroupQueryAttention"
_KINDS = ("recurrence", "recurrent", "attention", "attending", "mlp", "head", "other")


def hybrid(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare a hybrid's memory with that of attention, and break its passes down by layers."""
    bundle = suite.bundles.bundle("int4")
    file = Bundle.open(bundle).path / "target" / "model.onnx"
    rows = recorder.table(_memory(file.parent), "memory")
    threads = suite.threads or available_cores()
    kinds = kinds_of(file)
    rows += recorder.table([_pass(file, kinds, width, threads) for width in _WIDTHS], "rows")
    source = suite.bundles.source("target")
    if (source / "config.json").is_file():
        rows += recorder.table(rounded(source), "int4")
    return rows


def _memory(target: Path) -> list[Row]:
    """Return bytes of a session's states and cache, and of a cache of all layers."""
    with closing(OnnxModel.load(target, threads=1, batch_invariant=False)) as model:
        facts, info = model.graph.facts, model.info
        if facts.states is None:
            raise Unusable("needs a hybrid: give its checkpoint or bundle with --target")
        every = info.kv_bytes_per_token * facts.layers // len(facts.attending)
        return [
            {
                "tokens": tokens,
                "state_bytes": info.state_bytes,
                "cache_bytes": tokens * info.kv_bytes_per_token,
                "all_attending_bytes": tokens * every,
                "share": (info.state_bytes + tokens * info.kv_bytes_per_token) / (tokens * every),
            }
            for tokens in _TEXTS
        ]


def rounded(folder: Path) -> list[Row]:
    """Return what int4 costs the matrices of each role, to nearest and each by itself."""
    checkpoint = Checkpoint.open(folder)
    spec, tensors = checkpoint.spec, checkpoint.tensors
    tokens = heldout_tokens(Tokenizer.load(checkpoint.texts), _READ * _LENGTH)
    texts = [tokens[at : at + _LENGTH] for at in range(0, len(tokens), _LENGTH)]
    with tempfile.TemporaryDirectory() as scratch:
        coarse = KeptTensors(tensors, KeptRounding(PlainRounding(), Path(scratch)), _BLOCK)
        units = sensitivity.measure(spec, tensors, texts, coarse, lambda done, total: None)
    places = {
        spec.name(role, layer): (role, spec.mixer(layer) is None)
        for layer in range(spec.layers)
        for role in (*spec.mixer_matrices(layer), "gate", "up", "down")
    }
    found: dict[tuple[str, str], list[sensitivity.Unit]] = {}
    for unit in units:
        role, attends = places.get(unit.names[0], ("head", True))
        kind = "attending" if attends else "recurrent"
        found.setdefault(("all" if role == "head" else kind, role), []).append(unit)
    return [
        {
            "layers": kind,
            "role": role,
            "weights": sum(unit.numbers for unit in units),
            "kl_nats": sum(unit.loss for unit in units),
        }
        for (kind, role), units in sorted(found.items())
    ]


def kinds_of(file: Path) -> dict[str, str]:
    """Return the kind of each node of a graph that belongs to a layer, or to the LM head."""
    nodes = onnx.load(file, load_external_data=False).graph.node
    recurrent = {_layer(node.name) for node in nodes if node.op_type == _RECURRENCE}
    found, fed = {}, set[str]()
    for node in nodes:
        layer = _layer(node.name)
        if not layer:
            found[node.name] = "head" if "logits" in node.name else "other"
            continue
        if node.name == f"{layer}.mlp_norm":
            fed.add(layer)
        own = {_RECURRENCE: "recurrence", _GROUPED: "attention"}.get(node.op_type)
        mixer = "recurrent" if layer in recurrent else "attending"
        found[node.name] = "mlp" if layer in fed else own or mixer
    return found


def _layer(name: str) -> str:
    first, _, rest = name.partition(".")
    number = rest.partition(".")[0]
    return f"layers.{number}" if first == "layers" and number.isdigit() else ""


def _pass(file: Path, kinds: Mapping[str, str], width: int, threads: int) -> Row:
    """Return the milliseconds of a pass over so many rows, and of its parts."""
    passes: list[dict[str, float]] = []
    spent = dict.fromkeys(_KINDS, 0.0)
    for event in profiled(file, width, threads):
        if event["name"] == "model_run":
            passes.append({"pass_ms": event["dur"] / 1000, **spent})
            spent = dict.fromkeys(_KINDS, 0.0)
        elif event["cat"] == "Node" and event["name"].endswith("_kernel_time"):
            node = event["name"].removesuffix("_kernel_time")
            spent[kinds.get(node, "other")] += event["dur"] / 1000
    last = passes[-PASSES // 2 :]
    return {"rows": width, **{name: median(one[name] for one in last) for name in last[0]}}
