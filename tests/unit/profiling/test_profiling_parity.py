"""Right numbers and wrong ones: broken twins of a session are told from it."""

import dataclasses

import numpy as np
import pytest

from edgedec.decoding.session import Pass
from edgedec.decoding.tree import TokenTree
from edgedec.profiling import parity
from edgedec.testing import FakeModel

MODEL = FakeModel(vocab_size=64, seed=4, sharpness=3.0)
SAMPLE = np.random.default_rng(0).integers(0, 64, 80).tolist()


class Broken:
    """A session that gets something wrong."""

    def __init__(self, wrong: str) -> None:
        self._session, self._wrong = MODEL.open(400), wrong

    def __getattr__(self, name: str):
        return getattr(self._session, name)

    def prefill(self, tokens, on_chunk=None) -> None:
        # One token of the cache is another.
        tokens = [0, *tokens[1:]] if self._wrong == "cache" else tokens
        self._session.prefill(tokens, on_chunk)

    def forward(self, tree, start=0, **more) -> Pass:
        scored = self._session.forward(tree, start, **more)
        logits = scored.logits.copy()
        if self._wrong == "rows":  # right alone, wrong with others
            logits = np.roll(logits, 1, axis=0)
        elif self._wrong == "tree" and not tree.is_chain:  # siblings see each other
            chain = TokenTree.chain(tree.tokens)
            self._session.rollback(self._session.length)
            logits = self._session.forward(chain).logits.copy()
        elif self._wrong == "columns":
            logits = np.roll(logits, 1, axis=1)
        elif self._wrong == "nothing":
            logits[:] = 0
        elif self._wrong == "nan":
            logits[-1, 3] = np.nan
        elif self._wrong == "infinite":
            logits[0, 3] = np.inf
        elif self._wrong == "rounded":
            logits += np.random.default_rng(1).normal(0, 0.02, logits.shape).astype(np.float32)
        return dataclasses.replace(scored, logits=logits)


RIGHT = parity.rows(MODEL.open(400), SAMPLE, tree=True)


def judged(wrong: str, *, same_file: bool = True):
    return parity.compare(
        RIGHT, parity.rows(Broken(wrong), SAMPLE, tree=True), "onnx cpu x1", same_file=same_file
    )


def test_the_same_numbers_are_usable() -> None:
    session = MODEL.open(400)
    for tree in (True, False):
        rows = parity.rows(session, SAMPLE, tree=tree)
        assert len(rows) == sum(parity.PASSES) + 6 * tree
        found = parity.compare(RIGHT, rows, "x", same_file=True)
        assert (found.agreement, found.divergence, found.usable) == (1.0, 0.0, True)
        assert session.length == 0


def test_rounding_is_usable_and_told() -> None:
    found = judged("rounded")
    assert found.usable
    assert 0 < found.divergence < 0.01


@pytest.mark.parametrize("wrong", ["cache", "rows", "columns", "nothing", "tree"])
def test_wrong_numbers_are_not_used_whatever_the_files(wrong: str) -> None:
    for same_file in (True, False):
        found = judged(wrong, same_file=same_file)
        assert not found.usable
        assert "wrong results" in found.reason
        assert "onnx cpu x1" in found.reason


@pytest.mark.parametrize("wrong", ["nan", "infinite"])
def test_what_is_no_number_is_not_used(wrong: str) -> None:
    found = judged(wrong)
    assert not found.usable
    assert "NaN or infinity" in found.reason


def test_other_columns_are_not_used() -> None:
    assert not parity.compare(RIGHT, RIGHT[:, :-1], "x", same_file=False).usable


def test_padding_columns_of_minus_infinity_are_no_fault() -> None:
    padded = RIGHT.copy()
    padded[:, 60:] = -np.inf
    found = parity.compare(padded, padded.copy(), "x", same_file=True)
    assert found.usable
    assert found.divergence == 0
