"""Holds a model to logits that its makers, or somebody with the original weights, recorded.

A file of vectors is JSON (log-probabilities of some tokens at each place) or npz (whole rows of
logits); docs/vectors.md has both forms. Both are read as untrusted input: no pickle, bounded sizes.
"""

from __future__ import annotations

import dataclasses
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgedec._support.fields import Fields, json_object
from edgedec._support.files import read_regular
from edgedec.decoding.tree import FloatArray
from edgedec.errors import InputError
from edgedec.loading.build import OpenOptions
from edgedec.pipeline import Pipeline
from edgedec.verify.near_ties import rescore
from edgedec.verify.same_texts import plainly

FORM = 1
# Nats a place by default, as `edgedec export` allows for mixed weights.
MAX_KL = 0.1
_MAX_BYTES = 1 << 28
_MAX_TEXTS, _MAX_TOKENS, _MAX_TOP = 1000, 16384, 1024
_FIELDS = ("tokens", "first", "top")


@dataclass(frozen=True, slots=True)
class RecordedText:
    """A text and what was recorded along it.

    Attributes:
        tokens: ids of the whole text.
        first: index of the first token that the recorded places predict, from 1 on.
        ids: for each place, the recorded tokens.
        logprobs: for each place, their natural log-probabilities at temperature 1.

    """

    tokens: Sequence[int]
    first: int
    ids: Sequence[Sequence[int]]
    logprobs: Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class VectorsResult:
    """How far a model is from recorded vectors.

    Attributes:
        texts, places: how many were compared.
        same_best: share of places where the recorded best token is the model's.
        kl_nats: mean divergence of a place, over the recorded tokens and one for all others, which
            is at most that over the whole vocabulary.
        worst_kl_nats: the largest of a place.
        largest_logprob_error: of a recorded token, in nats.
        max_kl_nats: limit of the mean.

    """

    texts: int
    places: int
    same_best: float
    kl_nats: float
    worst_kl_nats: float
    largest_logprob_error: float
    max_kl_nats: float

    @property
    def holds(self) -> bool:
        """Whether the mean divergence is within its limit."""
        return self.kl_nats <= self.max_kl_nats

    def to_json(self) -> dict[str, Any]:
        """Return everything as a JSON object."""
        return {"holds": self.holds, **dataclasses.asdict(self)}


class _Vectors(Fields):
    error = InputError


def read_vectors(file: Path) -> list[RecordedText]:
    """Read a file of vectors, JSON or npz by its name.

    Raises:
        InputError: it is not such a file, or too large.

    """
    try:
        data = read_regular(file, _MAX_BYTES)
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror or error}") from None
    if data is None:
        raise InputError(f"{file}: expected at most {_MAX_BYTES >> 20} MiB: split it")
    return [_npz(file)] if file.suffix == ".npz" else list(_json(data, file))


def _json(data: bytes, file: Path) -> Iterator[RecordedText]:
    raw = json_object(data)
    if raw is None:
        raise InputError(f"{file}: expected a JSON object of vectors, or an .npz file")
    fields = _Vectors(raw, str(file))
    if fields.size("vectors") != FORM:
        raise fields.wrong("vectors", str(FORM))
    texts = raw.get("texts")
    if not isinstance(texts, list) or not 1 <= len(texts) <= _MAX_TEXTS:
        raise fields.wrong("texts", f"a list of 1 to {_MAX_TEXTS} texts")
    for number, text in enumerate(texts):
        if not isinstance(text, Mapping):
            raise fields.wrong("texts", "a list of objects")
        yield _text(_Vectors(text, f"{file}: text {number}"))


def _text(fields: _Vectors) -> RecordedText:
    fields.only(*_FIELDS)
    tokens, first = fields.sizes("tokens"), fields.size("first")
    rows = fields.raw.get("top")
    if not 1 <= first < len(tokens) <= _MAX_TOKENS:
        raise fields.wrong("first", f"an index into up to {_MAX_TOKENS} tokens, from 1 on")
    if not isinstance(rows, list) or len(rows) != len(tokens) - first:
        raise fields.wrong("top", f"{len(tokens) - first} places, one for each token from first on")
    if not all(_is_row(row) for row in rows):
        raise fields.wrong("top", f"1 to {_MAX_TOP} pairs of a token and its log-probability each")
    ids = [[pair[0] for pair in row] for row in rows]
    return RecordedText(tokens, first, ids, [[float(pair[1]) for pair in row] for row in rows])


def _is_row(row: Any) -> bool:
    if not isinstance(row, list) or not 1 <= len(row) <= _MAX_TOP:
        return False
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in row):
        return False
    known = all(
        type(one) is int and one >= 0 and type(value) in (int, float) and value <= 0
        for one, value in row
    )
    return known and len({one for one, _ in row}) == len(row)


def _npz(file: Path) -> RecordedText:
    """Read arrays ``tokens`` [n], ``logits`` [n - first, vocab] and ``first``."""
    try:
        with zipfile.ZipFile(file) as archive:
            unpacked = sum(info.file_size for info in archive.infolist())
        if unpacked > 4 * _MAX_BYTES:
            raise InputError(f"{file}: expected at most {4 * _MAX_BYTES >> 20} MiB unpacked")
        with np.load(file, allow_pickle=False) as arrays:
            tokens, logits, first = arrays["tokens"], arrays["logits"], int(arrays["first"])
    except (KeyError, OSError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{file}: expected numpy's arrays tokens, first and logits: {error}"
        ) from None
    whole = np.issubdtype(tokens.dtype, np.integer) and np.issubdtype(logits.dtype, np.floating)
    if not whole or tokens.ndim != 1 or logits.ndim != 2 or not 1 <= first < len(tokens):
        raise InputError(
            f"{file}: expected whole tokens [n], logits [n - first, vocab], first >= 1"
        )
    if len(logits) != len(tokens) - first or not np.isfinite(logits).all():
        raise InputError(f"{file}: expected {len(tokens) - first} rows of finite logits")
    rows = _log_softmax(logits)
    ids = [list(range(logits.shape[1]))] * len(rows)
    return RecordedText([int(one) for one in tokens], first, ids, rows)


def _log_softmax(logits: FloatArray) -> Any:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def hold_to_vectors(
    model: str | Path,
    texts: Sequence[RecordedText],
    *,
    options: OpenOptions | None = None,
    max_kl: float = MAX_KL,
    on_text: Callable[[int, int], None] | None = None,
) -> VectorsResult:
    """Compare a target's logits, in passes of one row, with recorded vectors.

    Args:
        model: a bundle's folder, ``demo``, or a GGUF file.
        texts: of ``read_vectors``.
        options: for opening; nothing is drafted.
        max_kl: limit of the mean divergence, in nats a place.
        on_text: called with texts done and texts to do.

    Raises:
        InputError: a token is outside the vocabulary, or a text longer than the context.

    """
    places: list[tuple[float, float, bool]] = []
    with Pipeline.open(model, plainly(options or OpenOptions())) as pipeline:
        for number, text in enumerate(texts, 1):
            tokens, first = list(text.tokens), text.first
            logits = rescore(pipeline.target, tokens[:first], tokens[first:], 1)
            most = max(max(tokens), *(max(row) for row in text.ids))
            if most >= logits.shape[1]:
                raise InputError(
                    f"text {number - 1} has the token {most}, and the model {logits.shape[1]}:"
                    " expected vectors of the same vocabulary"
                )
            rows = _log_softmax(logits)
            places += map(_place, rows, text.ids, text.logprobs)
            if on_text is not None:
                on_text(number, len(texts))
    divergences, errors, same = zip(*places, strict=True)
    return VectorsResult(
        len(texts), len(places), sum(same) / len(same), sum(divergences) / len(divergences),
        max(divergences), max(errors), max_kl,
    )  # fmt: skip


def _place(
    row: FloatArray, ids: Sequence[int], logprobs: Sequence[float]
) -> tuple[float, float, bool]:
    """Return a place's divergence, largest error, and whether the best token is the same."""
    recorded, ours = np.asarray(logprobs, np.float64), row[np.asarray(ids)]
    rest = [math.log(max(1 - float(np.exp(some).sum()), 1e-12)) for some in (recorded, ours)]
    whole = len(ids) == len(row)  # no token is left over
    theirs = recorded if whole else np.append(recorded, rest[0])
    own = ours if whole else np.append(ours, rest[1])
    divergence = max(0.0, float((np.exp(theirs) * (theirs - own)).sum()))
    best = int(ids[int(recorded.argmax())])
    return divergence, float(np.abs(recorded - ours).max()), int(row.argmax()) == best
