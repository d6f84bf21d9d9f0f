"""``edgedec chat``: commands, and conversations that outgrow the context."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import demo_head
import pytest

from edgedec.cli._conversation import Conversation
from edgedec.decoding.sampling import SamplingParams
from edgedec.errors import SessionError
from edgedec.pipeline import GenerateOptions, Pipeline

LONG = "x" * 400
NO_END = SamplingParams(logit_bias={0: -100_000.0})
Chat = Callable[..., Any]
UNSAVED = "one.chat: No space left on device: not saved: the file has "


@pytest.fixture
def chat(run: Callable[..., Any], bundle: Path) -> Chat:
    def call(*lines: str, context: int = 120, tokens: int = 8) -> Any:
        ask = ["chat", "--bundle", bundle, "--max-context", context, "--max-new-tokens", tokens]
        ask += ["--temperature", 0, "--logit-bias", "0=-100000"]
        return run(*ask, stdin="".join(line + "\n" for line in lines))

    return call


def said(result: Any) -> list[str]:
    """What is no answer, no line of figures, and no hint that an answer was cut."""
    figures = ("(details: -v)", "first token", " was cut ")
    lines = result.stderr.splitlines()
    return [line for line in lines if not any(part in line for part in figures)]


def answers(result: Any) -> int:
    return sum(
        "(details: -v)" in line or "first token" in line for line in result.stderr.splitlines()
    )


def test_a_conversation_that_outgrows_the_context_keeps_its_history(
    chat: Chat, bundle: Path
) -> None:
    messages = ["One " * 8, "Two " * 8, "Three " * 8, "Four " * 8]
    result = chat(*messages, "/drop 2", "/drop")
    assert result.exit_code == 0, result.output
    full, *rest = said(result)
    assert full.startswith("the conversation has ")
    assert "tokens and the context holds 120: /drop drops the oldest turn" in full
    assert "/reset starts a new conversation" in full
    assert any(line.startswith("left out ") for line in rest)
    # The last answer is the one that the turns left give.
    with Pipeline.open(bundle, max_context=120) as pipeline:
        options = GenerateOptions(max_new_tokens=8, sampling=NO_END)
        talk, texts = Conversation(), []

        def answer() -> None:
            stream = pipeline.chat(talk.messages, options)
            for _ in stream:
                pass
            assert stream.result is not None
            texts.append(stream.result.text)
            talk.answer(stream.result.text)

        for line in (*messages, "/drop 2", "/drop"):
            if line.startswith("/drop"):
                talk.drop(int(line[6:] or 1))
            else:
                talk.waiting = line.strip()
            if talk.waiting and len(pipeline.tokenizer.encode_chat(talk.messages)) <= 120:
                answer()
    assert result.stdout == "".join(text + "\n" for text in texts)
    assert answers(result) == len(texts) >= 3


def test_after_a_reset_it_goes_on(chat: Chat) -> None:
    result = chat(*["One " * 10] * 6, "/reset", "", "Two", "/exit", "never read")
    assert result.exit_code == 0, result.output
    alone = chat("Two")
    assert result.stdout.endswith(alone.stdout)
    assert any("the conversation has" in line for line in said(result))


def test_a_message_that_is_too_long_by_itself_is_left_out(chat: Chat) -> None:
    result = chat(LONG, "Two", LONG, "/drop")
    assert result.exit_code == 0, result.output
    first, second, dropped = said(result)
    assert first.startswith("the prompt has ")
    advice = "the context holds 120: shorten it or raise --max-context"
    assert first.endswith(advice)
    # Dropping turns would not help, so it is not advised, and /drop does not try it again.
    assert second.startswith("this message alone has ")
    assert second.endswith(advice)
    assert dropped == "left out 1 turn, 0 kept"
    assert result.stdout == chat("Two").stdout


def test_an_unknown_command_is_answered_and_not_sent(chat: Chat) -> None:
    result = chat("/halp", "/resett now", "/", "/draftnone", "Two")
    assert result.exit_code == 0, result.output
    lines = said(result)
    for name, line in zip(("/halp", "/resett", "/", "/draftnone"), lines, strict=True):
        assert line == (
            f"no command {name}: expected one of /system, /save, /load, /clear, /reset, /drop,"
            " /drafter, /temperature, /tokens, /set, /show, /think, /colours, /help, /quit, /exit,"
            " /bye;"
            " for a message that begins with /, write //"
        )
    assert answers(result) == 1
    assert result.stdout == chat("Two").stdout


def test_help_names_every_command_and_is_not_sent(chat: Chat) -> None:
    result = chat("/help", "Two")
    lines = said(result)
    listed = [line.split()[0] for line in lines]
    named = said(chat("/?"))[0].partition("expected one of ")[2].partition(";")[0].split(", ")
    assert listed[-1] == "//TEXT"
    assert {*listed[:-1], "/exit", "/bye"} == {*named}
    assert result.stdout == chat("Two").stdout


def test_a_message_may_begin_with_a_slash(chat: Chat, bundle: Path) -> None:
    result = chat("//etc/hosts holds")
    assert said(result) == []
    with Pipeline.open(bundle) as pipeline:
        message = {"role": "user", "content": "/etc/hosts holds"}
        stream = pipeline.chat([message], GenerateOptions(max_new_tokens=8, sampling=NO_END))
        assert result.stdout == "".join(event.text for event in stream) + "\n"


@pytest.mark.parametrize("count", ["0", "-1", "two", "1.5"])
def test_turns_to_drop_are_a_number(chat: Chat, count: str) -> None:
    (line,) = said(chat("Two", f"/drop {count}"))
    assert line == f"/drop {count}: expected a number of turns, 1 or more"


def test_dropping_more_than_there_are(chat: Chat) -> None:
    assert said(chat("/drop", "Two", "/drop 99999999999")) == [
        "left out 0 turns, 0 kept",
        "left out 1 turn, 0 kept",
    ]


def test_what_one_message_met_does_not_end_the_chat(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Pipeline.chat

    def failing(self: Pipeline, messages: Any, *args: Any) -> Any:
        if messages[-1]["content"] == "fails":
            raise SessionError("the target's logits are NaN")
        return honest(self, messages, *args)

    monkeypatch.setattr(Pipeline, "chat", failing)
    result = chat("fails", "Two")
    assert result.exit_code == 0, result.output
    assert said(result) == ["the target's logits are NaN"]
    assert answers(result) == 1
    assert result.stdout == chat("Two").stdout


def test_options_are_set_by_the_names_of_the_command_line(chat: Chat) -> None:
    lines = ["/set top-k 5", "/set temp 0.5", "/set seed 7", "/set num_predict 4", "/set stop zz"]
    shown = said(chat(*lines, "/set system Be brief.", "/set drafter none", "/show"))
    assert shown[: len(lines)] == [
        "top_k 5 from here on",
        "temperature 0.5 from here on",
        "seed 7 from here on",
        "max_new_tokens 4 from here on",
        "stop zz from here on",
    ]
    rows = dict(line.split(maxsplit=1) for line in shown[len(lines) + 2 :])
    assert rows["sampling"] == "temperature 0.5, top-p 0.9, top-k 5"
    assert rows["tokens"] == "at most 4"
    assert (rows["seed"], rows["stop"], rows["drafter"]) == ("7", "zz", "none")
    assert rows["system"] == "Be brief."
    assert (rows["history"], rows["cache"]) == ("0 turns", "empty")
    assert {"model", "context", "plan"} <= rows.keys()


@pytest.mark.parametrize("given", ['"zz"', "'zz'", "zz"])
def test_quotes_around_a_value_are_not_part_of_it(chat: Chat, given: str) -> None:
    assert said(chat(f"/set stop {given}"))[0] == "stop zz from here on"
    assert said(chat('/set stop "'))[0] == 'stop " from here on'  # the control: a quote alone


def test_what_is_set_holds_for_answers_until_it_is_as_at_the_start(chat: Chat) -> None:
    two, one = chat("Two", tokens=2).stdout, chat("Two", tokens=8).stdout
    assert chat("/set max_new_tokens 2", "Two").stdout == two != one
    assert chat("/set max_new_tokens 2", "/set max_new_tokens", "Two").stdout == one


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("/set", "/set: expected NAME VALUE, with a name of system, drafter, max_new_tokens, "),
        ("/set colour red", "/set colour red: expected NAME VALUE"),
        ("/set help me", "/set help me: expected NAME VALUE"),
        ("/set top_p 3", "/set top_p: top_p 3.0: expected more than 0, at most 1"),
        ("/set seed Be", "/set seed: 'Be': expected a whole number"),
        ("/set logit_bias x", "/set logit_bias: 'x': expected a token id and a number"),
        ("/set temperature warm", "/set temperature: 'warm' is not a valid float"),
    ],
)
def test_what_cannot_be_set_changes_nothing(chat: Chat, typed: str, expected: str) -> None:
    first, *rest = said(chat(typed, "/temperature 0.5", "/show"))
    assert first.startswith(expected)
    assert "sampling    temperature 0.5, top-p 0.9, top-k 40" in rest


def test_clear_is_reset(chat: Chat) -> None:
    cleared = chat("One", "/clear", "Two")
    assert cleared.stdout.endswith(chat("Two").stdout)
    assert cleared.stdout == chat("One", "/reset", "Two").stdout != chat("One", "Two").stdout


def test_turns_are_left_out_from_the_oldest_and_what_is_told_first_stays() -> None:
    talk = Conversation("Be brief.")
    for number in range(3):
        talk.waiting = f"question {number}"
        talk.answer(f"answer {number}")
    talk.waiting = "more"
    assert talk.drop(2) == 2
    contents = [message["content"] for message in talk.messages]
    assert contents == ["Be brief.", "question 2", "answer 2", "more"]
    talk.reset()
    assert talk.messages == [{"role": "system", "content": "Be brief."}]


class TestSessionFile:
    @pytest.fixture
    def talk(self, run: Callable[..., Any], bundle: Path, tmp_path: Path) -> Chat:
        def call(*lines: str, file: str = "one.chat", **options: Any) -> Any:
            ask = ["chat", "--bundle", options.get("bundle", bundle), "--max-new-tokens", 8]
            ask += ["--session", tmp_path / file, "--drafter", options.get("drafter", "none"), "-v"]
            ask += ["--temperature", 0, "--logit-bias", "0=-100000"]
            return run(*ask, stdin="".join(line + "\n" for line in lines))

        return call

    def test_a_restart_goes_on(self, talk: Chat) -> None:
        whole = talk("One", "Two", "Three", file="whole.chat")
        assert whole.exit_code == 0, whole.output
        first, second = talk("One", "Two"), talk("Three")
        assert first.stdout + second.stdout == whole.stdout
        assert "continuing after 2 turns; " in second.stderr
        assert "prompt tokens kept from before" in second.stderr

    def test_a_prompt_is_the_next_message(
        self, talk: Chat, run: Callable[..., Any], bundle: Path, tmp_path: Path
    ) -> None:
        whole = talk("One", "Two", "Three", file="whole.chat")

        def ask(text: str, *more: object, file: str = "one.chat") -> Any:
            words = ["run", bundle, text, "--session", tmp_path / file, "--drafter", "none"]
            given = ["--max-new-tokens", 8, "--temperature", 0, "--logit-bias", "0=-100000"]
            return run(*words, *given, *more)

        first, second = ask("One"), json.loads(ask("Two", "--json").stdout)["text"]
        third = talk("Three")
        assert "continuing after 2 turns; " in third.stderr
        assert first.stdout + second + "\n" + third.stdout == whole.stdout
        assert ask("Two", file="new.chat").stdout != second + "\n"  # the control
        refused = ask("Four", "--raw")
        assert refused.exit_code == 2
        assert "--session goes with a chat template: leave it or --raw out" in refused.stderr

    @pytest.mark.full
    def test_a_restart_goes_on_with_a_head(self, talk: Chat) -> None:
        """It has not seen the text that is loaded, nor has one of another start."""
        demo = {"bundle": demo_head.bundle()}
        whole = talk("One", "Two", "Three", file="whole.chat", **demo)
        assert whole.exit_code == 0, whole.output
        first = talk("One", drafter="head", **demo)
        second, third = talk("Two", **demo), talk("Three", drafter="headed", **demo)
        assert first.stdout + second.stdout + third.stdout == whole.stdout
        assert "continuing after 2 turns; " in third.stderr
        assert third.stdout != talk("Three", file="new.chat", **demo).stdout  # the control

    def test_a_new_system_message_takes_the_old_ones_place(
        self, run: Callable[..., Any], bundle: Path, tmp_path: Path, talk: Chat
    ) -> None:
        talk("One")
        ask = ["chat", "--bundle", bundle, "--session", tmp_path / "one.chat", "--system", "Be"]
        result = run(*ask, "--max-new-tokens", 4, stdin="Two\n")
        assert result.exit_code == 0, result.output

    @pytest.mark.parametrize("contents", [b"", b"EDGEDEC\0", b"x" * 300])
    def test_another_file_is_left_alone(self, talk: Chat, tmp_path: Path, contents: bytes) -> None:
        (tmp_path / "one.chat").write_bytes(contents)
        result = talk("One")
        assert result.exit_code == 2
        assert result.stderr.strip().endswith("name another one to start a conversation")
        assert len(result.stderr.strip().splitlines()) == 1
        assert (tmp_path / "one.chat").read_bytes() == contents

    @pytest.mark.parametrize(
        "note", [{"turns": [["a"]]}, {"system": None, "turns": [["a\ud800", "b"]]}]
    )
    def test_a_saved_text_that_is_no_conversation(
        self, talk: Chat, tmp_path: Path, bundle: Path, note: Any
    ) -> None:
        with Pipeline.open(bundle, drafter="none") as pipeline:
            pipeline.generate("One", max_new_tokens=4)
            pipeline.save(tmp_path / "one.chat", note)
        result = talk("One")
        assert result.exit_code == 2
        assert "it contains no conversation" in result.stderr

    def test_no_folder_to_write_in(self, talk: Chat, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("no folder")
        result = talk("One", file="file/one.chat")
        assert result.exit_code == 2
        assert "file/one.chat: " in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1

    def test_no_folder_is_made_for_a_misspelt_path(self, talk: Chat, tmp_path: Path) -> None:
        result = talk("One", file="nowhere/one.chat")
        assert result.exit_code == 2
        assert "nowhere/one.chat: the folder" in result.stderr
        assert not (tmp_path / "nowhere").exists()

    def test_a_full_disk_does_not_end_the_conversation(
        self, talk: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert talk("One").exit_code == 0
        kept = (tmp_path / "one.chat").read_bytes()

        def full(_: int) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("os.fsync", full)
            result = talk("Two", "Three")
        assert result.exit_code == 0, result.output
        assert answers(result) == 2
        assert result.stderr.count(f"{UNSAVED}only the 1 turn saved before; the next ans") == 2
        assert (tmp_path / "one.chat").read_bytes() == kept

    def test_a_disk_that_was_full_from_the_start(
        self, talk: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nothing is saved, until there is room again, for all turns."""
        answered: list[int] = []
        fsync = os.fsync

        def full(file: int) -> None:
            answered.append(file)
            if len(answered) < 3:
                raise OSError(28, "No space left on device")
            fsync(file)

        monkeypatch.setattr("os.fsync", full)
        result = talk("One", "Two", "Three")
        assert result.stderr.count(f"{UNSAVED}nothing of this conversation; the next ans") == 2
        assert "continuing after 3 turns; " in talk("Four").stderr

    @pytest.mark.parametrize("exists", [True, False])
    def test_a_link_is_followed(self, talk: Chat, tmp_path: Path, exists: bool) -> None:
        (tmp_path / "folder").mkdir()
        real, link = tmp_path / "folder" / "one.chat", tmp_path / "link.chat"
        if exists:
            assert talk("One", file="folder/one.chat").exit_code == 0
        link.symlink_to(real)
        for lines in (["Two"], [f"/load {real}", f"/save {link}"]):
            result = talk(*lines, file="link.chat" if lines[0] == "Two" else "other.chat")
            assert result.exit_code == 0, result.output
            assert link.is_symlink()
        assert f"continuing after {1 + exists} turn" in talk("Three", file="link.chat").stderr
        assert f"continuing after {2 + exists} turns" in talk(file="folder/one.chat").stderr

    def test_a_link_and_its_file_have_one_lock(self, talk: Chat, tmp_path: Path) -> None:
        from filelock import FileLock

        (tmp_path / "link.chat").symlink_to(tmp_path / "one.chat")
        with FileLock(tmp_path / "one.chat.lock"):
            result = talk("One", file="link.chat")
        assert result.exit_code == 2
        assert "another edgedec process has this conversation open" in result.stderr

    def test_a_link_to_itself(self, talk: Chat, tmp_path: Path) -> None:
        (tmp_path / "one.chat").symlink_to(tmp_path / "one.chat")
        result = talk("One")
        assert result.exit_code == 2
        (line,) = result.stderr.strip().splitlines()
        assert line.endswith("one.chat: a link that leads back to itself: name a file")
        assert (tmp_path / "one.chat").is_symlink()

    def test_a_file_with_nan_among_its_keys_is_named(
        self, talk: Chat, tmp_path: Path, bundle: Path
    ) -> None:
        with Pipeline.open(bundle, drafter="none") as pipeline:
            pipeline.generate("One", max_new_tokens=4)
            pipeline.engine.target._held()[0][-1, -1, 0, -1] = float("nan")  # type: ignore[attr-defined]
            pipeline.save(tmp_path / "one.chat", Conversation().state)
        result = talk("One")
        assert result.exit_code == 2
        (line,) = result.stderr.strip().splitlines()
        assert f"{tmp_path / 'one.chat'}: the saved state contains NaN or infinity" in line
