"""Measures how far exported graphs are from their source, on texts that rounding did not see."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgedec.errors import ParityError
from edgedec.export.onnx import GraphOptions
from edgedec.export.onnx.drafted import with_rows
from edgedec.export.parity import OnStep, ParityRun
from edgedec.export.reference import Reference
from edgedec.export.tensors import FloatArray, TensorReader
from edgedec.models.decoder import DecoderSpec

# Tokens, and floating-point operations of the source, by which a large model reads fewer.
_TOKENS, _LEAST, _WORK = 512, 192, 2e12


class Closeness:
    """Compares graphs with what the source predicts, which is computed once.

    Args:
        spec, tensors: the source.
        texts: token ids; the beginnings of some are read.
        sample: a text on which a graph must pass as its export's parity demands; may be empty.
        drafted: of a draft, the tokens that it drafts.
        on_step: called with texts done and their number.

    """

    def __init__(
        self,
        spec: DecoderSpec,
        tensors: TensorReader,
        texts: Sequence[Sequence[int]],
        sample: Sequence[int],
        drafted: Sequence[int],
        on_step: OnStep,
    ) -> None:
        self._spec, self._tensors = spec, tensors
        own, rows = with_rows(spec, tensors, drafted)
        reference = Reference(own, rows)
        self._texts: list[tuple[Sequence[int], FloatArray]] = []
        chosen = [*_some(spec, texts), *([sample] if sample else ())]
        for done, text in enumerate(chosen, 1):
            x = reference.embed(text)
            for layer in range(spec.layers):
                x = reference.layer(layer, x)
            self._texts.append((text, reference.final_norm(x)))
            on_step(done, len(chosen))
        self._sample = [self._texts.pop()] if sample else []

    def passes(self, folder: Path, options: GraphOptions, weights: str) -> bool:
        """Return whether a folder's graph passes parity, as far as its divergence is concerned."""
        run = ParityRun(self._spec, self._tensors, folder, options)
        for text, final in self._sample:
            found = run.divergence(text, final, lambda done, total: None).result(0.0)
            try:
                found.check(options.name, weights, options.kv)
            except ParityError:
                return False
        return True

    def kl_nats(self, folder: Path, options: GraphOptions) -> float:
        """Return the mean divergence of a folder's graph from the source, in nats per token."""
        run = ParityRun(self._spec, self._tensors, folder, options)
        sums = np.zeros(2)
        for text, final in self._texts:
            found = run.divergence(text, final, lambda done, total: None).result(0.0)
            sums += found.kl_nats * found.tokens, found.tokens
        return float(sums[0] / max(sums[1], 1))


def _some(spec: DecoderSpec, texts: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    left = int(np.clip(_WORK / (2 * spec.parameters), _LEAST, _TOKENS))
    chosen: list[Sequence[int]] = []
    for text in texts:
        if left < 2:
            break
        chosen.append(text[:left])
        left -= len(chosen[-1])
    return chosen
