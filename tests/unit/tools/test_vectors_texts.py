"""The vectors of whole texts, which depend on ONNX Runtime's version and the processor."""

from __future__ import annotations

import pytest

from edgedec.text.tokenizer import Tokenizer
from tools.processor_class.classes import CLASSES
from tools.vectors import files, texts


def test_the_texts_are_those_of_their_tokens() -> None:
    found = files.read("texts.json")
    tokenizer = Tokenizer.load(texts.BUNDLE / "tokenizer")
    assert found["made_with"].keys() == texts.made_with().keys()
    for name, one in CLASSES.items():
        assert found["classes"][name] == {"has": list(one.has), "lacks": list(one.lacks)}
        asked = [
            (case["prompt"], case["params"]) for case in found["cases"] if case["class"] == name
        ]
        assert asked == list(texts._asked())
    assert len(found["cases"]) == len(CLASSES) * len(asked)
    for case in found["cases"]:
        assert 0 < len(case["ids"]) <= case["max_new_tokens"]
        stream = tokenizer.stream(tokenizer.encode(case["prompt"]))
        pieces = [*map(stream.push, case["ids"]), stream.flush()]
        assert "".join(pieces) == case["text"]
    sampled = [case for case in found["cases"] if case["params"] and case["class"] == "avx2"]
    assert len({tuple(case["ids"]) for case in sampled}) == len(sampled) == len(texts.PROMPTS)


def test_the_texts_where_they_can_be_compared() -> None:
    """Another version, or a processor of another class, may round otherwise."""
    found, here = files.read("texts.json"), texts.class_here()
    if texts.made_with() != found["made_with"] or here is None:
        pytest.skip("texts.json was made with another ONNX Runtime, or for other processors")
    cases = [case for case in found["cases"] if case["class"] == here]
    assert [{"class": here, **case} for case in texts.made_here()] == cases


def test_a_text_that_a_draft_changes_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def generated(drafter: str) -> list[dict[str, object]]:
        ids = [1, 2, 4] if drafter == "lookup" else [1, 2, 3]
        return [{"ids": ids, "text": "x"}] * (2 * len(texts.PROMPTS))

    monkeypatch.setattr(texts, "_generated", generated)
    with pytest.raises(AssertionError, match="lookup gives another text"):
        texts.made_here()
