"""The vectors of whole texts, which depend on ONNX Runtime's version and the processor."""

from __future__ import annotations

import pytest

from edgedec.text.tokenizer import Tokenizer
from tools.vectors import files, texts


def test_the_texts_are_those_of_their_tokens() -> None:
    found = files.read("texts.json")
    tokenizer = Tokenizer.load(texts.BUNDLE / "tokenizer")
    assert len(found["cases"]) == 2 * len(texts.PROMPTS)
    assert {"onnxruntime", "processor", "features", "batch_invariant"} <= set(found["made_with"])
    for case in found["cases"]:
        assert 0 < len(case["ids"]) <= case["max_new_tokens"]
        stream = tokenizer.stream(tokenizer.encode(case["prompt"]))
        pieces = [*map(stream.push, case["ids"]), stream.flush()]
        assert "".join(pieces) == case["text"]
    sampled = [case for case in found["cases"] if case["params"]]
    assert len({tuple(case["ids"]) for case in sampled}) == len(sampled)


def test_the_texts_where_they_can_be_compared() -> None:
    """Another version, or a processor with other features, may round otherwise."""
    found = files.read("texts.json")
    if texts.made_with() != found["made_with"]:
        pytest.skip("texts.json was made with another ONNX Runtime or processor")
    assert texts.make() == found


def test_a_text_that_a_draft_changes_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def generated(drafter: str) -> list[dict[str, object]]:
        ids = [1, 2, 4] if drafter == "lookup" else [1, 2, 3]
        return [{"ids": ids, "text": "x"}] * (2 * len(texts.PROMPTS))

    monkeypatch.setattr(texts, "_generated", generated)
    with pytest.raises(AssertionError, match="lookup gives another text"):
        texts.make()
