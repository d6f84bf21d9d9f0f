from __future__ import annotations

from types import SimpleNamespace

import pytest

from edgedec.bench import choosing


class Prepared:
    """Answers each prompt with prepared texts, at a speed of its own."""

    def __init__(self, tpot_s: dict[str, float], texts: dict[str, list[str]]) -> None:
        self._tpot_s, self._texts = tpot_s, {name: list(found) for name, found in texts.items()}

    def generate(self, prompt: str, options: object) -> object:
        texts = self._texts[prompt]
        text = texts.pop(0) if len(texts) > 1 else texts[0]
        return SimpleNamespace(
            text=text,
            token_ids=[ord(letter) for letter in text],
            finish_reason="length",
            metrics=SimpleNamespace(tpot_s=self._tpot_s[prompt]),
        )


def test_texts_that_hardly_repeat_come_first_and_unsteady_ones_not_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heads = ["loops", "slow", "fast", "unsteady", "two\nlines"]
    monkeypatch.setattr(
        choosing, "heldout_prompts", lambda count: [SimpleNamespace(head=head) for head in heads]
    )
    fresh = "".join(chr(65 + i) for i in range(40))
    texts = {"loops": ["abcd" * 10], "slow": [fresh], "fast": [fresh], "unsteady": ["a", "b"]}
    drafted = Prepared({"loops": 1.0, "slow": 2.0, "fast": 1.0, "unsteady": 1.0}, texts)
    plain = Prepared(dict.fromkeys(texts, 3.0), texts)
    found = choosing.examples(drafted, plain, 5)  # type: ignore[arg-type]
    assert [(one.prompt, one.speedup) for one in found] == [
        ("fast", 3.0), ("slow", 1.5), ("loops", 3.0),
    ]  # fmt: skip
