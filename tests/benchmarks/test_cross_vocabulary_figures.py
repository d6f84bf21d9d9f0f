"""What another vocabulary costs a trained draft: the demo pair under other tokenizers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import pytest
from cross_vocabulary import Respelled, Translated, reduced
from tokenizers import Tokenizer as Backend

from edgedec.decoding import acceptance, drafting
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.engine import Engine
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import Fixed
from edgedec.decoding.request import Request
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.decoding.session import Model
from edgedec.decoding.stopping import StopRule
from edgedec.decoding.translation import Translation
from edgedec.models.demo import BUNDLE
from edgedec.models.demo.heldout import heldout_prompts
from edgedec.records.load import LoadOptions
from edgedec.runtimes.onnx import adapter as onnx
from edgedec.text.tokenizer import Tokenizer
from edgedec.text.vocabulary_map import translate

pytestmark = pytest.mark.slow

PROMPTS, TOKENS = 6, 64
FILE = BUNDLE / "tokenizer" / "tokenizer.json"

Measure = Callable[..., float]


@functools.cache
def own() -> Tokenizer:
    return Tokenizer.load(FILE.parent)


@pytest.fixture(scope="module")
def models() -> Iterator[tuple[Model, Model]]:
    options = LoadOptions(threads=1)
    pair = [onnx.load(BUNDLE / role / "model.onnx", options) for role in ("target", "draft")]
    yield pair[0], pair[1]
    for model in pair:
        model.close()


@pytest.fixture(scope="module")
def emitted(models: tuple[Model, Model]) -> Measure:
    """Tokens a target pass with drafts of four."""
    prompts = [own().encode(prompt.text) for prompt in heldout_prompts(PROMPTS)]

    def measure(
        name: str, draft: Model, translation: Translation | None = None, temperature: float = 0.0
    ) -> float:
        target, rule = models[0], acceptance.rule("coupling")
        size = target.info.vocab_size
        drafter = drafting.create(
            name, DrafterParts(size, draft.open(1024), translation=translation)
        )
        engine, metrics = Engine(target.open(1024), drafter, Fixed(4), rule), Metrics()
        for seed, prompt in enumerate(prompts):
            params = SamplingParams(temperature=temperature, seed=seed)
            request = Request(
                prompt, Sampler(params, size, prompt), StopRule(max_new_tokens=TOKENS)
            )
            for _ in engine.run(request, metrics):
                pass
        figure = metrics.block_efficiency
        print(
            f"{name:8} T={temperature} {figure:.2f} a pass, {metrics.acceptance_rate:.1%} accepted"
        )
        return figure

    return measure


def other(keep: float) -> tuple[Tokenizer, Translation, Translation]:
    """A tokenizer with this share of the tokens, its view, and the translation to it."""
    tokenizer, view = reduced(Backend.from_file(str(FILE)), keep)
    translation = translate(
        own(), tokenizer, target_columns=4096, draft_columns=view.target_columns
    )
    return tokenizer, view, translation


def test_other_names_for_the_same_tokens_cost_nothing(
    models: tuple[Model, Model], emitted: Measure
) -> None:
    _, view, translation = other(1)
    best = emitted("model", models[1])
    assert emitted("model", Translated(models[1], view), translation) == pytest.approx(
        best, rel=0.01
    )
    assert emitted("strings", Translated(models[1], view), translation) > 0.97 * best


def test_without_the_rarest_third_most_is_kept(
    models: tuple[Model, Model], emitted: Measure
) -> None:
    """By tokens a word that the draft must spell is lost; by text it is not."""
    tokenizer, view, translation = other(0.7)
    best = emitted("model", models[1])
    # Seen without those tokens, the draft never says what they would have said.
    assert emitted("model", Translated(models[1], view), translation) > 0.9 * best
    spells = Respelled(models[1], own(), tokenizer)
    by_tokens, by_text = (emitted(name, spells, translation) for name in ("model", "strings"))
    assert 0.8 * best < by_tokens < by_text
    assert by_text > 0.92 * best


def test_by_text_pays_where_the_choice_says_so(
    models: tuple[Model, Model], emitted: Measure
) -> None:
    for keep in (0.9, 0.4):
        tokenizer, _, translation = other(keep)
        spells = Respelled(models[1], own(), tokenizer)
        by_tokens, by_text = (emitted(name, spells, translation) for name in ("model", "strings"))
        assert translation.level == ("token" if keep == 0.9 else "string")
        chosen = by_tokens if translation.level == "token" else by_text
        assert chosen > 0.98 * max(by_tokens, by_text)
