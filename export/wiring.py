"""Tries neighbouring wirings of a head that agrees too rarely with its target.

The same key of a configuration means two things in two tools, and conversions lose others. No
wiring is taken silently: the better one is named, and the export ends.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from edgedec._support.files import linked
from edgedec.errors import CheckpointError
from edgedec.export.agreement import agreement
from edgedec.export.graph import DATA_FILE
from edgedec.export.heads import HeadCheckpoint
from edgedec.export.onnx import GraphOptions
from edgedec.export.onnx.heads import write_head
from edgedec.export.onnx.options import tap_name
from edgedec.models.decoder import DecoderSpec
from edgedec.models.heads import HeadSpec, neighbours

# Neighbours are tried below this share at the depth where they begin to differ, and named if they
# agree so much more often there.
DOUBTFUL, BETTER = 0.5, 0.1
_TARGET_FILE = "model.onnx"


def check(
    head: HeadCheckpoint,
    spec: HeadSpec,
    target: DecoderSpec,
    folder: Path,
    options: GraphOptions,
    texts: Sequence[Sequence[int]],
    found: Sequence[float],
) -> None:
    """Raise CheckpointError if a neighbouring wiring agrees clearly more often.

    Args:
        spec: of the head, as it was exported.
        target: the decoder whose graph is in ``folder``.
        folder: with the graphs.
        options: of the head's graphs.
        texts: as for ``agreement``.
        found: shares of equal first choices by depth, as exported.

    """
    best, named = BETTER, None
    for wiring in neighbours(spec, target.layers):
        share = found[wiring.depth - 1]
        if share >= DOUBTFUL:
            continue
        other = _agreement(head, wiring.spec, target, folder, options, texts)[wiring.depth - 1]
        if other - share > best:
            best, named = other - share, wiring
    if named is not None:
        share = found[named.depth - 1]
        deep = "" if named.depth == 1 else f" at depth {named.depth}"
        raise CheckpointError(
            f"{head.path}: the head's first choice is the target's in {share:.0%} of the"
            f" places{deep}, and in {share + best:.0%} if {named.remedy}: its config.json is most"
            " likely wrong, or of another tool; change it, or add --no-parity"
        )


def _agreement(
    head: HeadCheckpoint,
    spec: HeadSpec,
    target: DecoderSpec,
    folder: Path,
    options: GraphOptions,
    texts: Sequence[Sequence[int]],
) -> list[float]:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        scratch = Path(name)
        linked(folder / DATA_FILE, scratch / DATA_FILE)
        _show(folder / _TARGET_FILE, scratch / _TARGET_FILE, target, spec.taps)
        write_head(spec, head.tensors, head.ids, scratch, options)
        return agreement(scratch, texts)


def _show(source: Path, copy: Path, target: DecoderSpec, taps: Sequence[int]) -> None:
    """Write a copy of the target's graph that shows these streams, which are values of it."""
    model = onnx.load(source, load_external_data=False)
    facts = {entry.key: entry for entry in model.metadata_props}
    stated = json.loads(facts["edgedec"].value)
    outputs = [one for one in model.graph.output if one.name not in stated["taps"]]
    stated["taps"] = {tap_name(target, tap): tap for tap in taps}
    facts["edgedec"].value = json.dumps(stated)
    if target.layers in taps and not _has(model, tap_name(target, target.layers)):
        # They have the same rows where all logits are asked for, as the agreement does.
        ends = [f"layers.{target.layers - 1}.stream", f"layers.{target.layers - 1}.branch"]
        model.graph.node.append(helper.make_node("Add", ends, [tap_name(target, target.layers)]))
    del model.graph.output[:]
    shape = (1, "n", target.hidden)
    streams = (tap_name(target, tap) for tap in taps)
    outputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in streams]
    model.graph.output.extend(outputs)
    copy.write_bytes(model.SerializeToString())


def _has(model: onnx.ModelProto, value: str) -> bool:
    return any(value in node.output for node in model.graph.node)
