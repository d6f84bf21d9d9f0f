"""Measures the memory of a model's cache before its first session."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path

from edgedec._support.scaled_context import scaled_context
from edgedec.decoding.session import Rollback
from edgedec.gguf.vocabulary import ENDS, listed_ends
from edgedec.runtimes.llamacpp.context import Context, cells_for
from edgedec.runtimes.llamacpp.library import Weights, api

# A state holds for each token: its position, its number of sequences, and their ids.
_CELL_BYTES = 12
_PLACE_BYTES = 12
_PLACED = {8, 24, 40}  # rotary embeddings of images, whose tokens also store coordinates
_UNUSED = 1 << 1  # llama_token_attr
_SAMPLES, _SAMPLE = 16, 1 << 16
# llama_ftype: Q4_0, Q4_K_S, Q4_K_M; F32, F16, BF16
_REPACKED, _FLOAT, _GUESSED = {2, 14, 15}, {0, 1, 32}, 1024


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts measured by a short pass.

    Attributes:
        rollback: whether tokens can be removed from the cache.
        kv_bytes_per_token: bytes of keys and values in all layers, as stored.
        state_bytes: size of a saved state without its tokens.

    """

    rollback: Rollback
    kv_bytes_per_token: int
    state_bytes: int


def measure(context: Context) -> Facts:
    """Measure the memory of two tokens; heads and widths may differ between layers.

    Args:
        context: empty.

    Raises:
        SessionError: llama.cpp cannot run this model.

    """
    two = _state_size(context, [0, 0])
    recurrent = context.weights.recurrent
    if not recurrent and context.remove(0, 1):
        rollback = Rollback.ANY
        one = api.llama_state_get_size(context.pointer)
    else:
        rollback = Rollback.RECENT if context.kept else Rollback.REPLAY
        context.clear()
        one = _state_size(context, [0])
    # One more sequence on a token adds four bytes in each of the model's caches, of which that of
    # the recurrent state does not grow with the text.
    context.share(0, 1, 0, 1)
    caches = (api.llama_state_get_size(context.pointer) - one) // 4 - recurrent
    placed = api.llama_model_rope_type(context.weights.pointer) in _PLACED
    cell = caches * (_CELL_BYTES + placed * _PLACE_BYTES)
    context.clear()
    return Facts(rollback, max(0, int(two - one - cell)), int(one))


def _state_size(context: Context, tokens: list[int]) -> int:
    context.run(tokens, 0, head=True)
    context.logits(len(tokens))  # waits for the device
    return int(api.llama_state_get_size(context.pointer))


def eos_ids(weights: Weights) -> tuple[int, ...]:
    """Return all tokens that end a text or a turn."""
    vocab, ends = weights.vocab, api.llama_vocab_is_eog
    count = int(api.llama_vocab_n_tokens(vocab))
    if listed := listed_ends(weights.text(ENDS), count):
        return tuple(listed)
    found = {t for t in range(count) if ends(vocab, t)}
    found |= {int(api.llama_vocab_eos(vocab)), int(api.llama_vocab_eot(vocab))}
    return tuple(sorted(token for token in found if token >= 0))


def longest_text(weights: Weights) -> int:
    """Return the tokens of the longest text, by the scaling of positions."""
    stated = int(api.llama_model_n_ctx_train(weights.pointer))
    scaling = f"{weights.text('general.architecture')}.rope.scaling."
    factor, original = (
        _number(weights.text(f"{scaling}{key}")) for key in ("factor", "original_context_length")
    )
    return scaled_context(weights.text(f"{scaling}type") or "linear", stated, factor, original)


def _number(value: str | None) -> float:
    """Return a value of the file's metadata above 0, which llama.cpp writes as text, or 0."""
    try:
        found = float(value or 0)
    except ValueError:
        return 0.0
    return found if 0 < found < math.inf else 0.0


def first_padding(weights: Weights) -> int:
    """Return the number of tokens before the rows that pad the vocabulary.

    Converters call those unused. llama.cpp also does so with tokens of a name like Gemma's
    ``<unused7>``, which a model may write.
    """
    end = int(api.llama_vocab_n_tokens(weights.vocab))
    while end > 1 and _is_padding(weights, end - 1):
        end -= 1
    return end


def _is_padding(weights: Weights, token: int) -> bool:
    if not api.llama_vocab_get_attr(weights.vocab, token) & _UNUSED:
        return False
    return not api.llama_vocab_get_text(weights.vocab, token).startswith(b"<unused")


def in_fours(weights: Weights) -> bool:
    """Return whether the kernels compute four rows at once and the rest one by one.

    They do if a build repacks weights of these types for the processor. One thread, ms for 1 to 4
    rows: 20, 31, 39, 25 (Q4_0) and 15, 24, 31, 26 (Q4_K_M).
    """
    kind = int(api.llama_model_ftype(weights.pointer)) & ~_GUESSED
    return kind in _REPACKED and b"REPACK = 1" in api.llama_print_system_info()


def quantised(weights: Weights) -> bool:
    """Return whether most weights are quantised, so that activations are rounded to int8."""
    return int(api.llama_model_ftype(weights.pointer)) & ~_GUESSED not in _FLOAT


def least_cells(weights: Weights, capacity: int) -> int:
    """Return the cells that a context of this capacity must have when it is created.

    Some models use other rotary angles in contexts longer than in their original training
    (longrope). llama.cpp chooses by the context's size, not by the number of tokens in it, so no
    session may grow across that limit.
    """
    scaling = f"{weights.text('general.architecture')}.rope.scaling."
    if weights.text(f"{scaling}type") in ("linear", "yarn"):  # of one kind of angles
        return 1
    trained = int(weights.text(f"{scaling}original_context_length") or 0)
    return trained if trained and cells_for(capacity) > trained else 1


def fingerprint(file: Path) -> str:
    """Return a hash of a file's size and of samples spread over it."""
    size = file.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with file.open("rb") as stream:
        for index in range(_SAMPLES):
            stream.seek(index * max(0, size - _SAMPLE) // (_SAMPLES - 1))
            digest.update(stream.read(_SAMPLE))
    return digest.hexdigest()
