"""Texts for calibrated rounding: a user's own, or such as the model writes itself.

What a model writes is what it will read when it is used, and needs nobody to bring a text. The
plainly rounded model writes it, from no prompt, at temperature 1.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from edgedec.decoding import acceptance, drafting
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.engine import Engine, Request
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import Fixed
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.decoding.session import Model
from edgedec.decoding.stopping import StopRule
from edgedec.errors import InputError, UnsupportedArchitecture
from edgedec.export.job import ExportJob
from edgedec.export.onnx import GraphOptions, write_model
from edgedec.export.options import Progress
from edgedec.export.sample import read_text
from edgedec.text.tokenizer import Tokenizer

TOKENS = 16_384
_LENGTH = 512
# Below this a matrix of a thousand columns is fitted to noise.
_LEAST = 1024
_SEED = 1

Texts = tuple[tuple[int, ...], ...]


def texts(job: ExportJob, folder: Path, progress: Progress) -> Texts:
    """Return the texts that a target and its draft are calibrated on, in the target's tokens.

    Args:
        job: the target's.
        folder: on the disk that has room for a model.
        progress: hears how much is written.

    Raises:
        InputError: the user's text cannot be read, or is too short.
        UnsupportedArchitecture: ONNX Runtime cannot run the model, which so cannot write.

    """
    file = job.options.calibration_text
    if file is None:
        return _self_written(job, folder, progress)
    tokens = Tokenizer.load(job.checkpoint.path).encode(read_text(file))[:TOKENS]
    if len(tokens) < _LEAST:
        raise InputError(f"{file} gives {len(tokens)} tokens to calibrate on, expected {_LEAST}")
    length = min(_LENGTH, job.spec.max_context)
    return tuple(tuple(tokens[i : i + length]) for i in range(0, len(tokens), length))


def retokenized(written: Texts, source: Path, other: Path) -> Texts:
    """Return the texts in the tokens of another tokenizer, without special tokens."""
    decode, encode = Tokenizer.load(source).decode, Tokenizer.load(other).encode
    found = (tuple(encode(decode(list(text)))) for text in written)
    return tuple(text for text in found if text)


def _self_written(job: ExportJob, folder: Path, progress: Progress) -> Texts:
    from edgedec.runtimes.onnx.model import OnnxModel

    options = GraphOptions(job.checkpoint.name, block_size=job.options.block_size)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        try:
            write_model(job.spec, job.tensors, Path(name), options)
        except UnsupportedArchitecture as error:
            reason = str(error).split(":")[0]
            raise UnsupportedArchitecture(
                f"no texts to calibrate on, since {reason}: give one with --calibration-text"
            ) from None
        model = OnnxModel.load(name, row_invariant=False)
        try:
            return _written(model, _first(job), job.spec.max_context, progress)
        finally:
            model.close()


def _first(job: ExportJob) -> list[int]:
    """What a text begins with: what the tokenizer puts there, or what ends the text before."""
    begun = Tokenizer.load(job.checkpoint.path).encode("")
    return begun or [(job.checkpoint.eos_ids or (0,))[0]]


def _written(model: Model, first: Sequence[int], longest: int, progress: Progress) -> Texts:
    length = min(_LENGTH, longest)
    found: list[tuple[int, ...]] = []
    done = 0
    while done < TOKENS:
        text = _one(model, first, length, _SEED + len(found))
        found.append(text)
        done += len(text)
        progress("calibration text", min(done, TOKENS), TOKENS)
    return tuple(found)


def _one(model: Model, first: Sequence[int], length: int, seed: int) -> tuple[int, ...]:
    size, rule = model.info.vocab_size, acceptance.rule()
    engine = Engine(model.open(length), drafting.create("none", DrafterParts(size)), Fixed(0), rule)
    sampler = Sampler(SamplingParams(temperature=1.0, seed=seed), size, first)
    stop = StopRule(eos_ids=(), max_new_tokens=length - len(first))
    blocks = engine.run(Request(first, sampler, stop), Metrics())
    written = [event.token for block in blocks for event in block]
    return (*first, *written)
