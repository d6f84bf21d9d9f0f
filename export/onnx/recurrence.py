"""A recurrence over tokens, with what a runtime keeps of it.

A pass begins with a state, and with the rows of the tokens that followed it: those of earlier
passes that were kept. The graph reads them again before its own, so that a rejected row is one that
is not given, and no state is copied to go back. It returns the state before its own rows, from
which the next pass goes on if some of them are rejected, and the one after them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgedec.export.graph import GraphWriter
from edgedec.export.weights import MICROSOFT


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
        now, last = f"present_state_{layer}", f"last_state_{layer}"
        self._rows(kept, state, f"{out}.pending", now)
        self._rows(own, now, out, last)
        for each in (now, last):
            g.output(each, np.float32, self._shape)
        return out

    def _rows(self, inputs: Sequence[str], state: str, out: str, after: str) -> None:
        named = [*inputs[:3], state, *inputs[3:]]
        self._graph.nodes(MICROSOFT + "LinearAttention", named, [out, after], **self._form)


# Past the end of any slice.
_END = np.iinfo(np.int64).max
