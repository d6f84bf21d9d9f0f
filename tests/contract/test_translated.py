"""A session that translates passes the contract too, and broken translations do not."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from edgedec.decoding.drafting._translated import TranslatedSession
from edgedec.decoding.session import Capabilities, Model, ModelInfo, Session
from edgedec.decoding.translation import Translation
from edgedec.testing import FakeModel, SessionContract

VOCAB = 32


def permutation(size: int = VOCAB, columns: int = VOCAB) -> Translation:
    """Every target token is another id of the draft's, of which there may be more."""
    return Translation.of_ids(
        np.random.default_rng(3).permutation(columns)[:size].tolist(), columns
    )


@dataclass
class Translated:
    """A model whose sessions translate."""

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


class TestPermuted(SessionContract):
    @pytest.fixture
    def model(self) -> Model:
        return Translated(FakeModel(VOCAB), permutation())
