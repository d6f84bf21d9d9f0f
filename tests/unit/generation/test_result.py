"""A generation shows its text and one line of figures, wherever it is printed."""

from __future__ import annotations

import html
import re
from collections import Counter
from typing import Any

import pytest

from edgedec import Emission, Generation, Metrics, Pipeline
from edgedec.decoding.metrics import RoundTimes
from edgedec.errors import InputError

HOSTILE = "</pre><script>alert('1')</script>&amp; \"x\" \u202e"


class Timed(RoundTimes):
    """Rounds that were this much faster."""

    speedup = 1.43


def generation(text: str = "a b", tokens: int = 128, **changes: Any) -> Generation:
    given: dict[str, Any] = {
        "ttft_s": 0.1, "decode_s": 0.32, "emitted": tokens, "target_passes": tokens // 2,
        "drafted_tokens": 90, "accepted_tokens": 60, "round_times": Timed(),
        "accepted_lengths": Counter(),
    }  # fmt: skip
    plan = {"drafter": changes.pop("drafter", "hybrid")}
    metrics = Metrics(**{**given, **changes})
    return Generation(text, [Emission(1, text, "target")], 3, "length", metrics, 0, plan)


def test_the_line_of_figures() -> None:
    counts = "2.0 tokens a pass, 60 of 90 drafts kept"
    assert generation().figures == f"128 tokens in 0.4 s, 1.4x plain decoding, {counts} (length)"
    lone = generation(tokens=1, drafted_tokens=0)
    assert lone.figures == "1 token in 0.4 s (length)"
    assert generation(decode_s=-0.09).figures.startswith("128 tokens in 10 ms, ")


@pytest.mark.parametrize(
    "changes",
    [{"tokens": 63}, {"drafted_tokens": 0}, {"drafter": "none"}, {"waited_s": 0.2}, {"ahead_s": 1}],
    ids=str,
)
def test_no_speedup_where_it_cannot_be_told(changes: dict[str, Any]) -> None:
    found = generation(**changes).figures
    assert "plain decoding" not in found
    assert ("busy machine" in found) == ("waited_s" in changes)


def test_printing_and_repr() -> None:
    one = generation("def f():\n    pass" + "." * 80)
    assert str(one) == f"{one.text}\n[{one.figures}]"
    assert "\n" not in repr(one)
    assert len(repr(one)) < 200
    assert repr(one).startswith("<Generation 'def f():\\n    pass....")


class Printer:
    """As IPython's, which passes itself."""

    def __init__(self) -> None:
        self.shown = ""

    def text(self, text: str) -> None:
        self.shown += text


def test_a_notebook_shows_the_same() -> None:
    printer, one = Printer(), generation()
    one._repr_pretty_(printer, False)
    assert printer.shown == str(one)


def markup(page: str) -> list[str]:
    return re.findall(r"<[^>]*>", page)


def test_nothing_of_the_text_is_markup() -> None:
    page = generation(HOSTILE)._repr_html_()
    assert markup(page) == markup(generation("harmless")._repr_html_())
    assert "&lt;script&gt;alert(&#x27;1&#x27;)" in page
    assert "&amp;amp; &quot;x&quot;" in page


def test_markup_in_the_text_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken twin: the text is not escaped."""
    monkeypatch.setattr(html, "escape", lambda text: text)
    page = generation(HOSTILE)._repr_html_()
    assert markup(page) != markup(generation("harmless")._repr_html_())


def test_ids_and_logprobs() -> None:
    with Pipeline.open("demo", threads=1, plan="none") as pipeline:
        without = pipeline.generate("def f(", max_new_tokens=6)
        found = pipeline.generate("def f(", max_new_tokens=6, logprobs=2)
    assert without.logprobs is None
    assert found.logprobs == [event.logprob for event in found.events]
    assert len(found.logprobs or []) == len(found.token_ids) == 6
    assert all(value <= 0 for value in found.logprobs or [1.0])


def test_tokens_have_their_texts_and_alternatives() -> None:
    with Pipeline.open("demo") as pipeline:
        asked: dict[str, Any] = {"max_new_tokens": 12, "temperature": 0.8, "seed": 3}
        found = pipeline.generate("def f(x):", logprobs=3, **asked)
        assert found.tokens is not None
        assert [one.token for one in found.tokens] == found.token_ids
        assert [one.logprob for one in found.tokens] == found.logprobs
        for one, event in zip(found.tokens, found.events, strict=True):
            assert len(one.alternatives) == 3
            best = [(other.token, other.logprob) for other in one.alternatives]
            assert best == event.top_logprobs
            assert all(other.text == pipeline.tokenizer.decode([other.token])
                       for other in one.alternatives)  # fmt: skip
            assert repr(one).startswith(f"<{one.text!r} {one.logprob:.2f}: ")
        # Drawn, some are not the most likely one, whose text is another.
        assert any(one.alternatives[0].text != one.text for one in found.tokens)
        alone = pipeline.generate("def f(x):", logprobs=0, **asked).tokens
        assert alone is not None
        assert [one.alternatives for one in alone] == [()] * len(found.tokens)
        assert pipeline.generate("def f(x):", **asked).tokens is None


def test_tokens_of_a_prompt_are_counted_as_they_are_read() -> None:
    with Pipeline.open("demo") as pipeline:
        talk = [{"role": "user", "content": "def f(x):"}]
        for prompt, system in (("def f(x):", None), ([1, 2, 3], None), ("Hi", "Be brief.")):
            found = pipeline.generate(prompt, system=system, max_new_tokens=1)
            assert pipeline.count_tokens(prompt, system=system) == found.prompt_tokens
        answered = pipeline.generate(messages=talk, max_new_tokens=1)
        assert pipeline.count_tokens(talk) == answered.prompt_tokens
        assert pipeline.count_tokens(talk) > pipeline.count_tokens("def f(x):")  # the template's
        for wrong in (b"x", 5, [{"role": "user"}]):
            with pytest.raises(InputError):
                pipeline.count_tokens(wrong)  # type: ignore[arg-type]
