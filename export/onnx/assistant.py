"""Emits the layers of a head that reads its target's keys and values (Gemma 4).

``head.onnx`` has the inputs ``input_ids`` and ``position_ids`` [1, n], ``carried`` [1, n, hidden],
and for each key head of each layer that it reads ``key_LAYER_HEAD`` and ``value_LAYER_HEAD``
[tokens, width]: the slots of a cache are as they lie there, so none is copied. No row sees another
one: a draft's rows have one position, and the cache ends before it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edgedec.export.facts import TOP_K
from edgedec.export.flow import Flow
from edgedec.export.onnx.attention import Attention
from edgedec.export.onnx.parts import GraphParts
from edgedec.export.onnx.per_layer import PerLayerInputs
from edgedec.export.tensors import read
from edgedec.export.weights import MICROSOFT
from edgedec.models.decoder import DecoderSpec
from edgedec.models.heads.head import CENTROIDS, ENTRY, EXIT, HeadSpec

NEXT = "carried.next"


def borrowed(spec: HeadSpec) -> list[dict[str, int]]:
    """Return what a runtime lends to a head: the target's layers, with their windows and sizes."""
    found = {}
    for layer, lender in enumerate(spec.borrows):
        at = spec.layer.at(layer)
        sizes = {"kv_heads": at.kv_heads, "width": at.head_dim}
        found[lender] = {"layer": lender, "window": spec.layer.windows[layer], **sizes}
    return [found[lender] for lender in sorted(found)]


class Assistant:
    """Emits ``head.onnx`` of such a head.

    Args:
        spec: the head.
        parts: of its layers.
        ids: the order of its tokens in clusters, if it scores only some of them.

    """

    def __init__(self, spec: HeadSpec, parts: GraphParts, ids: npt.NDArray[np.int64]) -> None:
        self._spec, self._parts, self._graph, self._ids = spec, parts, parts.graph, ids
        self._attention = _Queries(parts)

    def emit(self, embedded: str) -> None:
        """Emit the whole graph, behind the target's embedding of ``input_ids``."""
        g, parts, spec = self._graph, self._parts, self._spec
        g.input("position_ids", np.int64, (1, "n"))
        for lent in borrowed(spec):
            for name in _names(lent["layer"], lent["kv_heads"]):
                g.input(name, np.float32, (f"tokens_{lent['layer']}", lent["width"]))
        both = g.node("Concat", [embedded, "carried"], "entered", axis=-1)
        x = parts.store.linear(both, "entry", [ENTRY], [])
        flow = Flow[str](parts, self._attended, end=PerLayerInputs(parts).layer)
        branch: str | None = None
        for layer in range(spec.layer.layers):
            x, branch = flow.layer(layer, x, branch)
        normed, _ = parts.norm_of_sum("final.normed", "final.sum", x, branch, "final_norm")
        parts.store.linear(normed, NEXT, [EXIT], [])
        g.output(NEXT, np.float32, (1, "n", spec.hidden))
        flat = g.node("Reshape", [normed, parts.dims(-1, spec.layer.hidden)], "final.flat")
        self._outputs(flat)

    def _attended(self, layer: int, x: str, out: str) -> str:
        return self._attention.over(layer, x, self._spec.borrows[layer], out)

    def _outputs(self, x: str) -> None:
        """Emit the logits in the target's columns, -inf for what is not scored, and the largest."""
        g, vocab = self._graph, self._spec.target_vocab
        table = self._spec.layer.name("head")
        if self._spec.routes is None:
            count = min(TOP_K, vocab)
            self._parts.store.head(x, "logits", table, None)
            k = g.constant("top_k", np.array([count], np.int64))
            g.nodes("TopK", ["logits", k], ["top_logits", "top_ids"], axis=-1)
        else:
            count = self._routed(x, table, *self._spec.routes)
        g.output("logits", np.float32, ("n", vocab))
        g.output("top_logits", np.float32, ("n", count))
        g.output("top_ids", np.int64, ("n", count))

    def _routed(self, x: str, table: str, clusters: int, used: int) -> int:
        """Emit the logits of the best clusters' tokens; return how many of them come first."""
        g, parts, spec = self._graph, self._parts, self._spec
        scored = spec.scored
        # Centroids stay in fp32 in every format: they are few and decide which tokens are scored.
        centroids = g.constant(CENTROIDS, read(parts.tensors, CENTROIDS))
        scores = g.node("Gemm", [x, centroids], "cluster.scores", transB=1)
        k = g.constant("clusters", np.array([used], np.int64))
        g.nodes("TopK", [scores, k], ["cluster.best", "cluster.ids"], axis=-1, sorted=0)
        order = g.constant("order", self._ids.reshape(clusters, -1))
        chosen = g.node("Gather", [order, "cluster.ids"], "cluster.tokens", axis=0)
        tokens = g.node("Reshape", [chosen, parts.dims(-1, scored)], "scored.tokens")
        rows = parts.store.embed(tokens, "scored.rows", table, True)
        column = g.node("Reshape", [x, parts.dims(-1, spec.layer.hidden, 1)], "final.column")
        product = g.node("MatMul", [rows, column], "scored.product")
        own = g.node("Reshape", [product, parts.dims(-1, scored)], "scored.logits")
        count = min(TOP_K, scored)
        most = g.constant("top_k", np.array([count], np.int64))
        g.nodes("TopK", [own, most], ["top_logits", "scored.best"], axis=-1)
        g.node("GatherElements", [tokens, "scored.best"], "top_ids", axis=1)
        wide = g.constant("vocabulary", np.array([spec.target_vocab], np.int64))
        number = g.node("Shape", [own], "scored.count", start=0, end=1)
        shape = g.node("Concat", [number, wide], "wide.shape", axis=0)
        never = g.constant("never", np.array(-np.inf, np.float32))
        columns = g.node("Expand", [never, shape], "wide")
        g.node("ScatterElements", [columns, tokens, own], "logits", axis=1)
        return count


class _Queries(Attention):
    """Emits attention whose keys and values are inputs."""

    def __init__(self, parts: GraphParts) -> None:
        super().__init__(parts)
        self._late.first = parts.spec.layers  # every row hands something on

    def _rotates_itself(self, layer: int) -> bool:
        return False

    def over(self, layer: int, x: str, lender: int, out: str) -> str:
        """Emit attention over ``x``, with its output projection, over the keys of ``lender``."""
        g, parts, spec, at = self._graph, self._parts, self._spec.at(layer), f"layers.{layer}"
        query = parts.linear(f"{at}.q", x, layer, ("q",), spec.qkv_bias)
        query = self._placed(layer, self._normed(layer, query, "q_norm"), spec.heads)
        group = spec.heads // spec.kv_heads
        split = parts.dims(-1, spec.kv_heads, group, spec.head_dim)
        turned = g.node(
            "Transpose", [g.node("Reshape", [query, split], f"{at}.heads")], f"{at}.turned",
            perm=[1, 0, 2, 3],
        )  # fmt: skip
        flat = g.node("Reshape", [turned, parts.dims(spec.kv_heads, -1, spec.head_dim)], f"{at}.by")
        ones = [flat]
        if spec.kv_heads > 1:
            ones = [f"{at}.by.{head}" for head in range(spec.kv_heads)]
            g.nodes("Split", [flat], ones, axis=0, num_outputs=spec.kv_heads)
        mixed = [
            self._mixed(f"{at}.{head}", one, *names, spec)
            for head, (one, names) in enumerate(zip(ones, _pairs(lender, spec), strict=True))
        ]
        both = mixed[0] if len(mixed) == 1 else g.node("Concat", mixed, f"{at}.all", axis=1)
        rows = g.node("Reshape", [both, parts.dims(1, -1, spec.q_size)], f"{at}.mixed")
        return parts.linear(out, rows, layer, ("o",), spec.out_bias)

    def _mixed(self, at: str, query: str, keys: str, values: str, spec: DecoderSpec) -> str:
        """Emit what one key head's queries read, ``[n, heads, width]``."""
        g, parts = self._graph, self._parts
        rows = g.node("Reshape", [query, parts.dims(-1, spec.head_dim)], f"{at}.rows")
        scores = g.node(MICROSOFT + "FusedMatMul", [rows, keys], f"{at}.scores", transB=1,
                        alpha=spec.attention_scale)  # fmt: skip
        shares = g.node("Softmax", [scores], f"{at}.shares", axis=-1)
        read_ = g.node("MatMul", [shares, values], f"{at}.read")
        group = spec.heads // spec.kv_heads
        return g.node("Reshape", [read_, parts.dims(-1, group, spec.head_dim)], f"{at}.back")


def _pairs(lender: int, spec: DecoderSpec) -> list[tuple[str, str]]:
    names = _names(lender, spec.kv_heads)
    return list(zip(names[::2], names[1::2], strict=True))


def _names(layer: int, heads: int) -> list[str]:
    return [f"{part}_{layer}_{head}" for head in range(heads) for part in ("key", "value")]
