"""The figures after a text: what everybody sees, all of them with -v, and how to go on."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click
import pytest

from edgedec.cli import _figures, _output
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import RoundRecord
from edgedec.generation.figures import line
from edgedec.pipeline import GenerateOptions

Run = Callable[..., Any]


def short(result: Any, *, sampled: bool = False) -> str:
    return ", ".join(_figures.short(result, sampled=sampled))


def summary(result: Any, *, sampled: bool) -> str:
    """All figures in one line."""
    return ", ".join(_figures.details(result, sampled=sampled))


def test_the_line_of_figures_says_what_decoded() -> None:
    plan = {"drafter": "hybrid", "format": "gguf"}
    done = SimpleNamespace(
        metrics=Metrics(emitted=3), finish_reason="length", plan=plan, seed=7, thinking=""
    )
    assert summary(done, sampled=True).endswith(", drafter hybrid on gguf, seed 7")
    assert summary(done, sampled=False).endswith(", drafter hybrid on gguf")


def told(metrics: Metrics, **plan: object) -> SimpleNamespace:
    plan = {"drafter": "hybrid", "format": "onnx", **plan}
    return SimpleNamespace(metrics=metrics, finish_reason="length", plan=plan, seed=7, thinking="")


def gained(lone: int = 32) -> Metrics:
    """Rounds of one row and of four: the latter emit three tokens in twice the time."""
    metrics = Metrics()
    for place in range(2 * lone + 1):
        rows, emitted, seconds = (4, 3, 0.2) if place % 2 else (1, 1, 0.1)
        record = RoundRecord(
            rows - 1, rows - 1, emitted - 1, emitted, rows, 0.0, seconds, seconds, "model"
        )
        metrics.observe(record, seconds)
    return metrics


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 tokens in "), (1, "1 token in "), (2, "2 tokens in ")]
)
def test_one_token_is_one(count: int, said: str) -> None:
    for words in (short, lambda result: summary(result, sampled=False)):
        assert words(told(Metrics(emitted=count))).startswith(said)


def test_the_line_of_figures_says_how_much_faster_it_was() -> None:
    assert ", about 1.33x plain decoding, " in summary(told(gained()), sampled=False)
    few = summary(told(gained(lone=6)), sampled=False)
    assert ", too short to compare with plain decoding, " in few
    plain = summary(told(gained(), drafter="none"), sampled=False)
    assert plain.endswith(", plain decoding on onnx")
    assert "about" not in plain


def test_the_line_of_figures_says_where_the_text_is_plain_decodings() -> None:
    exact = ", its text exactly that of plain decoding"
    sure = {"batch_invariant": True, "accept": "coupling"}
    assert exact in summary(told(gained(), **sure), sampled=False)
    for other in ({"batch_invariant": False}, {"accept": "speculative"}, {"drafter": "none"}):
        assert exact not in summary(told(gained(), **{**sure, **other}), sampled=False)


def test_the_line_of_figures_names_the_plan_or_says_why_there_is_none() -> None:
    planned = told(gained(), plan="lookup 4, onnx on 2 threads", no_plan=None)
    assert ", plan lookup 4, onnx on 2 threads" in summary(planned, sampled=False)
    without = told(gained(), plan=None, no_plan="threads given")
    assert summary(without, sampled=False).endswith(", no plan (threads given)")


@pytest.mark.parametrize("room", [40, 80, 120])
def test_the_figures_break_after_commas(room: int) -> None:
    parts = _figures.details(told(gained(), no_plan="none was made"), sampled=True)
    lines = _figures.packed(parts, room)
    assert " ".join(lines) == ", ".join(parts)
    assert max(map(len, lines)) <= room
    assert all(line.endswith(",") for line in lines[:-1])


def test_everybody_sees_tokens_time_and_factor() -> None:
    """And not a dozen clauses."""
    metrics = gained()
    metrics.ttft_s = 0.02
    counts = "2.0 tokens a pass, 64 of 96 drafts kept"
    said = f"{metrics.emitted} tokens in 9.6 s, 1.3x plain decoding, {counts} (details: -v)"
    assert short(told(metrics)) == said
    assert short(told(metrics), sampled=True).endswith("drafts kept, seed 7 (details: -v)")
    brief = Metrics(
        emitted=3, ttft_s=0.02, decode_s=0.03, drafted_tokens=1, accepted_tokens=1, target_passes=2
    )
    counts = "1.5 tokens a pass, 1 of 1 drafts kept"
    assert short(told(brief)) == f"3 tokens in 50 ms, {counts} (details: -v)"


def test_a_busy_machine_does_not_hide_what_drafts_gained() -> None:
    quiet, busy = gained(), gained()
    busy.waited_s, busy.watched_s = 0.2 * busy.decode_s, busy.decode_s
    counts = "2.0 tokens a pass, 64 of 96 drafts kept"
    assert counts in short(told(quiet))
    assert f"{counts}, busy machine: fewer threads (-t 1) may be faster (details: -v)" in short(
        told(busy)
    )
    assert counts not in short(told(busy, drafter="none"))  # the control


def test_fewer_threads_are_advised_where_there_are_more() -> None:
    busy = gained()
    busy.waited_s, busy.watched_s = 0.2 * busy.decode_s, busy.decode_s
    assert "fewer threads (-t 1) may be faster" in short(told(busy, threads=2))
    alone = short(told(busy, threads=1))
    assert "busy machine" in alone
    assert "fewer threads" not in alone


def test_a_busy_machine_is_mentioned_once_in_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    busy = gained()
    busy.waited_s, busy.watched_s = 0.2 * busy.decode_s, busy.decode_s

    def lines() -> list[str]:
        _output.show_figures(cast(Any, told(busy)), cast(Any, NoMeter()), sampled=False)
        return capsys.readouterr().err.splitlines()

    with click.Context(click.Command("chat")):
        first, second = lines(), lines()
    assert "busy machine" in " ".join(first)
    assert "busy machine" not in " ".join(second)
    with click.Context(click.Command("chat")):  # another run
        assert "busy machine" in " ".join(lines())


class NoMeter:
    """A machine that does not tell its energy."""

    def per_token(self, metrics: Metrics) -> None:
        return None


def test_a_text_without_drafts_says_so() -> None:
    """Unless nobody was to draft, or there was nothing to draft."""
    few = Metrics(emitted=3, ttft_s=0.02, decode_s=0.03)
    assert short(told(few)) == "3 tokens in 50 ms, nothing drafted (details: -v)"
    setup = {"drafter": "hybrid"}
    assert "nothing drafted" in line(few, setup, "length")
    assert "nothing drafted" not in line(few, {"drafter": "none"}, "length")
    assert "nothing drafted" not in short(told(few, drafter="none"))
    assert "nothing drafted" not in short(told(Metrics(emitted=1, ttft_s=0.02)))
    assert "nothing drafted" not in short(told(gained()))


def test_no_factor_is_given_where_it_would_mean_nothing() -> None:
    assert "plain decoding" in short(told(gained()))  # the control
    few = gained(lone=15)
    assert few.speedup_estimate is not None
    assert few.emitted < 64
    nothing = gained()
    nothing.drafted_tokens = 0
    busy = gained()
    busy.waited_s, busy.watched_s = 0.2 * busy.decode_s, busy.decode_s
    assert busy.speedup_estimate is not None
    for metrics in (few, nothing, busy):
        assert "plain decoding" not in short(told(metrics))
        assert "x plain" not in summary(told(metrics), sampled=False)
    assert ", busy machine: fewer threads (-t 1) may be faster (details: -v)" in short(told(busy))
    assert ", not comparable with plain decoding, " in summary(told(busy), sampled=False)


def test_what_slows_a_board_is_said() -> None:
    hot = gained()
    hot.slowed_by, hot.swapped_bytes = "heat", 84_000_000
    assert ", slowed by heat, 84.0 MB in swap (details: -v)" in short(told(hot))
    assert ", slowed by heat, 84.0 MB in swap, " in summary(told(hot), sampled=False)
    hot.slowed_by, hot.swapped_bytes = "", 1_000_000
    assert "swap" not in short(told(hot))


def test_all_figures_are_shown_when_asked_for(run: Run) -> None:
    ask = ["generate", "def __lt__(self, other):", "-n", 8]
    everybody, asked = (run(*ask, *more).stderr.splitlines()[0] for more in ([], ["-v"]))
    assert everybody.endswith("(details: -v)")
    assert everybody.count(",") <= 3  # two counts, or "nothing drafted"; "busy machine"
    for part in ("tokens/s", "first token ", "tokens per target pass", "drafter hybrid on onnx"):
        assert part in asked
        assert part not in everybody


# -- a text that a limit cut --------------------------------------------------------------------


def hint(
    reason: str, written: int = 10, *, context: int = 25, turns: int | None = None, **options: Any
) -> str | None:
    plan = {"max_context": context}
    result = SimpleNamespace(finish_reason=reason, events=[None] * written, plan=plan, thinking="")
    given = GenerateOptions(**{"max_new_tokens": 10, **options})
    return _figures.cut(result, given, 100, turns=turns)  # type: ignore[arg-type]


def test_where_a_text_was_cut_one_hint_says_how_to_go_on() -> None:
    assert hint("length") == "the text was cut at 10 tokens: -n 20 for more"
    answer = "the answer was cut at 10 tokens: /tokens 20 for longer ones"
    assert hint("length", turns=0) == answer
    assert str(hint("timeout", timeout_s=2.5)).endswith("after 2.5 s: give it more with --timeout")
    context = "the text was cut where the context of "
    assert str(hint("length", 5)).startswith(f"{context}25 tokens ends: give more with --max-")
    most = str(hint("length", 80, context=100, max_new_tokens=1000))
    assert most == f"{context}100 tokens ends, which is the longest of this model"
    assert "/drop makes room" in str(hint("length", 5, turns=1))
    assert "give more with --max-context" in str(hint("length", 5, turns=0))  # nothing to drop


@pytest.mark.parametrize("reason", ["eos", "stop", "cancelled", "timeout"])
def test_a_text_that_was_not_cut_needs_no_hint(reason: str) -> None:
    assert hint(reason) is None


NO_END = ("--logit-bias", "0=-100000", "--max-context", 260)


def test_an_answer_goes_on_to_its_end_or_the_contexts(run: Run, bundle: Path) -> None:
    """Only a text without a chat template, which may have no end of its own, has 128 tokens."""
    cut = "the answer was cut where the context of 260 tokens ends: give more with --max-context"
    talk = run("chat", bundle, *NO_END, stdin="Hello\n")
    assert cut in talk.stderr
    answer = json.loads(run("run", bundle, "Hello", *NO_END, "--json").stdout)
    # The last token's keys and values are not computed.
    assert len(answer["token_ids"]) + answer["prompt_tokens"] == 261
    assert "the text was cut where" in run("run", bundle, "Hello", *NO_END).stderr
    raw = run("run", bundle, "Hello", "--raw", *NO_END)
    assert "was cut at 128 tokens: -n 256 for more" in raw.stderr
    given = run("run", bundle, "Hello", *NO_END, "-n", 5)
    assert "was cut at 5 tokens: -n 10 for more" in given.stderr


def test_the_demo_which_ends_no_answer_has_128_tokens(run: Run) -> None:
    """Its text would go on to the end of the context: seconds of nonsense at a first try."""
    end = ("--logit-bias", "3=-100000", "--temperature", "0")
    assert "cut at 128 tokens" in run("chat", "demo", *end, stdin="Hello\n").stderr
    assert "cut at 128 tokens" in run("run", "demo", "Hi", "--system", "Be brief.", *end).stderr


def test_an_answer_that_ends_by_itself_says_nothing_of_limits(run: Run, bundle: Path) -> None:
    ended = run("run", bundle, "Hello", "--logit-bias", "0=100000")
    assert ended.exit_code == 0
    assert "cut" not in ended.stderr
