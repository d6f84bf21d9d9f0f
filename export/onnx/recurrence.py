"""A recurrence over tokens, with what a runtime keeps of it.

A pass begins with a state, and with the rows of the tokens that followed it: those of earlier
passes that were kept. The graph reads them again before its own, so that a rejected row is one that
is not given, and no state is copied to go back. It returns the state before its own rows, from
which the next pass goes on if some of them are rejected, and the one after them. Rows that pad a
pass leave a state as it is: an input says which are real.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edgedec.export.graph import GraphWriter
from edgedec.export.onnx.parts import GraphParts
from edgedec.export.tensors import read
from edgedec.export.weights import MICROSOFT
from edgedec.models.decoder import DecoderSpec
from edgedec.models.mixers import Mixer


def recurrence_inputs(graph: GraphWriter) -> None:
    """Declare what all layers with a state read besides.

    Which rows are real, ``[1, n, 1]`` of 1 or 0, and those that are returned.
    """
    graph.input(_REAL, np.float32, (1, "n", 1))
    graph.input(RETURNED, np.int64, ("k",))


def recurrence_feeds(spec: DecoderSpec, count: int) -> dict[str, npt.NDArray[Any]]:
    """Return those inputs for ``count`` tokens."""
    if not spec.recurs:
        return {}
    return {_REAL: np.ones((1, count, 1), np.float32), RETURNED: np.arange(count)}


def mixer_feeds(spec: DecoderSpec, layer: int, kind: Mixer) -> dict[str, npt.NDArray[Any]]:
    """Return a layer's inputs other than the residual stream, at the start of a text."""
    shapes: dict[str, tuple[int, ...]] = {"inputs": (1, kind.kept, kind.width(spec.hidden))}
    if kind.state:
        shapes["state"] = (1, *kind.state)
    return {f"past_{name}_{layer}": np.zeros(at, np.float32) for name, at in shapes.items()}


class MixerWriter:
    """What the mixers with a recurrence have in common; each writes a layer into a graph."""

    def __init__(self, parts: GraphParts) -> None:
        self._parts, self._graph, self._spec = parts, parts.graph, parts.spec

    def _split(self, x: str, sizes: tuple[int, ...], *names: str) -> list[str]:
        g = self._graph
        lengths = g.constant(f"sizes.{'+'.join(map(str, sizes))}", np.array(sizes, np.int64))
        return list(g.nodes("Split", [x, lengths], list(names), axis=-1))

    def _constant(self, role: str, layer: int) -> str:
        name = self._spec.name(role, layer)
        return self._graph.constant(name, read(self._parts.tensors, name))

    def _small(self, role: str, layer: int, x: str, out: str) -> str:
        """Emit a product with a matrix that stays in fp32 in every format: see ``SMALL``."""
        inputs = [x, self._constant(role, layer)]
        return self._graph.node(MICROSOFT + "FusedMatMul", inputs, out, transB=1)

    def _step(self, layer: int, x: str, out: str) -> str:
        """Emit ``softplus(step x + bias)``."""
        product = self._small("mix_step", layer, x, f"{out}.product")
        biased = self._graph.node("Add", [product, self._constant("step_bias", layer)], f"{out}.in")
        return self._graph.node("Softplus", [biased], out)

    def _silu(self, x: str, out: str) -> str:
        return self._graph.node(MICROSOFT + "QuickGelu", [x], out, alpha=1.0)

    def _where_wanted(self, rows: str, *values: str) -> list[str]:
        """Emit the rows of some values that an input lists; all without one."""
        if not rows:
            return list(values)
        return [self._graph.node("Gather", [x, rows], f"{x}.kept", axis=1) for x in values]


class Recurrence:
    """Emits the recurrence of a layer.

    Args:
        graph: takes the nodes.
        layer: the layer.
        rule: as the operator calls it.
        key_heads: heads of queries and keys.
        state: ``[heads, key channels, value channels]``.

    """

    def __init__(
        self, graph: GraphWriter, layer: int, rule: str, key_heads: int, state: tuple[int, ...]
    ) -> None:
        self._graph, self._layer, self._shape = graph, layer, (1, *state)
        self._form = {
            "q_num_heads": key_heads,
            "kv_num_heads": state[0],
            "update_rule": rule,
            "scale": 1.0,
        }

    def emit(self, query: str, inputs: Sequence[str], pending: str, out: str) -> str:
        """Emit its output for a pass's own rows, ``[1, n, heads * value channels]``.

        Args:
            query: of the rows that were kept, and of the pass's own.
            inputs: their keys, values and what else the rule reads, in the operator's order.
            pending: how many rows were kept, ``[1]``.
            out: name of the output.

        """
        g, layer = self._graph, self._layer
        state = g.input(f"past_state_{layer}", np.float32, self._shape)
        zero, end, axis = (
            g.constant(f"axis.{at}", np.array([at], np.int64)) for at in (0, _END, 1)
        )
        kept, own = (
            [g.node("Slice", [x, *cut, axis], f"{x}.{name}") for x in (query, *inputs)]
            for name, cut in (("pending", (zero, pending)), ("own", (pending, end)))
        )
        # A row without decay whose value, or its share, is 0 leaves the state as it is.
        for at in (3, 4 if len(own) > 4 else 2):
            own[at] = g.node("Mul", [own[at], _REAL], f"{own[at]}.real")
        now, last = f"present_state_{layer}", f"last_state_{layer}"
        self._rows(kept, state, f"{out}.pending", now)
        self._rows(own, now, out, last)
        for each in (now, last):
            g.output(each, np.float32, self._shape)
        return out

    def _rows(self, inputs: Sequence[str], state: str, out: str, after: str) -> None:
        named = [*inputs[:3], state, *inputs[3:]]
        self._graph.nodes(MICROSOFT + "LinearAttention", named, [out, after], **self._form)


_REAL, RETURNED = "real_rows", "returned_rows"
# Past the end of any slice.
_END = np.iinfo(np.int64).max
