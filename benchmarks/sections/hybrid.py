"""Measures a hybrid: what its memory and its passes cost, by kind of layer.

``--target`` names its checkpoint or its bundle. Memory is compared with that of a model of the same
sizes whose layers all attend; passes by rows are broken down by the runtime's own profile. What a
head and lookup gain on it says the section ``drafts``, whether texts stay plain decoding's
``same_texts``.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from statistics import median

import onnx

from benchmarks.bundles import Suite, Unusable
from benchmarks.sections.limits import PASSES, profiled
from edgedec.bundle import Bundle
from edgedec.compare.records import Recorder, Row
from edgedec.hardware.device import available_cores
from edgedec.runtimes.onnx.model import OnnxModel

_TEXTS, _WIDTHS = (2048, 32768), (1, 2, 4, 8)
_RECURRENCE, _GROUPED = "LinearAttention", "GroupQueryAttention"
_KINDS = ("recurrence", "recurrent", "attention", "attending", "mlp", "head", "other")


def hybrid(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare a hybrid's memory with that of attention, and break its passes down by layers."""
    bundle = suite.bundles.bundle("int4")
    file = Bundle.open(bundle).path / "target" / "model.onnx"
    rows = recorder.table(_memory(file.parent), "memory")
    threads = suite.threads or available_cores()
    kinds = kinds_of(file)
    return rows + recorder.table([_pass(file, kinds, width, threads) for width in _WIDTHS], "rows")


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
