"""A loaded graph, and its facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
import onnxruntime as ort

from edgedec.errors import BundleError, RuntimeUnavailable
from edgedec.runtimes._ort.metadata import damaged, natural, parse, positive
from edgedec.runtimes.onnx import recent, recurrent
from edgedec.runtimes.onnx.cache import KvCache
from edgedec.runtimes.onnx.heads import LayerHeads, places
from edgedec.runtimes.onnx.recent import RecentRows
from edgedec.runtimes.onnx.recurrent import RecurrentRows

# Since 2, layers may keep rows of the last tokens in place of keys and values; since 3, a state,
# heads may differ by layer, and layers may read the keys and values of others.
GRAPH_VERSION = 3
_KV_TYPES: dict[str, np.dtype[Any]] = {
    "tensor(float)": np.dtype(np.float32),
    "tensor(int8)": np.dtype(np.int8),
}


@dataclass(frozen=True, slots=True)
class States:
    """What the layers without keys and values keep.

    Attributes:
        layers: their numbers, ascending.
        rows: tokens before a pass whose rows they read.
        state: shape of a layer's state; empty for none.

    """

    layers: tuple[int, ...]
    rows: int
    width: int
    state: tuple[int, ...] = ()

    @classmethod
    def parse(cls, found: Any, layers: int) -> States | None:
        """Return the states of a graph of so many layers; ValueError if they are not."""
        if found is None:
            return None
        named = tuple(map(natural, found["layers"]))
        if not named or sorted({*named}) != list(named) or len(named) >= layers:
            raise ValueError("states")
        rows, width = positive(found["rows"]), positive(found["width"])
        if named[-1] >= layers or rows > _MOST_ROWS or width > _WIDEST:
            raise ValueError("states")
        state = tuple(positive(size) for size in found.get("state", ()))
        if len(state) not in (0, 3) or prod(state) > _LARGEST:
            raise ValueError("states")
        return cls(named, rows, width, state)

    @property
    def bytes(self) -> int:
        """Bytes of a session's states, which do not grow with its text."""
        if self.state:
            return recurrent.memory(len(self.layers), self.rows, self.width, self.state)
        return recent.memory(len(self.layers), self.rows, self.width)

    def new(self) -> RecentRows:
        """Return what a session keeps, at the beginning of a text."""
        if self.state:
            return RecurrentRows(len(self.layers), self.rows, self.width, self.state)
        return RecentRows(len(self.layers), self.rows, self.width)


@dataclass(frozen=True, slots=True)
class GraphFacts:
    """Facts that the exporter wrote into the graph's metadata.

    ``taps``: outputs that are residual streams, and their layers. ``reads``: of a head, the layers
    of the target before which it reads the stream. ``padding_asked``: whether passes of a graph
    whose attention has rows of its own are to be padded whatever that costs. ``states``: of layers
    without keys and values. ``varied``: heads of each layer, where they differ.
    ``looked_up``: as of ``ModelFile``.
    """

    name: str
    layers: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    max_context: int
    eos_ids: tuple[int, ...]
    top_k: int
    block_size: int | None = None
    taps: dict[str, int] = field(default_factory=dict)
    reads: tuple[int, ...] = ()
    padding_asked: bool = True
    states: States | None = None
    varied: LayerHeads | None = None
    looked_up: int = 0

    @property
    def lookup_bytes(self) -> int:
        """Memory of a token's rows in tables that are looked up: whole pages of two tensors."""
        row = -(-self.looked_up // self.vocab_size)
        return (-(-row // _PAGE) + 2) * _PAGE if row else 0

    @property
    def attending(self) -> tuple[int, ...]:
        """Return the layers that have keys and values, ascending."""
        others = self.states.layers if self.states else ()
        return tuple(layer for layer in range(self.layers) if layer not in others)

    def check_attends(self, where: str, what: str) -> None:
        """Raise RuntimeUnavailable for a graph whose layers do not all attend in one way."""
        if self.varied is not None:
            raise RuntimeUnavailable(
                f"{where}: {what} runs layers of one kind, and the heads of this model differ by"
                " layer: leave it out"
            )
        if self.states is not None:
            raise RuntimeUnavailable(
                f"{where}: {what} runs attention only, and layers of this model have something"
                " else in its place: leave it out"
            )

    @classmethod
    def parse(cls, metadata: dict[str, str], where: str) -> GraphFacts:
        """Read the metadata.

        Raises:
            BundleError: not written by this exporter, or by a newer one.

        """
        found = parse(metadata, where, GRAPH_VERSION)
        try:
            sizes = {key: positive(found[key]) for key in _SIZES}
            eos_ids = tuple(int(token) for token in found["eos_ids"])
            block = found.get("block_size")
            block = None if block is None else positive(block)
            return cls(
                name=str(found["name"]), eos_ids=eos_ids, block_size=block, taps=_taps(found),
                reads=tuple(int(tap) for tap in found.get("reads", ())),
                padding_asked="padding" not in found,
                states=States.parse(found.get("states"), sizes["layers"]),
                varied=LayerHeads.parse(found.get("varied"), sizes["layers"]),
                looked_up=natural(found.get("looked_up", 0)), **sizes,
            )  # fmt: skip
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise damaged(where) from error


def _taps(found: dict[str, Any]) -> dict[str, int]:
    """Return the outputs that are residual streams, ascending by their layer."""
    stated = {str(name): int(layer) for name, layer in found.get("taps", {}).items()}
    taps = dict(sorted(stated.items(), key=lambda one: one[1]))
    if len(set(taps.values())) != len(taps) or not all(
        0 <= layer <= int(found["layers"]) for layer in taps.values()
    ):
        raise ValueError("taps")
    return taps


_SIZES = ("layers", "kv_heads", "head_dim", "vocab_size", "max_context", "top_k")


@dataclass(frozen=True, slots=True)
class Graph:
    """An inference session and the facts of its graph; shared by all sessions of a model.

    Attributes:
        inference: computes the graph.
        kv_dtype, kv_width: type and last dimension of the cache.
        own_rows: whether attention computes the rows given by ``attention_rows``, so that it can be
            padded without the rest of the graph.
        hidden: width of a residual stream, if the graph shows any.

    """

    inference: Any
    facts: GraphFacts
    kv_dtype: np.dtype[Any]
    kv_width: int
    own_rows: bool = False
    hidden: int = 0

    @classmethod
    def of(cls, inference: ort.InferenceSession, facts: GraphFacts, where: str) -> Graph:
        """Check that inputs and outputs follow the contract, and read the cache's type.

        Raises:
            BundleError: they do not.

        """
        nodes = [*inference.get_inputs(), *inference.get_outputs()]
        shapes = {node.name: node.shape for node in nodes}
        caches = [
            f"{time}_{part}_{layer}"
            for time in ("past", "present")
            for part in ("key", "value")
            for layer in facts.attending
        ]
        own_rows = set(_OWN_ROWS) <= set(shapes)
        inputs = (*_INPUTS, *_OWN_ROWS) if own_rows else _INPUTS
        inputs = (*inputs, CARRIED) if facts.reads else inputs
        rows = _state_shapes(facts.states)
        if set(shapes) - set(facts.taps) != {*inputs, *_OUTPUTS, *caches, *rows}:
            raise BundleError(f"{where}: unexpected inputs or outputs: export it again")
        ends = [shapes[name][-1] for name in _OUTPUTS]
        misfit = any(shapes[name][-len(shape) :] != shape for name, shape in rows.items())
        ends_misfit = ends != [facts.vocab_size, facts.top_k, facts.top_k]
        if ends_misfit or misfit or _misfits(shapes, facts):
            raise BundleError(f"{where}: its metadata does not fit its graph: export it again")
        if not set(facts.taps) <= set(shapes):
            # Where weights are streamed, a stream may only pass from one block to the next.
            facts = replace(facts, taps={})
        widths = {shapes[name][-1] for name in facts.taps}
        if facts.taps and (len(widths) != 1 or not all(type(width) is int for width in widths)):
            raise BundleError(f"{where}: its states have no common width: export it again")
        kinds = {node.type for node in nodes if node.name in caches}
        kind, width = kinds.pop(), shapes[caches[0]][-1]
        if kinds or kind not in _KV_TYPES or not isinstance(width, int):
            raise BundleError(f"{where}: caches of an unknown type {kind!r}: export it again")
        return cls(inference, facts, _KV_TYPES[kind], width, own_rows, max(widths, default=0))

    @property
    def kv_bytes_per_token(self) -> int:
        """Cache bytes of one token: all layers, keys and values."""
        _, groups = self._places()
        return sum(prod(group) for group in groups) * self.kv_dtype.itemsize

    @property
    def caches(self) -> Mapping[str, tuple[int, int]]:
        """Names of the caches, without past or present, with group and entry in a ``KvCache``."""
        found, _ = self._places()
        return found

    def _places(self) -> tuple[dict[str, tuple[int, int]], list[tuple[int, int, int]]]:
        facts, varied = self.facts, self.facts.varied
        layers, one = facts.attending, (facts.kv_heads, self.kv_width)
        if varied is None:
            return places(layers, (one,) * len(layers), layers)
        return places(layers, varied.heads, varied.lenders)

    @property
    def state_bytes(self) -> int:
        """Bytes of a session's states, which do not grow with its text."""
        return self.facts.states.bytes if self.facts.states else 0

    def new_cache(self, slots: int) -> KvCache:
        states = self.facts.states
        _, groups = self._places()
        shapes = [(entries, heads, slots, width) for entries, heads, width in groups]
        return KvCache(shapes[0], self.kv_dtype, states.new() if states else None, shapes[1:])


def _misfits(shapes: dict[str, Any], facts: GraphFacts) -> bool:
    """Return whether heads of some cache are not those of the metadata."""
    found = {
        layer: {
            (shapes[f"{time}_{part}_{layer}"][1], shapes[f"{time}_{part}_{layer}"][-1])
            for time in ("past", "present")
            for part in ("key", "value")
        }
        for layer in facts.attending
    }
    if facts.varied is not None:
        return any(heads != {facts.varied.heads[layer]} for layer, heads in found.items())
    alike = set().union(*found.values())
    return len(alike) > 1 or {heads for heads, _ in alike} != {facts.kv_heads}


def _state_shapes(states: States | None) -> dict[str, list[Any]]:
    """Return inputs and outputs of layers without keys and values, and their last dimensions."""
    if states is None:
        return {}
    read = [states.width] if states.state else [states.rows, states.width]
    found: dict[str, list[Any]] = {f"past_inputs_{layer}": read for layer in states.layers}
    found |= {f"present_inputs_{layer}": [states.width] for layer in states.layers}
    if states.state:
        times, shape = ("past", "present", "last"), list(states.state)
        found |= {f"{time}_state_{layer}": shape for time in times for layer in states.layers}
        found |= {"real_rows": [1], "returned_rows": ["k"]}
    return found


_PAGE = 4096
# Beyond any known model.
_MOST_ROWS, _WIDEST, _LARGEST = 64, 1 << 18, 1 << 22
_INPUTS = (
    "input_ids",
    "position_ids",
    "attention_bias",
    "seqlens_k",
    "total_sequence_length",
    "rows",
)
# Of a head: the states that it reads with its tokens.
CARRIED = "carried"
_OWN_ROWS = ("attention_rows", "computed_rows")
_OUTPUTS = ("logits", "top_logits", "top_ids")
