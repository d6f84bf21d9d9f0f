"""Tries neighbouring wirings of a head that agrees too rarely with its target.

The same key of a configuration means two things in two tools, and conversions lose others. No
wiring is taken silently: the better one is named, and the export ends.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from edgedec.errors import CheckpointError
from edgedec.export.agreement import agreement
from edgedec.export.graph import DATA_FILE
from edgedec.export.heads import HeadCheckpoint
from edgedec.export.onnx import GraphOptions
from edgedec.export.onnx.heads import write_head
from edgedec.export.onnx.options import tap_name
from edgedec.models.decoder import DecoderSpec
from edgedec.models.heads import HeadSpec

# Neighbours are tried below this share at depth 1, and named if they agree so much more often.
DOUBTFUL, BETTER = 0.5, 0.1
_TARGET_FILE = "model.onnx"


@dataclass(frozen=True, slots=True)
class Wiring:
    """A head with one thing changed: what, and how it would be said in its configuration."""

    spec: HeadSpec
    remedy: str


def check(
    head: HeadCheckpoint,
    spec: HeadSpec,
    target: DecoderSpec,
    folder: Path,
    options: GraphOptions,
    texts: Sequence[Sequence[int]],
    share: float,
) -> None:
    """Raise CheckpointError if a neighbouring wiring agrees clearly more often.

    Args:
        head: the checkpoint.
        spec: of the head, as it was exported.
        target: the decoder whose graph is in ``folder``.
        folder: with the graphs.
        options: of the head's graphs.
        texts: as for ``agreement``.
        share: of equal first choices at depth 1, as exported.

    """
    if share >= DOUBTFUL:
        return
    found = [
        (_agreement(head, wiring.spec, target, folder, options, texts), wiring)
        for wiring in neighbours(spec, target.layers)
    ]
    best, wiring = max(found, key=lambda one: one[0])
    if best > share + BETTER:
        raise CheckpointError(
            f"{head.path}: the head's first choice is the target's in {share:.0%} of the places,"
            f" and in {best:.0%} if {wiring.remedy}: its config.json is most likely wrong, or of"
            " another tool; change it, or add --no-parity"
        )


def neighbours(spec: HeadSpec, layers: int) -> Iterator[Wiring]:
    """Yield the wirings that differ in one thing."""
    for shift, words in ((-1, "earlier"), (1, "later")):
        taps = tuple(tap + shift for tap in spec.taps)
        if taps[0] >= 0 and taps[-1] <= layers:
            ids = [tap - 1 for tap in taps]
            remedy = (
                f"it reads the streams one layer {words} (eagle_config with"
                f" eagle_aux_hidden_state_layer_ids {ids})"
            )
            yield Wiring(spec.changed(taps=taps), remedy)
    normed = spec.residual == "raw"
    yield Wiring(
        spec.changed(residual="normed" if normed else "raw"),
        f"norm_before_residual is {str(normed).lower()}",
    )
    normed = spec.carry == "raw"
    yield Wiring(
        spec.changed(carry="normed" if normed else "raw"), f"norm_output is {str(normed).lower()}"
    )


def _agreement(
    head: HeadCheckpoint,
    spec: HeadSpec,
    target: DecoderSpec,
    folder: Path,
    options: GraphOptions,
    texts: Sequence[Sequence[int]],
) -> float:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        scratch = Path(name)
        _linked(folder / DATA_FILE, scratch / DATA_FILE)
        _show(folder / _TARGET_FILE, scratch / _TARGET_FILE, target, spec.taps)
        write_head(spec, head.tensors, head.ids, scratch, options)
        return agreement(scratch, texts)[0]


def _show(source: Path, copy: Path, target: DecoderSpec, taps: Sequence[int]) -> None:
    """Write a copy of the target's graph that shows these streams, which are values of it."""
    model = onnx.load(source, load_external_data=False)
    facts = {entry.key: entry for entry in model.metadata_props}
    stated = json.loads(facts["edgedec"].value)
    outputs = [one for one in model.graph.output if one.name not in stated["taps"]]
    stated["taps"] = {tap_name(target, tap): tap for tap in taps}
    facts["edgedec"].value = json.dumps(stated)
    if target.layers in taps and not _has(model, tap_name(target, target.layers)):
        ends = [f"layers.{target.layers - 1}.stream", f"layers.{target.layers - 1}.branch"]
        model.graph.node.append(helper.make_node("Add", ends, [tap_name(target, target.layers)]))
    del model.graph.output[:]
    shape = (1, "n", target.hidden)
    streams = (tap_name(target, tap) for tap in taps)
    outputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in streams]
    model.graph.output.extend(outputs)
    copy.write_bytes(model.SerializeToString())


def _linked(source: Path, other: Path) -> None:
    """Give a file another name, or copy it where the file system has no links."""
    try:
        os.link(source, other)
    except OSError:
        shutil.copyfile(source, other)


def _has(model: onnx.ModelProto, value: str) -> bool:
    return any(value in node.output for node in model.graph.node)
