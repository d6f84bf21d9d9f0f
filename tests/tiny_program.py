"""What the small CoreML program of ``edgedec.testing`` computes."""

from __future__ import annotations

import numpy as np

from edgedec.coreml.builder import Value
from edgedec.coreml.program import Function
from edgedec.testing.tiny_program import FACTS, WORDS, arrays, function, packed, stored, use, write

__all__ = [
    "FACTS", "arrays", "expected", "function", "packed", "stored", "use", "value", "write",
]  # fmt: skip


def expected(ids: list[int], kept: np.ndarray, begin: int) -> np.ndarray:
    """What the function returns, in float32 throughout; ``kept`` is changed as the state is."""
    a = {name: values.astype(np.float32) for name, values in arrays().items()}
    x = a["table"][ids]
    kept[0, begin : begin + len(ids)] = x
    first = a["digits"] * np.repeat(a["scales"], 2, axis=1)
    table = a["lut"].reshape(2, 16)
    second = np.stack(
        [table[row * 2 // WORDS][line] for row, line in enumerate(arrays()["indices"])]
    )
    inner = (x + kept[0].sum(axis=0)) @ first.T
    return (inner / (1 + np.exp(-inner))) @ second.T


def value(function: Function, name: str) -> Value:
    """A value of a function by its name."""
    types = {each: type for op in function.operations for each, type in op.outputs}
    return Value(name, types[name])
