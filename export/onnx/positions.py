"""Cosines and sines of positions, in a graph that need not grow with its context.

Tables of every position are read by the attention kernel itself. Where they would be large beside
the weights, a graph holds two short tables instead: of every ``STEP``-th position, and of the first
``STEP``. A pass's rows are products of theirs, by the cosine and sine of a sum.
"""

from __future__ import annotations

import numpy as np

from edgedec.errors import InputError
from edgedec.export.graph import GraphWriter
from edgedec.models.decoder import DecoderSpec
from edgedec.models.rope import Rope

STEP = 1024
# Places are found in float32, which has every whole number up to here (`bundling` knows it, too).
MOST_POSITIONS = 1 << 24
# Bytes of whole tables that any graph may have, and parameters for each byte beyond them: a
# sixteenth of the weights in int4.
_TABLES, _PARAMETERS_PER_BYTE = 16 << 20, 32


def are_short(spec: DecoderSpec, positions: int) -> bool:
    """Return whether a graph holds short tables for this many positions.

    Raises:
        InputError: no graph has so many.

    """
    if positions > MOST_POSITIONS and any(spec.ropes):
        raise InputError(
            f"a context of {positions} tokens: a graph has at most {MOST_POSITIONS} positions, give"
            " a smaller --max-context"
        )
    ropes = [rope for rope in spec.ropes if rope is not None]
    kinds = sum(rope not in ropes[:place] for place, rope in enumerate(ropes))
    widest = max(spec.at(layer).rotary_dim for layer in range(spec.layers))
    whole = 4 * kinds * widest * positions
    return whole > max(_TABLES, spec.parameters // _PARAMETERS_PER_BYTE)


def short_tables(rope: Rope, dim: int, positions: int, max_context: int) -> dict[str, np.ndarray]:
    """Return cosines and sines of every ``STEP``-th position and of the first, ``[rows, dim / 2]``.

    Args:
        rope: the rotary embedding.
        dim: channels that turn.
        positions: how many there are.
        max_context: see ``Rope.tables``.

    """
    frequencies, magnitude = rope.frequencies(dim, max_context)
    far = np.outer(np.arange(-(-positions // STEP)) * float(STEP), frequencies)
    near = np.outer(np.arange(min(STEP, positions), dtype=np.float64), frequencies)
    found = {"cos.far": np.cos(far) * magnitude, "sin.far": np.sin(far) * magnitude,
             "cos.near": np.cos(near), "sin.near": np.sin(near)}  # fmt: skip
    return {name: table.astype(np.float32) for name, table in found.items()}


def emit_rows(g: GraphWriter, tables: dict[str, np.ndarray], at: str) -> list[str]:
    """Emit a pass's cosines and sines, ``[n, dim / 2]``, once for each name ``at``."""
    if f"cos.{at}" not in g:
        far, near = _places(g)
        parts = {}
        for name, table in tables.items():
            stored, place = g.constant(f"{name}.{at}", table), far if "far" in name else near
            parts[name] = g.node("Gather", [stored, place], f"{name}.{at}.rows", axis=0)

        def product(one: str, two: str) -> str:
            return g.node("Mul", [parts[f"{one}.far"], parts[f"{two}.near"]], f"{one}.{two}.{at}")

        g.node("Sub", [product("cos", "cos"), product("sin", "sin")], f"cos.{at}")
        g.node("Add", [product("sin", "cos"), product("cos", "sin")], f"sin.{at}")
    return [f"cos.{at}", f"sin.{at}"]


def emit_order(g: GraphWriter) -> str:
    """Emit the numbers of a pass's rows, ``[1, n]``: their places in what ``emit_rows`` gives."""
    if "rows.order" not in g:
        zero, one = (g.constant(f"number.{i}", np.array(i, np.int64)) for i in (0, 1))
        shape = g.node("Shape", ["position_ids"], "rows.shape")
        count = g.node("Gather", [shape, one], "rows.count", axis=0)
        order = g.node("Range", [zero, count, one], "rows.range")
        axis = g.constant("rows.axis", np.array([0], np.int64))
        g.node("Unsqueeze", [order, axis], "rows.order")
    return "rows.order"


def _places(g: GraphWriter) -> tuple[str, str]:
    """Emit each row's places in the two tables, ``[n]``."""
    if "positions.near" not in g:
        flat = g.constant("positions.flat", np.array([-1], np.int64))
        each = g.node("Reshape", ["position_ids", flat], "positions.each")
        share = g.constant("positions.share", np.array(1 / STEP, np.float32))
        number = g.node("Cast", [each], "positions.float", to=1)
        far = g.node("Cast", [g.node("Mul", [number, share], "positions.steps")], "positions.far",
                     to=7)  # fmt: skip
        step = g.constant("positions.step", np.array(STEP, np.int64))
        g.node("Sub", [each, g.node("Mul", [far, step], "positions.begin")], "positions.near")
    return "positions.far", "positions.near"
