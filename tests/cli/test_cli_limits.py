"""Limits in all combinations: a text that ends where it must, or one line that names the limit."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kinds
import pytest

from edgedec.errors import PromptTooLong
from edgedec.loading.build import OpenOptions
from edgedec.loading.capacity import check_prompt
from edgedec.pipeline import Pipeline
from edgedec.runtimes.onnx.model import OnnxModel

TRAINED = 4096
CONTEXTS = [None, 16, TRAINED + 1, 2, 40, TRAINED]
HELD = [None, 0, 10, 24, 200, 10**6]  # tokens that --kv-memory holds
PROMPTS = {1: "a", 14: "a" * 14, 40: "a" * 40, 41: "a" * 41, 600: "ab" * 300, 5000: "b" * 5000}
NEW = [1, 30]


@pytest.fixture(scope="module")
def token_bytes(bundle: Path) -> int:
    """Of a token in both caches."""
    with Pipeline.open(bundle, max_context=100) as pipeline:
        return int(pipeline.plan["kv_bytes"]) // 100


@pytest.fixture(scope="module")
def tokens(bundle: Path) -> dict[str, int]:
    with Pipeline.open(bundle) as pipeline:
        return {text: len(pipeline.tokenizer.encode(text)) for text in PROMPTS.values()}


def expected(context: int | None, held: int | None, tokens: int) -> tuple[str, int]:
    """The option that a refusal names, or an empty text; and how many tokens fit."""
    fits = min(TRAINED, context or TRAINED)
    if tokens > fits:  # said first, since the tokenizer alone can tell
        return ("--max-context" if context and context < TRAINED else "trained"), 0
    if context and context > TRAINED:
        return "--max-context", 0
    if held is not None and held < fits:
        if held < min(16, fits):
            return "--kv-memory", 0
        if context:
            return "--max-context", 0
        fits = held
    return ("--kv-memory" if tokens > fits else ""), fits


@pytest.mark.parametrize("context", kinds.in_full(CONTEXTS))
def test_every_combination_ends_in_a_text_or_in_one_line(
    run: Callable[..., Any],
    one_line: Callable[..., str],
    bundle: Path,
    token_bytes: int,
    tokens: dict[str, int],
    context: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded: list[object] = []
    honest = OnnxModel.load

    def load(*args: Any, **named: Any) -> OnnxModel:
        loaded.append(args)
        return honest(*args, **named)

    monkeypatch.setattr(OnnxModel, "load", load)
    met = set()
    for held, text, new in itertools.product(HELD, PROMPTS.values(), NEW):
        ask: list[object] = ["generate", bundle, text, "--max-new-tokens", new, "--json"]
        ask += ["--logit-bias", "0=-100000"]
        ask += [] if context is None else ["--max-context", context]
        ask += [] if held is None else ["--kv-memory", f"{held * token_bytes}B"]
        named, fits = expected(context, held, tokens[text])
        del loaded[:]
        result = run(*ask)
        met.add(named)
        if named:
            line = one_line(result)
            assert named in line, (ask, line)
            early = tokens[text] > min(TRAINED, context or TRAINED) or (context or 0) > TRAINED
            # Of --kv-memory the target's part is known; prompts of a few words are not counted.
            target_bytes = 0.5 * token_bytes * tokens[text]
            early |= (
                context is None and len(text) > 112 and (held or 0) * token_bytes < target_bytes
            )
            assert not (early and loaded), (ask, "a model was loaded for nothing")
            continue
        assert result.exit_code == 0, (ask, result.output)
        found = json.loads(result.stdout)
        assert len(found["token_ids"]) == min(new, fits - tokens[text] + 1), ask
        assert found["finish_reason"] == "length"
    assert len(met) > 1 or context == TRAINED + 1


@pytest.mark.parametrize("context", [None, 30])
def test_a_conversation_too(
    run: Callable[..., Any], one_line: Callable[..., str], bundle: Path, context: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delattr(OnnxModel, "load")
    ask = ["generate", bundle, "b" * 5000, "--system", "Be brief."]
    line = one_line(run(*ask, *([] if context is None else ["--max-context", context])))
    assert f"the context holds {context or TRAINED}: shorten it" in line


def test_a_short_prompt_costs_no_second_look_at_the_files(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[object] = []
    monkeypatch.setattr("edgedec.loading.build.find_pair", lambda *args: looked.append(args))
    check_prompt(bundle, OpenOptions(), "a" * 112)
    check_prompt(bundle, OpenOptions(max_context=68), "a")
    assert not looked
    monkeypatch.undo()
    with pytest.raises(PromptTooLong, match="raise --max-context"):
        check_prompt(bundle, OpenOptions(max_context=20), "a" * 30)


def test_python_is_told_the_limit_that_binds(bundle: Path, token_bytes: int) -> None:
    prompt = list(range(5, 105))
    for options, named in (
        ({"max_context": 50}, "raise --max-context"),
        ({"kv_memory": 60 * token_bytes}, "raise --kv-memory"),
        ({"context_limit": 70}, "give more --memory"),
    ):
        with (
            Pipeline.open(bundle, **options) as pipeline,
            pytest.raises(PromptTooLong, match=named),
        ):
            pipeline.generate(prompt)
    with (
        Pipeline.open(bundle) as pipeline,
        pytest.raises(PromptTooLong, match="not trained for more"),
    ):
        pipeline.generate([5] * (TRAINED + 1))
