"""A loaded graph with its cache as inputs and outputs, and its facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime as ort

from edgedec.errors import BundleError
from edgedec.runtimes._ort.metadata import damaged, parse, positive
from edgedec.runtimes.optimum.cache import Group, PastCache

GRAPH_VERSION = 1
_KV_TYPES: dict[str, np.dtype[Any]] = {
    "tensor(float)": np.dtype(np.float32),
    "tensor(float16)": np.dtype(np.float16),
}
_PAST, _PRESENT = "past_key_values.", "present."
POSITIONS = "position_ids"
_INPUTS = ("input_ids", "attention_mask")


@dataclass(frozen=True, slots=True)
class PastGraphFacts:
    """Facts that the exporter wrote into the graph's metadata."""

    name: str
    vocab_size: int
    max_context: int
    eos_ids: tuple[int, ...]

    @classmethod
    def parse(cls, metadata: Mapping[str, str], where: str) -> PastGraphFacts:
        """Read the metadata; BundleError unless this exporter, or an older one, wrote it."""
        found = parse(metadata, where, GRAPH_VERSION)
        if found.get("style") != "optimum":
            raise BundleError(f"{where}: not a graph of the format optimum: export it again")
        try:
            return cls(
                name=str(found["name"]),
                vocab_size=positive(found["vocab_size"]),
                max_context=positive(found["max_context"]),
                eos_ids=tuple(int(token) for token in found["eos_ids"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise damaged(where) from error


@dataclass(frozen=True, slots=True)
class PastGraph:
    """An inference session and the facts of its graph; shared by all sessions of a model.

    Attributes:
        inference: its ONNX Runtime session.
        facts: from its metadata.
        groups: its caches.
        kv_dtype: of their numbers.
        positions: it takes the positions of tokens; else it counts the cache.

    """

    inference: ort.InferenceSession
    facts: PastGraphFacts
    groups: tuple[Group, ...]
    kv_dtype: np.dtype[Any]
    positions: bool

    @classmethod
    def of(cls, inference: ort.InferenceSession, facts: PastGraphFacts, where: str) -> PastGraph:
        """Read the caches' shapes; BundleError unless inputs and outputs are of this style."""
        inputs = {node.name: node for node in inference.get_inputs()}
        outputs = {node.name: node for node in inference.get_outputs()}
        names = [name.removeprefix(_PAST) for name in inputs if name.startswith(_PAST)]
        needed = {*_INPUTS, *(_PAST + name for name in names)}
        positions = POSITIONS in inputs
        if (
            not names
            or inputs.keys() - {POSITIONS} != needed
            or outputs.keys() != {"logits", *(_PRESENT + name for name in names)}
        ):
            raise BundleError(f"{where}: unexpected inputs or outputs: export it again")
        if outputs["logits"].shape[2:] != [facts.vocab_size]:
            raise BundleError(f"{where}: its metadata is not of its graph: export it again")
        pasts = [inputs[_PAST + name] for name in names]
        kinds = {node.type for node in (*pasts, *(outputs[_PRESENT + name] for name in names))}
        kind = kinds.pop()
        if kinds or kind not in _KV_TYPES or outputs["logits"].type != "tensor(float)":
            raise BundleError(f"{where}: caches or logits of another type: export it again")
        groups = _groups(names, (node.shape for node in pasts), where)
        return cls(inference, facts, groups, _KV_TYPES[kind], positions)

    @property
    def numbers(self) -> int:
        """Numbers that the caches keep of a token."""
        return sum(group.numbers for group in self.groups)

    @property
    def names(self) -> list[tuple[str, str, Group]]:
        """Return input, output and group of each entry, in the order of ``PastCache.addresses``."""
        return [
            (_PAST + name, _PRESENT + name, group) for group in self.groups for name in group.names
        ]

    def new_cache(self, slots: int) -> PastCache:
        """Return an empty cache."""
        return PastCache(self.groups, slots, self.kv_dtype)


def _groups(names: list[str], shapes: Iterable[list[Any]], where: str) -> tuple[Group, ...]:
    """Group the caches of equal shape ``[batch, kv_heads, past, width]``."""
    found: dict[tuple[int, int], list[str]] = {}
    for name, shape in zip(names, shapes, strict=True):
        sizes = [shape[axis] for axis in (1, 3)] if len(shape) == 4 else []
        if not sizes or not all(type(size) is int and size > 0 for size in sizes):
            raise BundleError(f"{where}: the cache {name} has the shape {shape}: export it again")
        found.setdefault((sizes[0], sizes[1]), []).append(name)
    return tuple(Group(tuple(group), *sizes) for sizes, group in found.items())
