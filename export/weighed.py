"""Writes an ONNX graph in int4, or int4 and int8, by what held-out texts show.

Texts for calibration do not always represent a model's use, so a calibrated graph is compared with
a plainly rounded one on texts that neither has seen, and the closer one is kept.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgedec.errors import ParityError
from edgedec.export import sensitivity
from edgedec.export.balancing import balanced
from edgedec.export.calibrated import CalibratedRounding, of_job
from edgedec.export.job import ExportJob
from edgedec.export.mixing import TRIES, Mixing, Mixture
from edgedec.export.onnx import GraphOptions, write_model
from edgedec.export.onnx.drafted import with_rows
from edgedec.export.options import DRAFTS, Progress
from edgedec.export.parity import OnStep, ParityRun
from edgedec.export.quantize import (
    AUTO,
    MIXED,
    Blocks,
    PlainRounding,
    Rounding,
    WeightForm,
    dequantize,
    quantize,
)
from edgedec.export.reference import Reference
from edgedec.export.tensors import FloatArray, TensorReader
from edgedec.models.decoder import DecoderSpec


class KeptRounding:
    """Another rounding whose matrices in int4 are kept from the first time they are written.

    Those in int8 are rounded to nearest, which loses next to nothing. The first time all are
    written in int4: a rounding that reads texts follows them from the first matrix to the last.

    Args:
        folder: scratch space.

    """

    def __init__(self, inner: Rounding, folder: Path) -> None:
        self._inner, self._folder, self._plain = inner, folder, PlainRounding()
        self._files: dict[str, Path] = {}

    def blocks(
        self, tensors: TensorReader, names: Sequence[str], bits: int, block_size: int
    ) -> Iterator[Blocks]:
        if bits == _RAISED:
            yield from self._plain.blocks(tensors, names, bits, block_size)
            return
        for name in names:
            if name not in self._files:
                self._keep(name, self._inner.blocks(tensors, [name], bits, block_size))
            yield self._read(name)

    def head(
        self, tensors: TensorReader, names: Sequence[str], bits: int, block_size: int
    ) -> Iterator[Blocks]:
        if bits == _RAISED:
            yield from self._plain.head(tensors, names, bits, block_size)
            return
        (name,) = names
        if name not in self._files:
            self._keep(name, self._inner.head(tensors, names, bits, block_size))
        yield self._read(name)

    def find(self, name: str) -> Blocks | None:
        """Return a matrix in int4, if it was written so."""
        return self._read(name) if name in self._files else None

    def _keep(self, name: str, parts: Iterator[Blocks]) -> None:
        found = list(parts)
        file = self._folder / f"{len(self._files)}.npz"
        np.savez(
            file,
            allow_pickle=False,
            packed=np.concatenate([part.packed for part in found]),
            scales=np.concatenate([part.scales for part in found]),
            squares=np.sum([(part.squared_error, part.squared_weight) for part in found], axis=0),
        )
        self._files[name] = file

    def _read(self, name: str) -> Blocks:
        with np.load(self._files[name]) as stored:
            return Blocks(stored["packed"], stored["scales"], *map(float, stored["squares"]))


class KeptTensors:
    """A decoder's tensors with all matrices in int4, as they were written.

    Those that were not, as embeddings apart from the head, are rounded to nearest when they are
    read. One matrix is in memory at a time.
    """

    def __init__(self, inner: TensorReader, kept: KeptRounding, block_size: int) -> None:
        self._inner, self._kept, self._block = inner, kept, block_size
        self._last: tuple[str, Blocks | None] = "", None

    def shape(self, name: str) -> tuple[int, ...]:
        return self._inner.shape(name)

    def rows(self, name: str, start: int, stop: int) -> FloatArray:
        if len(self.shape(name)) != 2:
            return self._inner.rows(name, start, stop)
        if self._last[0] != name:
            self._last = name, self._kept.find(name)
        found = self._last[1]
        if found is None:
            found = quantize(self._inner.rows(name, start, stop), 4, self._block)
            start, stop = 0, stop - start
        part = found.packed[start:stop], found.scales[start:stop]
        return dequantize(*part, 4, self.shape(name)[1])


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


# Share of the model's bytes that an int8 head may add without being measured.
_MOST_FOR_HEAD = 0.2
_PLAIN_BLOCK = 32
# Graphs that are compared at most: both ways, and mixtures.
_COMPARED = 2 + TRIES + 1
_RAISED = 8
# Of int8 in a mixture: against blocks of 32, bytes 0.94 and time of a product 0.89 (EPYC, with and
# without AVX-512), and rows have the bits of a row alone on both. Larger ones lose that.
_RAISED_BLOCK = 64
# A graph that parity refuses counts as one that is so much too far from its source.
_REFUSED = 1.2


@dataclass(frozen=True, slots=True)
class Written:
    """A graph on disk.

    Attributes:
        errors: relative error of each quantised tensor.
        weights: how they are stored, if that was chosen.
        notes: lines for the user.

    """

    options: GraphOptions
    errors: Mapping[str, float]
    weights: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Way:
    """A way to round matrices to int4."""

    name: str
    tensors: TensorReader
    rounding: KeptRounding
    options: GraphOptions
    calibrated: CalibratedRounding | None = None
    notes: tuple[str, ...] = ()


def write(
    job: ExportJob,
    spec: DecoderSpec,
    tensors: TensorReader,
    options: GraphOptions,
    folder: Path,
    progress: Progress,
) -> Written:
    """Write a job's graph; its texts are for calibration, and ``job.heldout`` to measure on."""
    with tempfile.TemporaryDirectory(prefix="rounded-", dir=folder) as scratch:
        writing = _Writing(job, spec, tensors, folder, progress)
        ways = list(writing.ways(options, Path(scratch)))
        return writing.mixed(ways) if job.weights == AUTO else writing.closest(ways)


def head_bits(spec: DecoderSpec, form: WeightForm) -> int:
    """Return the bits of a calibrated model's head: 8, unless passes would read much more.

    Quantisation error of the head affects the logits directly: int8 removes half of the remaining
    loss.
    """
    more = spec.vocab_size * spec.hidden * (8 - form.bits) / 8
    return 8 if more <= _MOST_FOR_HEAD * spec.parameters * form.bits / 8 else form.bits


class _Writing:
    def __init__(
        self,
        job: ExportJob,
        spec: DecoderSpec,
        tensors: TensorReader,
        folder: Path,
        progress: Progress,
    ) -> None:
        self._job, self._spec, self._tensors = job, spec, tensors
        self._folder, self._progress = folder, progress
        self._errors: dict[str, float] = {}
        self._known: dict[tuple[str, frozenset[str]], float] = {}
        # What is in the folder: a way and the matrices that are raised.
        self._last: tuple[str, frozenset[str]] | None = None
        own = spec.within(job.options.max_context)
        sample = job.tokens if job.options.parity and job.weights == AUTO else ()
        self._closeness = Closeness(
            own, tensors, job.heldout, sample, job.drafted, self._step("source")
        )

    def ways(self, options: GraphOptions, scratch: Path) -> Iterator[_Way]:
        """Yield the ways to round: plainly, and for texts if there are any."""
        job, spec = self._job, self._spec
        # Blocks that a file holds are copied, its head's as well.
        bits = options.head_bits if job.held else head_bits(spec, options.form)
        block = job.options.block_size or _PLAIN_BLOCK
        if job.weights == AUTO and job.options.block_size is None:
            options = dataclasses.replace(options, raised_block=_RAISED_BLOCK)
        plain = dataclasses.replace(options, block_size=block, head_bits=bits)
        yield _Way("rounded", self._tensors, self._kept(scratch, "rounded", PlainRounding()), plain)
        if not job.texts:
            return
        form, notes = options.form, []
        tensors, moved = balanced(spec, self._tensors, job.texts, form.bits, form.block_size)
        if moved:
            notes.append(f"outliers balanced at {moved} places")
        rounding = of_job(job, spec, tensors, form.bits, self._progress)
        assert rounding is not None
        kept = self._kept(scratch, "calibrated", rounding)
        own = dataclasses.replace(options, head_bits=bits)
        yield _Way("calibrated", tensors, kept, own, rounding, tuple(notes))

    def _kept(
        self, scratch: Path, name: str, rounding: PlainRounding | CalibratedRounding
    ) -> KeptRounding:
        folder = scratch / name
        folder.mkdir()
        return KeptRounding(rounding, folder)

    def closest(self, ways: Sequence[_Way]) -> Written:
        """Write the way that is closest to the source."""
        way, losses = self._compared(ways)
        self._write(way, frozenset())
        return Written(way.options, self._errors, None, self._notes(way, losses))

    def mixed(self, ways: Sequence[_Way]) -> Written:
        """Write the way that is closest to the source, with as much in int8 as that takes."""
        job, spec = self._job, self._spec
        way, losses = self._compared(ways)
        most = job.options.max_kl * (DRAFTS if job.role == "draft" else 1)
        found = Mixture(frozenset(), 0.0, self._closely(way, frozenset(), most))
        if found.kl_nats > most:
            units = sensitivity.measure(
                spec.within(job.options.max_context), way.tensors, job.texts or job.heldout,
                KeptTensors(way.tensors, way.rounding, way.options.block_size), self._step("bits"),
            )  # fmt: skip
            if way.options.head_bits == _RAISED:
                head = (spec.name("head"),)
                units = [unit for unit in units if unit.names != head]
            mixing = Mixing(units, lambda raised: self._closely(way, raised, most), most)
            found = mixing.best(found.kl_nats)
        options = self._write(way, found.raised)
        weights = MIXED if 0 < found.share < 1 else "int8" if found.share else "int4"
        notes = (_said(found, self._bytes(), most), *self._notes(way, losses))
        return Written(options, self._errors, weights, notes)

    def _compared(self, ways: Sequence[_Way]) -> tuple[_Way, dict[str, float]]:
        losses = {way.name: self._measure(way, frozenset()) for way in ways}
        return min(ways, key=lambda way: losses[way.name]), losses

    def _measure(self, way: _Way, raised: frozenset[str]) -> float:
        options = self._write(way, raised)
        if (way.name, raised) not in self._known:
            self._known[way.name, raised] = self._closeness.kl_nats(self._folder, options)
            self._step("comparing")(len(self._known), _COMPARED)
        return self._known[way.name, raised]

    def _closely(self, way: _Way, raised: frozenset[str], most: float) -> float:
        """Return the divergence, or more than ``most`` if parity would refuse the graph."""
        lost = self._measure(way, raised)
        options = self._write(way, raised)
        if lost <= most and not self._closeness.passes(self._folder, options, self._job.weights):
            return max(lost, most * _REFUSED)
        return lost

    def _write(self, way: _Way, raised: frozenset[str]) -> GraphOptions:
        """Write the graph, unless it is there; return its options."""
        options = dataclasses.replace(way.options, raised=raised)
        if self._spec.name("head") in raised:
            options = dataclasses.replace(options, head_bits=_RAISED)
        if self._last != (way.name, raised):
            self._errors = write_model(self._spec, way.tensors, self._folder, options, way.rounding)
            self._last = way.name, raised
        return options

    def _notes(self, way: _Way, losses: Mapping[str, float]) -> tuple[str, ...]:
        notes = list(way.notes)
        if way.calibrated is not None:
            notes += way.calibrated.notes
        elif len(losses) > 1:
            notes.append(
                "rounded to nearest: on held-out text closer than calibrated (divergence"
                f" {losses['rounded']:.2g} nats, {losses['calibrated']:.2g})"
            )
        return tuple(notes)

    def _bytes(self) -> int:
        return sum(file.stat().st_size for file in self._folder.glob("model.onnx*"))

    def _step(self, what: str) -> sensitivity.OnStep:
        stage = f"{self._job.stage} {what}"
        return lambda done, total: self._progress(stage, done, total)


def _said(found: Mixture, size: int, most: float) -> str:
    """Say what was chosen, and what that costs."""
    kept = f"{size / 1e6:.0f} MB"
    close = f"divergence on its own text {found.kl_nats:.2g} nats, at most {most:g} asked"
    if not found.share:
        return f"int4: {kept}; {close}"
    kind = "all of it int8" if found.share == 1 else f"{found.share:.0%} of it int8"
    return f"int4, {kind} to stay close: {kept}; {close}"
