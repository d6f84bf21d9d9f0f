"""Saved texts of a hybrid go on as if they had never been saved, and its MTP layer drafts again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kinds
import numpy as np
import pytest
import qwen_mtp_case
from mimo_case import PROMPT, SCRIPT
from seen_drafts import Seen

from edgedec import Generation, Pipeline
from edgedec.decoding.drafting import _head_context
from edgedec.decoding.drafting.head import HeadDrafter
from edgedec.decoding.session import Session
from edgedec.export import ExportOptions, export_bundle
from edgedec.runtimes.onnx.recurrent import Copy, RecurrentRows

# The layer has the target read a short text again; beside a long one it begins anew.
READ_AGAIN, SHORT, LONG = 64, 20, 80
ROOM = {"max_position_embeddings": 512}
SAMPLED = {"temperature": 0.8, "seed": 5}
CASES = [
    ("head", SHORT, SAMPLED), ("headed", LONG, {}),
    ("head", LONG, SAMPLED), ("headed", SHORT, SAMPLED), ("head", SHORT, {}),
    ("headed", LONG, SAMPLED), ("head", LONG, {}), ("headed", SHORT, {}),
]  # fmt: skip
Open = Callable[..., Pipeline]


def exported(checkpoint: Path) -> Path:
    out = checkpoint.with_suffix(".bundle")
    options = ExportOptions(checkpoint, out, weights="fp32", calibration="none", parity=False)
    export_bundle(options)
    return out


@pytest.fixture(scope="module")
def random(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of random weights: what it writes depends on all that its states have read."""
    folder = tmp_path_factory.mktemp("random")
    return exported(qwen_mtp_case.checkpoint(folder / "model", **ROOM))


@pytest.fixture(autouse=True)
def a_long_text_is_soon_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_head_context, "_READ_AGAIN", READ_AGAIN)


@pytest.fixture
def fresh() -> Iterator[Open]:
    opened: list[Pipeline] = []

    def make(bundle: Path, drafter: str) -> Pipeline:
        length = {} if drafter == "none" else {"draft_length": 3}
        options = {"threads": 1, "plan": "none", "batch_invariant": True, **length}
        opened.append(Pipeline.open(bundle, drafter=drafter, **options))
        return opened[-1]

    yield make
    for pipeline in opened:
        pipeline.close()


def write(pipeline: Pipeline, text: list[int], count: int, options: dict[str, Any]) -> Generation:
    return pipeline.generate(text, max_new_tokens=count, ignore_eos=True, **options)


def saved(pipeline: Pipeline, file: Path, count: int, options: dict[str, Any]) -> list[int]:
    """Save a text of this length behind the prompt; return it with the next turn."""
    text = list(pipeline.tokenizer.encode(PROMPT))
    text += write(pipeline, text, count, options).token_ids
    pipeline.save(file)
    return [*text, *pipeline.tokenizer.encode(" left")]


@pytest.mark.parametrize(("drafter", "count", "options"), kinds.in_full(CASES, 2))
def test_a_saved_text_goes_on_as_one_that_was_never_saved(
    fresh: Open, random: Path, tmp_path: Path, drafter: str, count: int, options: dict[str, Any]
) -> None:
    first, second = fresh(random, drafter), fresh(random, drafter)
    text = saved(first, tmp_path / "text", count, options)
    second.restore(tmp_path / "text")
    held = len(second.engine.held_tokens)
    found = write(second, text, 40, options)
    assert found.token_ids == write(first, text, 40, options).token_ids
    assert found.token_ids == write(fresh(random, "none"), text, 40, options).token_ids
    assert found.metrics.drafted_tokens > 0
    assert found.metrics.reused_tokens == (0 if count == SHORT else held)


def test_a_state_that_was_not_loaded_is_noticed(
    fresh: Open, random: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken twin: its recurrences begin at nothing behind the saved text."""
    go = RecurrentRows.go

    def lost(self: RecurrentRows, copy: Copy | None, at: int) -> None:
        go(self, copy and (copy[0], np.zeros_like(copy[1])), at)

    text = saved(fresh(random, "head"), tmp_path / "text", LONG, {})
    second = fresh(random, "head")
    with monkeypatch.context() as patch:
        patch.setattr(RecurrentRows, "go", lost)
        second.restore(tmp_path / "text")
    found = write(second, text, 40, {})
    assert found.token_ids != write(fresh(random, "none"), text, 40, {}).token_ids


def test_its_layer_drafts_what_its_formulas_do_behind_the_whole_text(
    fresh: Open, random: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = saved(fresh(random, "head"), tmp_path / "text", SHORT, {})
    stated = qwen_mtp_case.config()
    formulas = qwen_mtp_case.Formulas(qwen_mtp_case.weights(stated), stated)

    def drafted() -> Seen:
        seen, second = Seen(monkeypatch), fresh(random, "head")
        second.restore(tmp_path / "text")
        write(second, text, 30, {})
        assert len(seen.drafts) > 8
        return seen

    assert drafted().wrong(formulas) == []
    # The control: it is not given what it lacks of the text.
    kept: Callable[[HeadDrafter, Session], bool] = lambda self, target: True  # noqa: E731
    monkeypatch.setattr(HeadDrafter, "attach", kept)
    assert len(drafted().wrong(formulas)) > 4


@pytest.mark.parametrize("count", kinds.in_full([SHORT, LONG]))
def test_its_drafts_are_right_again(fresh: Open, tmp_path: Path, count: int) -> None:
    """A model that repeats its script, whose MTP layer knows it."""
    bundle = exported(qwen_mtp_case.agreeing(tmp_path / "model", **ROOM)[0])
    first = fresh(bundle, "head")
    text = list(first.tokenizer.encode("".join(SCRIPT[:5])))
    text += write(first, text, count, {}).token_ids
    first.save(tmp_path / "text")
    second = fresh(bundle, "head")
    second.restore(tmp_path / "text")
    found = write(second, text, 40, {})
    assert found.token_ids == write(first, text, 40, {}).token_ids
    assert found.metrics.accepted_tokens >= 24
