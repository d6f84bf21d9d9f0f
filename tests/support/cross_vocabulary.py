"""Pairs whose vocabularies differ: a tokenizer with fewer merges and other ids, and its views."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from tokenizers import Tokenizer as Backend

from edgedec.decoding.drafting._translated import TranslatedSession
from edgedec.decoding.session import Capabilities, Model, ModelInfo, Session
from edgedec.decoding.translation import Translation
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.testing import FakeModel
from edgedec.text.spelling import Encoder
from edgedec.text.tokenizer import Tokenizer


@dataclass
class Translated:
    """A model whose sessions speak another vocabulary."""

    inner: Model
    translation: Translation

    @property
    def info(self) -> ModelInfo:
        return replace(self.inner.info, vocab_size=self.translation.target_columns)

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    def open(self, capacity: int) -> Session:
        return TranslatedSession(self.inner.open(capacity), self.translation)

    def close(self) -> None:
        self.inner.close()


def permutation(size: int, columns: int | None = None, seed: int = 3) -> Translation:
    """Every target token is another id of the draft's, of which there may be more."""
    columns = columns or size
    ids = np.random.default_rng(seed).permutation(columns)[:size]
    return Translation.of_ids(ids.tolist(), columns)


def reduced(tokenizer: Backend, keep: float, seed: int = 5) -> tuple[Tokenizer, Translation]:
    """A byte-level BPE tokenizer without its last merges, its ids shuffled.

    Args:
        tokenizer: special tokens first, then single bytes, then merges in order.
        keep: share of the tokens that stay, the most frequent ones.
        seed: of the shuffling.

    Returns:
        The tokenizer, and from its ids to the first one's: what a model of the first needs
        to be a model of the second.

    """
    parsed = json.loads(tokenizer.to_str())
    model = parsed["model"]
    old = [token for token, _ in sorted(model["vocab"].items(), key=lambda item: item[1])]
    old = old[: int(keep * len(old))]
    order = np.random.default_rng(seed).permutation(len(old)).tolist()
    names = {old[was]: new for new, was in enumerate(order)}
    model["vocab"] = names
    model["merges"] = [pair for pair in model["merges"] if {"".join(pair), *pair} <= names.keys()]
    for added in parsed["added_tokens"]:
        added["id"] = names[added["content"]]
    view = Translation.of_ids(order, tokenizer.get_vocab_size())
    return Tokenizer(Backend.from_str(json.dumps(parsed)), {}), view


class Respelled(FakeModel):
    """A trained model as it would be behind another tokenizer.

    Each token of its own vocabulary is spelled in the other's; the next piece has the
    probability of all tokens that go on with it. The last token of the text may be whole, or
    the beginning of a longer one.

    Args:
        inner: the trained model.
        own: its tokenizer.
        other: the tokenizer it seems to have.

    """

    def __init__(self, inner: Model, own: Tokenizer, other: Tokenizer) -> None:
        super().__init__(other.vocab_size)
        self._own = Encoder(own, own.token_bytes(inner.info.vocab_size))
        self._other = other.token_bytes(other.vocab_size)
        encode = Encoder(other, self._other).encode
        self._pieces = [tuple(encode(b, first=False)) if b else () for b in self._own.spelled]
        self._first = np.array([p[0] if p else -1 for p in self._pieces])
        self._longer: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for token, pieces in enumerate(self._pieces):
            for cut in range(1, len(pieces)):
                self._longer.setdefault(pieces[:cut], []).append((token, pieces[cut]))
        self._session = inner.open(inner.info.max_context)
        self._held: list[int] = []

    def logits(self, tokens: Sequence[int]) -> FloatArray:
        text = b"".join(self._other[token] or b"" for token in tokens)
        ids = self._own.encode(text, first=False)
        if not ids:
            return np.zeros(self.info.vocab_size, dtype=np.float32)
        before, after = self._chances(ids)
        sayable = self._first >= 0
        chances = np.bincount(self._first[sayable], after[sayable], minlength=self.info.vocab_size)
        longer = self._longer.get(self._pieces[ids[-1]], [])
        chances *= before[ids[-1]]
        for token, piece in longer:
            chances[piece] += before[token]
        with np.errstate(divide="ignore"):
            row: FloatArray = np.log(chances / chances.sum()).astype(np.float32)
        return row

    def _chances(self, ids: list[int]) -> tuple[FloatArray, FloatArray]:
        """Probabilities of the last token's place and of the next one's."""
        session, held = self._session, self._held
        shared = 0
        while shared < min(len(held), len(ids) - 2) and held[shared] == ids[shared]:
            shared += 1
        session.rollback(shared)
        if len(ids) - 2 > shared:
            session.prefill(ids[shared:-2])
        self._held = ids[: max(0, len(ids) - 2)]
        rows = session.forward(TokenTree.chain(ids[len(self._held) :])).logits
        assert rows is not None
        weights = np.exp(rows - rows.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        return weights[0], weights[-1]
