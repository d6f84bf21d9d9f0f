"""GPTQ: each column compensates for the errors of those rounded before it.

GPTQ (2210.17323) minimises the squared error of a matrix's products over given inputs,
``|(W - Q) X|^2 = tr(E H E^T)`` with ``E = W - Q`` and ``H = X X^T``. With ``H = L L^T``
the sum falls apart by columns, ``|E L|^2``, and column j of ``E L`` holds the errors of columns j
and later only. So columns are rounded from the last to the first, each where it cancels what the
later ones left; this needs no inverse of H, and rows do not depend on each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgedec.export.parallel import ahead, one_thread
from edgedec.export.quantize import Blocks, fit_scales, pack, round_to
from edgedec.export.tensors import FloatArray

# Shares of the mean diagonal that are added to it, the next where a factorisation fails.
_DAMPING = (0.01, 0.03, 0.1, 0.3, 1.0)
# Columns that are factorised at a time, and rows below them that a thread then works on.
_PANEL, _STRIPE = 256, 512
# Columns that a thread sums up, and inputs at a time: long products of few of them.
_SUMMED, _ROWS = 256, 2048
# Columns rounded one by one before their errors are applied to the others in one product.
_STRIP = 16


class Gram:
    """``x.T @ x`` summed over the inputs of a matrix; only its lower triangle is kept.

    Args:
        columns: of the inputs.

    """

    def __init__(self, columns: int) -> None:
        self._sum = np.zeros((columns, columns), np.float32)

    def add(self, inputs: Sequence[FloatArray]) -> None:
        """Add inputs, each ``[n, columns]``."""
        together, rows = [], 0
        for index, x in enumerate(inputs, 1):
            together.append(x)
            rows += len(x)
            if rows >= _ROWS or index == len(inputs):
                self._add(np.concatenate(together))
                together, rows = [], 0

    def _add(self, x: FloatArray) -> None:
        def panel(start: int) -> None:
            stop = start + _SUMMED
            self._sum[start:stop, :stop] += x[:, start:stop].T @ x[:, :stop]

        for _ in ahead(panel, reversed(range(0, len(self._sum), _SUMMED))):
            pass

    def factor(self) -> FloatArray:
        """Return the lower Cholesky factor of the damped sum, in its memory: call it last.

        Raises:
            LinAlgError: the inputs contain NaN or infinities, or no damping helps.

        """
        h = self._sum
        diagonal = np.diagonal(h).copy()
        mean = diagonal.mean()
        if not np.isfinite(mean) or mean <= 0:
            raise np.linalg.LinAlgError("the inputs are not finite, or all zero")
        _mirror(h)
        for share in _DAMPING:
            np.fill_diagonal(h, diagonal + np.float32(share) * mean)
            try:
                with one_thread():
                    return _cholesky(h)
            except np.linalg.LinAlgError:
                _mirror(h.T)  # from the upper triangle, which was left alone
        raise np.linalg.LinAlgError("the inputs' products cannot be factorised")


def round_rows(weights: FloatArray, factor: FloatArray, bits: int, block_size: int) -> Blocks:
    """Round ``[rows, columns]`` float32 for inputs with the Cholesky factor ``[columns, columns]``.

    A block's scale is fitted to its weights as the columns after it would have them; a last
    partial block is filled with zeros.
    """
    rows, columns = weights.shape
    blocks = -(-columns // block_size)
    padding = blocks * block_size - columns
    if padding:
        weights = np.pad(weights, ((0, 0), (0, padding)))
        factor = np.pad(factor, (0, padding))
        factor[range(columns, columns + padding), range(columns, columns + padding)] = 1
    packed = np.empty((rows, blocks, block_size * bits // 8), np.uint8)
    scales = np.empty((rows, blocks), np.float32)
    # Columns as rows: [columns, rows]. Weights first, the error of a column once it is rounded.
    errors = np.ascontiguousarray(weights.T)
    for block in reversed(range(blocks)):
        start, stop = block * block_size, (block + 1) * block_size
        triangle = np.tril(factor[start:stop, start:stop])
        goal = errors[start:stop].copy()
        if stop < len(errors):
            owed = factor[stop:, start:stop].T @ errors[stop:]
            goal += np.linalg.inv(triangle).T @ owed
        scale, _ = fit_scales(goal, bits)
        q = _round_block(goal, triangle, scale, bits)
        errors[start:stop] -= q * scale
        packed[:, block], scales[:, block] = pack(q, bits), scale
    squared_weight = float(np.vdot(weights, weights))
    return Blocks(packed, scales, float(np.vdot(errors, errors)), squared_weight)


def _round_block(
    goal: FloatArray, triangle: FloatArray, scale: FloatArray, bits: int
) -> FloatArray:
    """Return integers ``[block_size, rows]`` (as float32), rounded from the last column on."""
    ratios = triangle / np.diagonal(triangle)
    q, left = np.empty_like(goal), np.zeros_like(goal)
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)
    for stop in range(len(goal), 0, -_STRIP):
        start = stop - _STRIP
        wanted = goal[start:stop] + ratios[stop:, start:stop].T @ left[stop:]
        for column in range(stop - 1, start - 1, -1):
            later = slice(column + 1, stop)
            exact = wanted[column - start] + ratios[later, column] @ left[later]
            round_to(exact, inverse, bits, q[column])
            np.subtract(goal[column], q[column] * scale, out=left[column])
    return q


def _cholesky(h: FloatArray) -> FloatArray:
    """Factorise the lower triangle in place, a panel of columns at a time."""
    n = len(h)
    for start in range(0, n, _PANEL):
        stop = min(start + _PANEL, n)
        triangle = np.linalg.cholesky(h[start:stop, start:stop])
        h[start:stop, start:stop] = _lower(triangle, h, start)
        if stop < n:
            # Products are several times faster than numpy's solver, which has no triangular mode.
            _eliminate(h, start, stop, np.linalg.inv(triangle).T)
    return h


def _eliminate(h: FloatArray, start: int, stop: int, inverse: FloatArray) -> None:
    """Finish a panel below its triangle and subtract its product from the columns right of it."""

    def finish(row: int) -> None:
        rows = slice(row, row + _STRIPE)
        h[rows, start:stop] = h[rows, start:stop] @ inverse

    def take_out(row: int) -> None:
        last = min(row + _STRIPE, len(h))
        product = h[row:last, start:stop] @ h[stop:last, start:stop].T
        h[row:last, stop:row] -= product[:, : row - stop]
        h[row:last, row:last] -= np.tril(product[:, row - stop :])

    rows = range(stop, len(h), _STRIPE)
    for work in (finish, take_out):
        for _ in ahead(work, reversed(rows)):  # the longest first
            pass


def _lower(triangle: FloatArray, h: FloatArray, start: int) -> FloatArray:
    """Return a panel's factor below the diagonal and the panel's own values above it."""
    stop = start + len(triangle)
    return triangle + np.triu(h[start:stop, start:stop], 1)


def _mirror(h: FloatArray) -> None:
    """Copy the lower triangle over the upper one."""
    for start in range(0, len(h), _PANEL):
        stop = min(start + _PANEL, len(h))
        h[:start, start:stop] = h[start:stop, :start].T
        square = h[start:stop, start:stop]
        square[:] = np.tril(square) + np.tril(square, -1).T
