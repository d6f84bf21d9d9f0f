"""Models that think on the command line, and the sampling that they ask for."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_bundles
from thinking_models import ANSWER, thinking_checkpoint

from edgedec import Pipeline

pytestmark = pytest.mark.usefixtures("library")
Run = Callable[..., Any]
OWN = {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20}
ANSWERED = "".join(ANSWER)
ASKS = "sampling as the model asks: temperature 0.6, top-p 0.95, top-k 20"


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("thinker")
    return tiny_bundles.exact(thinking_checkpoint(folder / "target", OWN))


def test_the_answer_is_the_output_and_the_thinking_is_beside_it(run: Run, thinker: Path) -> None:
    found = run("run", thinker, "Hi")
    assert (found.exit_code, found.stdout) == (0, ANSWERED + "\n")
    assert found.stderr.startswith("first then\n\n")
    hidden = run("run", thinker, "Hi", "--hide-thinking")
    assert hidden.stdout == ANSWERED + "\n"
    assert "first" not in hidden.stderr


def test_inspect_says_which_sampling_the_model_asks_for(run: Run, thinker: Path) -> None:
    found = run("inspect", thinker).stdout
    assert "answers  temperature 0.6, top-p 0.95, top-k 20" in found.splitlines()
    assert "answers" not in run("inspect", "demo").stdout


def test_figures_and_hints_of_thinking(run: Run, thinker: Path) -> None:
    details = run("run", thinker, "Hi", "-v").stderr
    assert ASKS in details.splitlines()
    assert "4 of them thinking" in details
    assert "sampling greedy" in run("run", thinker, "Hi", "-v", "--temperature", 0).stderr
    cut = run("run", thinker, "Hi", "-n", 2)
    assert cut.stdout == ""
    assert "the text was cut at 2 tokens, while thinking: -n 4 for more" in cut.stderr
    cut = run("run", thinker, "Hi", "-n", 7)
    assert "the text was cut at 7 tokens: -n 14 for more" in cut.stderr


def test_switches_and_the_budget(run: Run, thinker: Path) -> None:
    for words, thinking in (
        (["--no-think"], None),
        (["--think"], "first then"),
        (["--think-tokens", 1], "first"),
        (["--think-tokens", 0], None),
    ):
        found = json.loads(run("run", thinker, "Hi", "--json", *words).stdout)
        assert (found["text"], found.get("thinking")) == (ANSWERED, thinking)


def test_wrong_uses_of_switches(run: Run, thinker: Path, plain_bundle: Path) -> None:
    raw = run("run", thinker, "Hi", "--raw", "--no-think")
    assert raw.exit_code == 2
    assert "think goes with messages: a prompt is continued as text" in raw.stderr
    effort = run("run", thinker, "Hi", "--reasoning-effort", "low")
    assert effort.exit_code == 2
    assert "the chat template does not read it: leave it out" in effort.stderr
    assert run("run", thinker, "Hi", "--think-tokens", "-1").exit_code == 2


def test_answers_are_drawn_as_the_model_asks_and_texts_are_greedy(
    run: Run, thinker: Path, tmp_path: Path
) -> None:
    messages = tmp_path / "messages.json"
    messages.write_text('[{"role": "user", "content": "Hi"}]')
    drawn: list[list[object]] = [
        ["run", thinker, "Hi"],
        ["generate", thinker, "--messages", messages],
        ["generate", thinker, "Hi", "--system", "Be brief."],
    ]
    for words in drawn:
        assert ", seed " in run(*words).stderr
        assert ", seed " not in run(*words, "--temperature", 0).stderr
    for words in (["generate", thinker, "Hi"], ["run", thinker, "Hi", "--raw"]):
        found = run(*words, "-n", 4)
        assert found.exit_code == 0
        assert ", seed " not in found.stderr


def test_many_prompts_with_messages_among_them(
    run: Run, thinker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn, stream = list[float](), Pipeline.stream

    def noted(pipeline: Pipeline, prompt: Any, options: Any, **more: Any) -> Any:
        drawn.append(options.sampling.temperature)
        return stream(pipeline, prompt, options, **more)

    monkeypatch.setattr(Pipeline, "stream", noted)
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "out.jsonl"
    lines = [{"prompt": "Hi"}, {"messages": [{"role": "user", "content": "Hi"}]}]
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    ask = ["generate", thinker, "--prompts", prompts, "--out", out, "-n", 12]
    assert run(*ask).exit_code == 0
    assert drawn == [0, 0.6]
    text, answer = map(json.loads, out.read_text().splitlines())
    assert "thinking" not in text
    assert (answer["thinking"], answer["text"]) == ("first then", ANSWERED)
    # The same options go on with the file; others do not.
    assert "already has 2 of 2 results" in run(*ask).stderr
    assert "written with other options" in run(*ask, "--temperature", 0.5).stderr


def test_a_chat_keeps_the_thinking_for_the_template(
    run: Run, thinker: Path, tmp_path: Path
) -> None:
    file = tmp_path / "one.chat"
    first = run("chat", thinker, "--session", file, stdin="Hi\n")
    assert (first.exit_code, first.stdout) == (0, ANSWERED + "\n")
    lines = "Hi\n/think off\nHi\n/think\n/think hide\nHi\n/think maybe\n"
    second = run("chat", thinker, "--session", file, stdin=lines)
    assert second.exit_code == 0
    assert second.stdout == 3 * (ANSWERED + "\n")
    said = second.stderr
    assert "continuing after 1 turn" in said
    assert said.count("first then") == 1  # of the first of three
    assert "thinking: off" in said
    assert "/think maybe: expected on, off, hide, show, or nothing" in said


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals here")
def test_a_terminal_shows_the_thinking_dimmed_and_the_banner_the_sampling(
    thinker: Path, tmp_path: Path
) -> None:
    import terminals

    prompt, history = r">[ \x08]*$", str(tmp_path / "history")
    with terminals.edgedec("chat", thinker, "--threads", 1, EDGEDEC_HISTORY=history) as terminal:
        banner = terminal.expect(prompt)
        assert " ".join(ASKS.split()) in " ".join(banner.split())
        terminal.type("Hi" + terminals.ENTER)
        terminal.expect(r"tokens? in \d")
        terminal.expect(prompt)
        assert "\x1b[2mfirst" in terminal.written
        assert "\x1b[2mThe" not in terminal.written
        terminal.type(terminals.END)
        assert terminal.exit_code() == 0


def test_the_banner_says_what_the_user_chose(thinker: Path, tmp_path: Path) -> None:
    from edgedec.cli._sampling import described
    from edgedec.decoding.sampling import SamplingParams

    own = SamplingParams(temperature=0.6, top_p=0.95, top_k=20)
    assert described(own, own) == ASKS.removeprefix("sampling ")
    assert described(SamplingParams(temperature=0.7, top_k=20), own) == "temperature 0.7, top-k 20"
    assert described(SamplingParams(), own) == "greedy"


def test_a_conversation_without_thinking_is_saved_as_before() -> None:
    from edgedec.cli._conversation import Conversation
    from edgedec.errors import InputError

    talk = Conversation()
    talk.waiting = "Hi"
    talk.answer("42")
    assert talk.state == {"system": None, "turns": [["Hi", "42"]]}
    talk.waiting = "Hi"
    talk.answer("43", "so")
    assert talk.state["thinking"] == [None, "so"]
    again = Conversation()
    again.resume(talk.state)
    assert again.messages == talk.messages
    assert again.messages[-1]["reasoning_content"] == "so"
    for wrong in (["so"], [None, 3], "so", [None, "\ud800"]):
        with pytest.raises(InputError, match="no conversation"):
            again.resume({**talk.state, "thinking": wrong})
