"""A head on ONNX Runtime that reads the keys and values in its target's cache (Gemma 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgedec.bundle.onnx_file import read_model_file
from edgedec.decoding.session import (
    Capabilities,
    HeadModel,
    Lending,
    ModelInfo,
    OnChunk,
    Pass,
    Want,
)
from edgedec.decoding.session_base import SessionBase, check_capacity
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import BundleError, StateError
from edgedec.runtimes._ort.metadata import damaged, natural, parse
from edgedec.runtimes._ort.opening import default_threads, open_inference
from edgedec.runtimes._ort.runner import OrtRunner
from edgedec.runtimes.onnx.fusion import FusedModel
from edgedec.runtimes.onnx.graph import CARRIED, GRAPH_VERSION, GraphFacts
from edgedec.runtimes.onnx.head import OnnxHead
from edgedec.runtimes.onnx.heads import sizes

_NEXT = "carried.next"
_OUTPUTS = ("logits", "top_logits", "top_ids", _NEXT)


@dataclass(frozen=True, slots=True)
class Lent:
    """A layer of the target whose keys and values a head reads.

    Attributes:
        window: how many tokens a token sees, itself included; 0 is all.
        kv_heads, width: sizes of the cache.

    """

    layer: int
    window: int
    kv_heads: int
    width: int

    def names(self) -> list[str]:
        """Return the inputs that read it: of each head, keys and values."""
        heads = range(self.kv_heads)
        return [f"{part}_{self.layer}_{head}" for head in heads for part in ("key", "value")]

    def feeds(self, target: Lending, tokens: int) -> dict[str, FloatArray]:
        """Return those inputs at the position after so many tokens; nothing is copied."""
        parts = target.lend(self.layer)
        first = max(0, tokens - self.window + 1) if self.window else 0
        seen = [part[head, first:tokens] for head in range(self.kv_heads) for part in parts]
        return dict(zip(self.names(), seen, strict=True))

    @classmethod
    def parse(cls, found: Mapping[str, Any]) -> Lent:
        """Return an entry of the metadata; ValueError, KeyError or TypeError if it is damaged."""
        of_head = sizes(found["kv_heads"], found["width"])
        return cls(natural(found["layer"]), natural(found["window"]), *of_head)

    def check(self, target: Lending) -> None:
        """Raise BundleError for a target whose cache has no such layer."""
        for part in target.lend(self.layer):
            found = part.shape[0], part.shape[-1]
            if found != (self.kv_heads, self.width) or part.dtype != np.float32:
                raise BundleError(
                    f"the head reads {self.kv_heads} heads of {self.width} channels of layer"
                    f" {self.layer}, the target's are {found[0]} of {found[1]} in {part.dtype}:"
                    " export both again"
                )


@dataclass(frozen=True, slots=True)
class AssistantGraph:
    """A loaded graph.

    Attributes:
        inference: computes it.
        lent: what it reads of the target.
        hidden: channels of the states that it reads.

    """

    inference: Any
    facts: GraphFacts
    lent: tuple[Lent, ...]
    hidden: int


class _Zeros:
    """A target whose cache is all zeros, for measuring passes."""

    def __init__(self, lent: Sequence[Lent], capacity: int) -> None:
        self._parts = {
            one.layer: np.zeros((one.kv_heads, capacity, one.width), np.float32) for one in lent
        }
        self.length = 0

    def lend(self, layer: int) -> tuple[FloatArray, FloatArray]:
        return self._parts[layer], self._parts[layer]


class _Passes(OrtRunner):
    """Passes whose inputs lie in another session's memory, so that no binding is kept."""

    def __init__(self, inference: Any) -> None:
        super().__init__()
        self._inference = inference

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        """Return the outputs of a pass, in the order of ``_OUTPUTS``; see ``GraphPasses.run``."""
        found: list[Any] = []
        with self._busy:
            self._check_open()
            self._attempt(lambda: found.extend(self._inference.run(_OUTPUTS, feeds, self.options)))
        return found

    def _release(self) -> None:
        super()._release()
        self._inference = None


class AssistantSession(SessionBase):
    """Implements ``edgedec.decoding.session.BorrowingSession``; has no cache."""

    def __init__(self, model: OnnxAssistant, capacity: int) -> None:
        self._passes = _Passes(model.graph.inference)
        super().__init__(capacity, model.info.vocab_size, model.capabilities, self._passes.stop)
        self._model = model
        self._lent = model.graph.lent
        self._given = np.zeros((0, model.graph.hidden), np.float32)
        self._target: Lending | None = None
        # Stands for the target while passes are measured.
        self._zeros: _Zeros | None = None

    def borrow(self, target: Lending) -> None:
        """See ``BorrowingSession``; BundleError if its target has other caches."""
        for one in self._lent:
            one.check(target)
        self._target = target

    def carry(self, rows: FloatArray) -> None:
        """See ``HeadSession``."""
        self._given = rows

    def blank(self) -> None:
        """Read zeros in place of a target's states, keys and values from now on."""
        self._target = self._zeros = _Zeros(self._lent, self.capacity)

    def rehearse(self, length: int, rows: int) -> None:
        """See ``Rehearsing``; the keys and values are zeros, which take no memory."""
        target, zeros = self._target, self._zeros
        self.rollback(0)
        self.blank()
        self._length = length - rows
        try:
            self._score(TokenTree.chain([0] * rows), 0, Want.LOGITS)
        finally:
            self._length, self._target, self._zeros = 0, target, zeros

    def _prefill(self, tokens: Sequence[int], on_chunk: OnChunk | None) -> None:
        for chunk in self._chunks(tokens, on_chunk):
            self._given = self._given[len(chunk) :]

    def _score(self, tree: TokenTree, start: int, want: Want) -> Pass:
        count, target = len(tree) - start, self._target
        if target is None:
            raise StateError("forward(): expected a target to read: call borrow() first")
        if self._zeros is not None:
            self._zeros.length = self._length
            self._given = np.zeros((count, self._given.shape[1]), np.float32)
        tokens = target.length
        feeds: dict[str, Any] = {
            "input_ids": np.array([tree.tokens[start:]], np.int64),
            "position_ids": np.full((1, count), tokens, np.int64),
            CARRIED: self._given[None, :count],
        }
        for one in self._lent:
            feeds |= one.feeds(target, tokens)
        logits, top, ids, states = self._passes.run(feeds)
        return Pass(start, ids, top, logits if want & Want.LOGITS else None, states[0])

    def _keep(self, tree: TokenTree, path: Sequence[int]) -> None:
        pass

    def _copy(self, length: int) -> AssistantSession:
        other = self._model.open(self.capacity)
        if self._zeros is not None:
            other.blank()
        return other

    def _release(self) -> None:
        self._passes.close()
        self._target = self._zeros = None


class OnnxAssistant(FusedModel):
    """Implements ``edgedec.decoding.session.HeadModel``; made by ``OnnxAssistant.load``."""

    def __init__(self, file: Path, graph: AssistantGraph, info: ModelInfo) -> None:
        super().__init__(file, graph)
        self.info = info
        self.capabilities = Capabilities(
            top_k=graph.facts.top_k, taps=tuple(graph.facts.taps.values()), borrows=True
        )
        self.add_fusion(file)

    @classmethod
    def load(cls, path: Path, *, threads: int | None = None) -> OnnxAssistant:
        """Load a head that ``edgedec export --head`` wrote; see ``OnnxHead.with_fusion``."""
        stored, where = read_model_file(path), str(path)
        facts = GraphFacts.parse(stored.metadata, where)
        try:
            lent = tuple(map(Lent.parse, parse(stored.metadata, where, GRAPH_VERSION)["borrows"]))
        except (ValueError, KeyError, TypeError) as error:
            raise damaged(where) from error
        threads = threads or default_threads(stored.weight_bytes)
        inference = open_inference(path, stored, threads)
        nodes = [*inference.get_inputs(), *inference.get_outputs()]
        widths = {node.name: node.shape[-1] for node in nodes}
        hidden = widths.get(CARRIED)
        ends = dict(
            zip(_OUTPUTS, (facts.vocab_size, facts.top_k, facts.top_k, hidden), strict=True)
        )
        ends |= {name: one.width for one in lent for name in one.names()}
        ends |= {name: widths.get(name) for name in ("input_ids", "position_ids", CARRIED)}
        if widths != ends or type(hidden) is not int:
            raise BundleError(f"{where}: unexpected inputs or outputs: export it again")
        info = ModelInfo(
            name=facts.name, vocab_size=facts.vocab_size, eos_ids=facts.eos_ids,
            max_context=facts.max_context, kv_bytes_per_token=0,
            weight_bytes=stored.weight_bytes, threads=threads,
        )  # fmt: skip
        return cls(path, AssistantGraph(inference, facts, lent, hidden), info)

    def open(self, capacity: int) -> AssistantSession:
        check_capacity(capacity, self.info.max_context)
        return AssistantSession(self, capacity)

    def blank(self, capacity: int) -> AssistantSession:
        """See ``HeadModel``."""
        session = self.open(capacity)
        session.blank()
        return session


def open_head(path: Path, *, threads: int | None = None) -> HeadModel:
    """Load a head of either kind, by what its graph says; see ``OnnxHead.with_fusion``."""
    borrows = "borrows" in parse(read_model_file(path).metadata, str(path), GRAPH_VERSION)
    kind = OnnxAssistant.load if borrows else OnnxHead.with_fusion
    return kind(path, threads=threads)
