"""Texts for calibration, the user's own or samples of the model, and an int8 cache's scales.

A model's own samples resemble what it reads in use, and the user need not supply a text. It samples
them at temperature 1, without a prompt, or with a chat template after what precedes a user's first
words: then it writes question and answer. Without that, models that were tuned for chats write what
nobody reads, and weights that were rounded for it lose more than plainly rounded ones. It samples
them in int8, since small models in plain int4 write worse than they read.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from edgedec.decoding.session import Model, Session, Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import BundleError, InputError, UnsupportedArchitecture
from edgedec.export.job import ExportJob
from edgedec.export.onnx import GraphOptions, write_model
from edgedec.export.options import Progress
from edgedec.export.reference import Reference
from edgedec.export.sample import read_text
from edgedec.export.tensors import TensorReader
from edgedec.models.decoder import DecoderSpec
from edgedec.text.tokenizer import Tokenizer

TOKENS = 8_192
# Of texts that are only measured on, and of each of these.
FEW, _FEW_WRITTEN = 1024, 128
# Weights of a model that is sampled in int4, since it is large enough for that.
_LARGE = 1 << 30
_LENGTH = 512  # of a user's text
_WRITTEN = 256
# Texts sampled at the same time: each row computes scores for the keys of all and masks others'.
_TOGETHER = 8
# With fewer tokens a matrix of a thousand columns is fitted to noise.
_LEAST = 1024
# With fewer different tokens it is most likely a text whose characters the tokenizer lacks.
_LEAST_KINDS = 8
_SEED = 1
# One in so many texts is measured on: about 500 tokens of those that a model writes.
_HELD_OUT = 16
# Stands for a user's words in a rendered template.
_MARK = "edgedec-user-words"
_SMALLEST_NOISE = np.float32(2.0**-25)

Texts = tuple[tuple[int, ...], ...]


def texts(job: ExportJob, folder: Path, progress: Progress, few: bool = False) -> Texts:
    """Return the texts that a target and its draft are calibrated on, in the target's tokens.

    Args:
        job: the target's.
        folder: scratch space for a model.
        few: they are only measured on.

    Raises:
        InputError: the user's text cannot be read, is too short, or is not for this tokenizer.
        UnsupportedArchitecture: ONNX Runtime cannot run the model, so it cannot be sampled.

    """
    file = job.options.calibration_text
    if file is None:
        return _self_written(job, folder, progress, few)
    tokens = Tokenizer.load(job.checkpoint.texts).encode(read_text(file))[:TOKENS]
    if len(tokens) < _LEAST:
        raise InputError(f"{file} gives {len(tokens)} tokens to calibrate on, expected {_LEAST}")
    if (kinds := len(set(tokens))) < _LEAST_KINDS:
        raise InputError(
            f"{file} gives {kinds} different tokens, expected {_LEAST_KINDS} or more: give a text"
            f" that the tokenizer of {job.checkpoint.name} knows"
        )
    count = -(-len(tokens) // min(_LENGTH, job.spec.max_context))
    # Of one length: a rest of a token or two would be all that is measured on.
    ends = [len(tokens) * number // count for number in range(count + 1)]
    return tuple(tuple(tokens[start:end]) for start, end in itertools.pairwise(ends))


def retokenized(written: Texts, source: Path, other: Path) -> Texts:
    """Return the texts in the tokens of another tokenizer, without special tokens.

    Raises:
        InputError: it has none, or a single one, for each of them.

    """
    decode, encode = Tokenizer.load(source).decode, Tokenizer.load(other).encode
    found = (tuple(encode(decode(list(text)))) for text in written)
    if kept := tuple(text for text in found if len(text) > 1):
        return kept
    raise InputError(
        f"{other}: its tokenizer reads nothing of the texts to calibrate on: give one that both"
        " models know with --calibration-text"
    )


def held_out(written: Texts) -> tuple[Texts, Texts]:
    """Return texts to calibrate on, and others to measure on: some, or half of a single one."""
    if len(written) == 1:
        half = len(written[0]) // 2
        return (written[0][:half],), (written[0][half:],)
    count = max(len(written) // _HELD_OUT, 1)
    return written[:-count], written[-count:]


def _self_written(job: ExportJob, folder: Path, progress: Progress, few: bool) -> Texts:
    from edgedec.runtimes.onnx.model import OnnxModel

    weights = "int4" if job.spec.parameters > _LARGE else "int8"
    options = GraphOptions(job.checkpoint.name, weights=weights)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        try:
            write_model(job.spec, job.tensors, Path(name), options)
        except UnsupportedArchitecture as error:
            reason = str(error).split(":")[0]
            raise UnsupportedArchitecture(
                f"no texts to calibrate on, since {reason}: give one with --calibration-text"
            ) from None
        model = OnnxModel.load(name, batch_invariant=False)
        try:
            amount = (FEW, _FEW_WRITTEN) if few else (TOKENS, _WRITTEN)
            return _written(model, _first(job), job.spec.max_context, amount, progress)
        finally:
            model.close()


def _first(job: ExportJob) -> list[int]:
    """Return a text's first tokens: of a chat, the tokenizer's own, or the one that ends texts.

    Those of a chat are what its template writes before the words of a user.
    """
    tokenizer = Tokenizer.load(job.checkpoint.texts)
    begun = _before_user(tokenizer) or tokenizer.encode("")
    fits = len(begun) <= job.spec.max_context // 2
    return begun if begun and fits else [(job.checkpoint.eos_ids or (0,))[0]]


def _before_user(tokenizer: Tokenizer) -> list[int]:
    """Return the tokens before a user's first words; none without a template that can be read."""
    template = tokenizer.chat_template
    if template is None:
        return []
    try:
        text = template.render([{"role": "user", "content": _MARK}])
    except (BundleError, InputError):  # it asks for more than a user's message, or fails
        return []
    before, marked, _ = text.partition(_MARK)
    return tokenizer.encode(before, add_special_tokens=False) if marked else []


def _written(
    model: Model,
    first: Sequence[int],
    longest: int,
    amount: tuple[int, int],
    progress: Progress,
) -> Texts:
    tokens, written = amount
    length = min(len(first) - 1 + max(written, 2), longest)
    most = _TOGETHER if model.capabilities.tree else 1
    together = max(1, min(most, (longest - len(first)) // (length - len(first))))
    found: list[tuple[int, ...]] = []
    rng = np.random.default_rng(_SEED)
    while (done := len(found) * length) < tokens:
        progress("calibration text", done, tokens)
        found += _together(model, first, length, together, rng)
    progress("calibration text", tokens, tokens)
    return tuple(found)


def _together(
    model: Model, first: Sequence[int], length: int, count: int, rng: np.random.Generator
) -> list[tuple[int, ...]]:
    """Sample texts as branches of one tree, so that a pass reads the weights once for all."""
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
            for index, token in enumerate(logits.argmax(axis=1).tolist()):
                texts[index].append(token)
                ends[index] = tree.add(token, ends[index])
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


# -- scales of an int8 cache, from the keys and values of a text --------------------------------

# Keys and values of other texts may be a little larger.
_MARGIN = 1.25


def kv_scales(
    spec: DecoderSpec,
    tensors: TensorReader,
    tokens: Sequence[int],
    on_layer: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[tuple[FloatArray, FloatArray], ...]:
    """Return the scales of keys and of values by layer, each ``[kv_heads, head_dim]`` float32.

    A channel's scale is its largest magnitude over 127, with a margin. A pair of a key's channels
    that rotates together shares the pair's largest length, which no position can exceed.
    """
    scales: list[tuple[FloatArray, FloatArray]] = []

    def listen(layer: int, keys: FloatArray, values: FloatArray) -> None:
        largest = np.abs(keys).max(axis=0)
        if spec.ropes[layer] is not None:
            dim = spec.at(layer).rotary_dim
            pairs = np.hypot(*np.split(keys[..., :dim], 2, axis=-1)).max(axis=0)
            largest[:, :dim] = np.tile(pairs, 2)
        scales.append((_scale(largest), _scale(np.abs(values).max(axis=0))))

    reference = Reference(spec, tensors, listen)
    x = reference.embed(tokens)
    for layer in range(spec.layers):
        x = reference.layer(layer, x)
        on_layer(layer + 1, spec.layers)
    return tuple(scales)


def _scale(largest: FloatArray) -> FloatArray:
    scale: FloatArray = np.maximum(largest * np.float32(_MARGIN / 127), np.float32(1e-8))
    return scale
