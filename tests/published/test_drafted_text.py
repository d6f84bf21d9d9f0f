"""Drafts do not change a published model's text: every drafter, real prompts, Gemma's window."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from broken_rules import accepts_one_more
from real_prompts import LONG, PROMPTS

from edgedec.pipeline import Pipeline

COUNT = 24
WINDOW = 512
# Those that need no head. ``parallel`` needs a draft that was trained for it; ``strings`` one of
# another vocabulary, as Gemma has it below.
WITHOUT_DRAFT = ("lookup", "recycle", "text")
WITH_DRAFT = ("adaptive", "hybrid", "model")
# Its rows have several branches: with ``--batch-invariant`` only chains are verified.
BRANCHES = ("tree",)
SAMPLED = {"temperature": 0.7, "top_p": 0.95, "seed": 11}
Texts = list[list[int]]


def written(model: Path, prompts: list[str], drafter: str, **options: Any) -> Texts:
    """Return the texts after some prompts, every other one sampled with a seed."""
    if drafter not in ("none", "auto"):
        options.setdefault("draft_length", 3)
    with Pipeline.open(model, drafter=drafter, plan="none", threads=1, **options) as pipeline:
        found, drafted = [], 0
        for number, prompt in enumerate(prompts):
            pipeline.forget()
            ask = {"max_new_tokens": COUNT, "ignore_eos": True} | (SAMPLED if number % 2 else {})
            done = pipeline.generate(prompt, **ask)
            drafted += done.metrics.drafted_tokens
            found.append(done.token_ids)
    assert drafted or drafter in ("none", "auto"), "nothing was drafted, so nothing is shown"
    return found


@pytest.fixture(scope="module")
def draft(smollm2: Path, requantised: Callable[[Path, str], Path]) -> Path:
    """The same weights rounded once more: often right, not always."""
    return requantised(smollm2, "q4_0")


TEXTS = [*PROMPTS.values()]


@pytest.fixture(scope="module")
def plain_gguf(smollm2: Path) -> Texts:
    return written(smollm2, TEXTS, "none", batch_invariant=True)


@pytest.mark.parametrize("drafter", [*WITHOUT_DRAFT, *WITH_DRAFT, "auto"])
def test_in_gguf_with_rows_that_do_not_depend_on_their_pass(
    smollm2: Path, draft: Path, plain_gguf: Texts, drafter: str
) -> None:
    more = {} if drafter in WITHOUT_DRAFT else {"draft": draft}
    assert written(smollm2, TEXTS, drafter, batch_invariant=True, **more) == plain_gguf


def test_a_broken_rule_is_seen(
    smollm2: Path, draft: Path, plain_gguf: Texts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    accepts_one_more(monkeypatch)
    found = written(smollm2, TEXTS, "model", batch_invariant=True, draft=draft)
    assert found != plain_gguf


@pytest.fixture(scope="module")
def plain_onnx(smollm2: Path, exported: Callable[[Path, str], Path]) -> Texts:
    return written(exported(smollm2, "fp32"), TEXTS, "none")


@pytest.mark.parametrize("drafter", [*WITHOUT_DRAFT, *WITH_DRAFT, *BRANCHES, "auto"])
def test_in_onnx_fp32(
    smollm2: Path, exported: Callable[[Path, str], Path], plain_onnx: Texts, drafter: str
) -> None:
    more = {} if drafter in WITHOUT_DRAFT else {"draft": exported(smollm2, "int4")}
    assert written(exported(smollm2, "fp32"), TEXTS, drafter, **more) == plain_onnx


BEYOND = [LONG, f"{LONG} radishes", *TEXTS[:2]]


@pytest.fixture(scope="module")
def gemma_fp32(gemma3: Path, requantised: Callable[[Path, str], Path]) -> Path:
    """Rows of K-quants depend on how many are computed together, even in pairs; of F32 hardly."""
    return requantised(gemma3, "f32")


@pytest.fixture(scope="module")
def plain_gemma(gemma_fp32: Path) -> Texts:
    with Pipeline.open(gemma_fp32, drafter="none", plan="none", threads=1) as pipeline:
        assert len(pipeline.tokenizer.encode(LONG)) > WINDOW
    return written(gemma_fp32, BEYOND, "none", kv="f32")


@pytest.mark.parametrize("drafter", ["strings", "model", "hybrid", "lookup"])
def test_beyond_gemmas_window_and_with_another_vocabulary(
    gemma_fp32: Path, smollm2: Path, plain_gemma: Texts, drafter: str
) -> None:
    """Gemma has 262,144 tokens and looks back 512; SmolLM2, which drafts for it, has 49,152."""
    more = {} if drafter in WITHOUT_DRAFT else {"draft": smollm2}
    assert written(gemma_fp32, BEYOND, drafter, kv="f32", **more) == plain_gemma
