"""With a draft from another vocabulary the same text as without one, whatever it knows."""

from __future__ import annotations

import functools

import pytest
import tiny_tokenizers
from cross_vocabulary import Respelled
from kinds import each_once

from edgedec.decoding import acceptance, drafting
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.engine import Engine
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import Fixed
from edgedec.decoding.sampling import SamplingParams
from edgedec.decoding.translation import Translation
from edgedec.testing import FakeModel, decoding
from edgedec.text.tokenizer import Tokenizer
from edgedec.text.vocabulary_map import translate

CROSSINGS = [
    ("byte-level", "llama"),
    ("llama", "byte-level"),
    ("byte-level", "metaspace"),
    ("metaspace", "llama"),
    ("gemma", "byte-level"),
]
DRAFTERS = ["model", "tree", "hybrid", "adaptive", "strings"]
SAMPLERS = {
    "greedy": SamplingParams(),
    "temperature": SamplingParams(temperature=0.9, seed=7),
    "top-p": SamplingParams(temperature=1.2, top_p=0.8, top_k=40, seed=8),
    "penalised": SamplingParams(temperature=0.8, repetition_penalty=1.3, seed=9),
}
# Tokens that only one side has, an emoji that neither does, and half of one at the end.
TEXT = "def add(x):\n    return x  # naïve 🙂 Mädchen\n\n  for i in [index]: print('hello 思')"


@functools.cache
def tokenizer(kind: str) -> Tokenizer:
    return Tokenizer(tiny_tokenizers.KINDS[kind](), {"bos_token": "<s>", "eos_token": "</s>"})


@functools.cache
def models(kind: str) -> tuple[FakeModel, FakeModel]:
    """A target, and what a draft knows of it in the target's own tokens."""
    size = tokenizer(kind).vocab_size
    target = FakeModel(size, seed=1, context=1, sharpness=3.0)
    return target, FakeModel(size, seed=2, context=1, sharpness=3.0, like=(target, 0.9))


@functools.cache
def translation_between(kind: str, other: str) -> tuple[Translation, FakeModel]:
    translation = translate(tokenizer(kind), tokenizer(other))
    return translation, Respelled(models(kind)[1], tokenizer(kind), tokenizer(other))


def prompt(kind: str) -> list[int]:
    ids = tokenizer(kind).encode(TEXT)
    half = tokenizer(kind).encode("🙃", add_special_tokens=False)[:-2]
    return ids + half


def decode(
    kind: str, drafter: str, params: SamplingParams, *, other: str = "", rule: str = "coupling"
) -> tuple[list[int], Metrics]:
    target = models(kind)[0]
    translation, draft = translation_between(kind, other) if other else (None, None)
    size = target.info.vocab_size
    built = drafting.create(
        drafter, DrafterParts(size, draft.open(400) if draft else None, translation=translation)
    )
    chosen = acceptance.rule(rule)
    engine = Engine(target.open(400), built, Fixed(5, depth=3), chosen)
    words, metrics = prompt(kind), Metrics()
    asked = decoding.request(params, size, words, coupled=chosen.coupled, max_new_tokens=40)
    return decoding.decode(engine, asked, metrics).tokens, metrics


@functools.cache
def plain(kind: str, sampler: str) -> list[int]:
    return decode(kind, "none", SAMPLERS[sampler])[0]


@pytest.mark.parametrize(("drafter", "sampler"), each_once(DRAFTERS, SAMPLERS))
def test_the_same_text(drafter: str, sampler: str) -> None:
    accepted = drafted = 0
    for kind, other in CROSSINGS:
        tokens, metrics = decode(kind, drafter, SAMPLERS[sampler], other=other)
        assert tokens == plain(kind, sampler), (kind, other)
        accepted += metrics.accepted_tokens
        drafted += metrics.drafted_tokens
    # Otherwise the matrix would say nothing of drafts that are right.
    assert 20 < accepted < drafted


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_the_same_for_a_draft_with_noise_of_its_own(drafter: str) -> None:
    tokens, metrics = decode(
        "llama", drafter, SAMPLERS["temperature"], other="byte-level", rule="match"
    )
    assert tokens == plain("llama", "temperature")
    assert metrics.drafted_tokens > 0


def test_the_texts_are_hard() -> None:
    """Half characters and tokens that only one side has come up in what is decoded."""
    for kind, other in CROSSINGS:
        translation, _ = translation_between(kind, other)
        texts = [plain(kind, name) for name in SAMPLERS]
        outside = [token for text in texts for token in text if translation.to_draft[token] < 0]
        assert len(outside) > 10, (kind, other)
    said = [tokenizer("byte-level").decode(plain("byte-level", name)) for name in SAMPLERS]
    assert any("\ufffd" in text for text in said)
