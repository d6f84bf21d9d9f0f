"""Texts for calibrated rounding: a user's own, or such as the model writes itself.

What a model writes is what it will read when it is used, and needs nobody to bring a text. The
plainly rounded model writes it, from no prompt, at temperature 1.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgedec.decoding.session import Model, Session, Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import InputError, UnsupportedArchitecture
from edgedec.export.job import ExportJob
from edgedec.export.onnx import GraphOptions, write_model
from edgedec.export.options import Progress
from edgedec.export.sample import read_text
from edgedec.text.tokenizer import Tokenizer

TOKENS = 8_192
_LENGTH = 512  # of a user's text, cut up
_WRITTEN = 256
# Texts that are written at the same time: each looks at the keys of all and masks the others.
_TOGETHER = 4
# Below this a matrix of a thousand columns is fitted to noise.
_LEAST = 1024
_SEED = 1
_SMALLEST_NOISE = np.float32(2.0**-25)

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

    options = GraphOptions(job.checkpoint.name, block_size=job.block_size)
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
    """First tokens of a text: the tokenizer's own, else the token that ends texts."""
    begun = Tokenizer.load(job.checkpoint.path).encode("")
    return begun or [(job.checkpoint.eos_ids or (0,))[0]]


def _written(model: Model, first: Sequence[int], longest: int, progress: Progress) -> Texts:
    length = max(min(_WRITTEN, longest), len(first) + 1)
    together = max(1, min(_TOGETHER, (longest - len(first)) // (length - len(first))))
    found: list[tuple[int, ...]] = []
    rng = np.random.default_rng(_SEED)
    while (done := len(found) * length) < TOKENS:
        progress("calibration text", done, TOKENS)
        found += _together(model, first, length, together, rng)
    progress("calibration text", TOKENS, TOKENS)
    return tuple(found)


def _together(
    model: Model, first: Sequence[int], length: int, count: int, rng: np.random.Generator
) -> list[tuple[int, ...]]:
    """Texts as branches of one tree: a pass reads the weights once for all of them."""
    texts = [list(first) for _ in range(count)]
    session = model.open(len(first) + count * (length - len(first)))
    try:
        session.prefill(first[:-1])
        tree, ends = TokenTree(first[-1]), [0] * count
        logits = np.repeat(_logits(session, tree, 0), count, axis=0)
        while len(texts[0]) < length:
            # An exponential race is a draw from the softmax. float32 has zeros, which would win.
            race = rng.standard_exponential(logits.shape, np.float32)
            logits -= np.log(np.maximum(race, _SMALLEST_NOISE))
            start = len(tree)
            for place, token in enumerate(logits.argmax(axis=1).tolist()):
                texts[place].append(token)
                ends[place] = tree.add(token, ends[place])
            if len(texts[0]) < length:
                logits = _logits(session, tree, start)
    finally:
        session.close()
    return [tuple(text) for text in texts]


def _logits(session: Session, tree: TokenTree, start: int) -> FloatArray:
    logits = session.forward(tree, start, Want.LOGITS).logits
    assert logits is not None
    kept: FloatArray = logits.copy()
    return kept
