"""A chat with a published model ends where its template says, and the mark is not shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edgedec.pipeline import Pipeline

END = "<|im_end|>"
ASKED = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]


@pytest.fixture(params=["gguf", "onnx"])
def model(
    request: pytest.FixtureRequest, smollm2: Path, exported: Callable[[Path, str], Path]
) -> Path:
    return smollm2 if request.param == "gguf" else exported(smollm2, "fp32")


@pytest.mark.parametrize("drafter", ["none", "lookup"])
def test_an_answer_ends_and_its_mark_is_not_shown(model: Path, drafter: str) -> None:
    with Pipeline.open(model, drafter=drafter, plan="none", threads=1) as pipeline:
        stream = pipeline.chat(ASKED, temperature=0, max_new_tokens=200)
        shown = "".join(event.text for event in stream)
        assert stream.result is not None
        (end,) = pipeline.tokenizer.encode(END)
        assert stream.result.finish_reason == "eos"
        assert stream.result.token_ids[-1] == end or end not in stream.result.token_ids
        assert "Paris" in shown
        assert shown == stream.result.text
        assert END not in shown
        assert "<|" not in shown
        # The control: the mark is what ended it.
        asked = {"max_new_tokens": 200, "temperature": 0, "ignore_eos": True}
        beyond = pipeline.generate(messages=ASKED, **asked)
        assert end in beyond.token_ids
        assert beyond.finish_reason == "length"
