"""A prompt that a chat model ends at once: said once, with what answers it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edgedec import Pipeline

SAID = "this model answers chats"
SHORT: dict[str, Any] = {"max_new_tokens": 3, "drafter": "none"}


def opened(bundle: Path) -> Pipeline:
    return Pipeline.open(bundle, threads=1, plan="none")


@pytest.fixture
def pipeline(bundle: Path) -> Iterator[Pipeline]:
    with opened(bundle) as one:
        yield one


def ends(pipeline: Pipeline) -> dict[str, Any]:
    """Options with which the first token ends the text."""
    return {**SHORT, "logit_bias": dict.fromkeys(pipeline.target.info.eos_ids, 10000.0)}


def test_an_empty_text_is_explained_once(
    pipeline: Pipeline, bundle: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert pipeline.generate("What is it?", **ends(pipeline)).text == ""
    assert pipeline.generate("And this?", **ends(pipeline)).text == ""
    (said,) = [one.getMessage() for one in caplog.records if SAID in one.getMessage()]
    assert f'edgedec run {bundle} "..."' in said
    assert 'messages=[{"role": "user", "content": "..."}]' in said


def test_nothing_is_said_where_nothing_is_wrong(
    pipeline: Pipeline, plain_bundle: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The controls: a text, an empty answer, a chat written out by hand, a model without chats."""
    caplog.set_level(logging.WARNING)
    options = ends(pipeline)
    assert pipeline.generate("What is it?", **SHORT, ignore_eos=True).text
    assert pipeline.generate(messages=[{"role": "user", "content": "Hi"}], **options).text == ""
    end = next(iter(pipeline.tokenizer.special_ids))
    by_hand = [*pipeline.tokenizer.encode("user: Hi"), end, *pipeline.tokenizer.encode("\n")]
    assert pipeline.generate(by_hand, **options).text == ""
    with opened(plain_bundle) as plain:
        assert plain.generate("What is it?", **ends(plain)).text == ""
    assert not [one for one in caplog.records if SAID in one.getMessage()]


def test_the_command_says_it(
    run: Callable[..., Any], pipeline: Pipeline, bundle: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (end, *_) = pipeline.target.info.eos_ids
    for words in (["generate", bundle, "What is it?"], ["run", bundle, "What is it?", "--raw"]):
        caplog.clear()
        told = run(*words, "--logit-bias", f"{end}=10000", "--drafter", "none")
        assert told.exit_code == 0, told.output
        assert [one for one in caplog.records if SAID in one.getMessage()]
