"""``edgedec generate``: one prompt."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

KEYS = {
    "text", "token_ids", "prompt_tokens", "finish_reason", "ttft_s", "tpot_s", "tokens_per_second",
    "target_passes", "speedup_estimate", "waited_s", "slowdown",
    "drafted_tokens", "accepted_tokens", "acceptance_rate", "block_efficiency",
    "peak_memory_bytes", "plan", "reused_tokens", "seed",
}  # fmt: skip
PROMPT = "def add(left, right):"


@pytest.fixture
def generate(run, bundle):
    """The parsed object of ``generate --json``."""

    def call(*args: object, stdin: bytes | str | None = None) -> dict[str, Any]:
        result = run("generate", "--bundle", bundle, "--json", *args, stdin=stdin)
        assert result.exit_code == 0, result.output
        found: dict[str, Any] = json.loads(result.stdout)
        return found

    return call


def test_one_object_with_all_figures(generate) -> None:
    found = generate(PROMPT, "--max-new-tokens", 24, "--draft-length", 3, "--drafter", "model")
    assert set(found) == KEYS
    assert len(found["token_ids"]) == 24
    assert found["finish_reason"] == "length"
    assert found["prompt_tokens"] > 1
    assert found["target_passes"] < 24
    assert found["block_efficiency"] == pytest.approx(24 / found["target_passes"])
    rate = found["accepted_tokens"] / found["drafted_tokens"]
    assert found["acceptance_rate"] == pytest.approx(rate)
    assert 0 < found["tpot_s"] < 10
    assert found["tokens_per_second"] == pytest.approx(1 / found["tpot_s"])
    assert 10_000_000 < found["peak_memory_bytes"] < 4_000_000_000
    assert found["plan"]["drafter"] == "model"
    assert {"draft_length", "threads", "provider"} <= set(found["plan"])


def test_text_streams_to_stdout_and_figures_to_stderr(run, bundle, generate) -> None:
    result = run("generate", "--bundle", bundle, PROMPT, "--max-new-tokens", 24)
    assert result.exit_code == 0
    assert result.stdout == generate(PROMPT, "--max-new-tokens", 24)["text"]
    line, hint = result.stderr.splitlines()
    assert re.match(
        r"24 tokens in [\d.]+ m?s(, nothing drafted|, [\d.]+ tokens a pass, \d+ of \d+ drafts kept)"
        r"(, busy machine[^,]*)? \(details: -v\)$",
        line,
    )
    assert hint == "the text was cut at 24 tokens: -n 48 for more"


def test_another_bundle_may_draft(generate) -> None:
    """The pair that ships stands in for a draft of its own, by its name."""
    ask = [PROMPT, "--bundle", "demo", "--max-new-tokens", 24, "--draft", "demo"]
    result = generate(*ask, "--drafter", "model", "--draft-length", 3)
    assert result["drafted_tokens"] > 0


def test_options_reach_the_sampler(generate) -> None:
    ask = [PROMPT, "--max-new-tokens", 24]
    greedy = generate(*ask)["token_ids"]
    for option in (
        ["--temperature", 2, "--seed", 1],
        ["--repetition-penalty", 2],
        ["--presence-penalty", 20],
        ["--frequency-penalty", 20],
        ["--logit-bias", "77=1000"],
    ):
        assert generate(*ask, *option)["token_ids"] != greedy, option
    # A hot sample narrowed to one token is greedy again.
    for option in (["--top-k", 1], ["--top-p", 1e-9], ["--min-p", 1]):
        narrowed = [*ask, "--temperature", 2, "--seed", 1, *option]
        assert generate(*narrowed)["token_ids"] == greedy, option


def test_a_drawn_seed_is_reported_and_repeats_the_text(generate) -> None:
    ask = [PROMPT, "--max-new-tokens", 24, "--temperature", 1.5]
    first = generate(*ask)
    assert generate(*ask, "--seed", first["seed"])["token_ids"] == first["token_ids"]
    assert generate(*ask, "--seed", first["seed"] + 1)["token_ids"] != first["token_ids"]


def test_stop_strings_end_the_text_and_are_not_in_it(run, bundle, generate) -> None:
    text = generate(PROMPT, "--max-new-tokens", 60)["text"]
    stop = text[20:24]
    found = generate(PROMPT, "--max-new-tokens", 60, "--stop", stop, "--stop", "never \x00 there")
    assert found["finish_reason"] == "stop"
    assert found["text"] == text[: text.index(stop)]
    ask = ["generate", "--bundle", bundle, PROMPT, "--max-new-tokens", 60, "--stop", stop]
    assert run(*ask).stdout == found["text"]


@pytest.mark.parametrize("best", [0, 3])
def test_logprobs_of_the_tokens_and_of_the_best(generate, best) -> None:
    found = generate(PROMPT, "--max-new-tokens", 8, "--logprobs", best)
    assert [entry["token"] for entry in found["logprobs"]] == found["token_ids"]
    for entry in found["logprobs"]:
        assert len(entry["top"]) == best
        assert best == 0 or entry["top"][0] == {
            "token": entry["token"],
            "logprob": entry["logprob"],
        }
        assert entry["logprob"] < 0


def test_a_timeout_keeps_what_there_is(generate) -> None:
    ask = [PROMPT, "--max-new-tokens", 4000, "--logit-bias", "0=-1e5"]
    for seconds in (0.05, 0.5, 5):  # on a busy machine a short one ends before the first token
        found = generate(*ask, "--timeout", seconds)
        assert found["finish_reason"] == "timeout"
        if found["token_ids"]:
            break
    assert 0 < len(found["token_ids"]) < 4000


def test_the_context_ends_the_text(generate) -> None:
    found = generate("a", "--max-context", 16, "--max-new-tokens", 100, "--logit-bias", "0=-1e5")
    assert found["finish_reason"] == "length"
    assert found["prompt_tokens"] + len(found["token_ids"]) in (16, 17)
    assert found["plan"]["max_context"] == 16


@pytest.mark.parametrize("args", [[], ["-"]])
def test_standard_input(generate, args) -> None:
    text = "def add(é):\n    # 😀\n"
    assert generate(*args, stdin=text)["token_ids"] == generate(text)["token_ids"]


def test_messages_go_through_the_template(generate, tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    messages = [{"role": "user", "content": "Hello"}]
    ask = ("--temperature", 0, "-n", 20)
    expected = generate("user: Hello\nassistant: ", *ask)
    for content in (messages, {"messages": messages}):
        file.write_text(json.dumps(content), "utf-8")
        found = generate("--messages", file, *ask)
        assert found["token_ids"] == expected["token_ids"]
    found = generate("--messages", "-", *ask, stdin=json.dumps(messages))
    assert found["token_ids"] == expected["token_ids"]


def test_a_lossy_rule_is_noted_when_named(run, bundle) -> None:
    ask = ["generate", "--bundle", bundle, PROMPT, "--max-new-tokens", 4]
    noted = run(*ask, "--accept", "bild", "--temperature", 1, "--seed", 1)
    assert noted.exit_code == 0
    assert "note: --accept bild is not lossless" in noted.stderr
    assert "note" not in run(*ask, "--accept", "match").stderr


def test_invalid_utf8_on_stdin(run, bundle, one_line) -> None:
    line = one_line(run("generate", "--bundle", bundle, stdin=b"ab\xffcd"))
    assert "standard input is not UTF-8 at byte 2" in line


def test_invalid_utf8_as_an_argument(run, bundle, one_line) -> None:
    prompt = b"ab\xff".decode("utf-8", "surrogateescape")
    assert "not valid UTF-8" in one_line(run("generate", "--bundle", bundle, prompt))
