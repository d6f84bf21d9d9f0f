"""``edgedec chat`` in a terminal: the editor, the banner, Ctrl-C, colours, and what is kept."""

from __future__ import annotations

import re
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

if sys.platform == "win32":
    pytest.skip("no pseudo-terminals here", allow_module_level=True)

import terminals
from terminals import END, ENTER, INTERRUPT, UP, Terminal

FIGURES = r"tokens? in \d"
PROMPT = r">[ \x08]*$"
LONG = ["--logit-bias", "0=-100000"]
Chat = Callable[..., AbstractContextManager[Terminal]]


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return tmp_path / "state" / "history"


@pytest.fixture
def chat(bundle: Path, history: Path) -> Chat:
    def call(*words: object, tokens: int = 8) -> AbstractContextManager[Terminal]:
        ask = ["chat", *(words or [bundle]), *LONG, "-n", tokens, "--threads", 1]
        return terminals.edgedec(*ask, EDGEDEC_HISTORY=str(history))

    return call


@pytest.fixture
def terminal(chat: Chat) -> Iterator[Terminal]:
    with chat() as found:
        yield found


def said(terminal: Terminal, line: str, answer: str = FIGURES) -> None:
    """Type a line once the prompt is there, and wait for an answer."""
    terminal.expect(PROMPT)
    terminal.type(line + ENTER)
    terminal.expect(answer)


def test_a_banner_an_answer_and_figures(terminal: Terminal, bundle: Path) -> None:
    banner = terminal.expect(PROMPT)
    for part in (r"model\s+\S", r"draft +onnx, ", r"plan +drafter hybrid", r"context +4096 tokens"):
        assert re.search(part, banner), banner
    assert "/help lists the commands" in banner
    terminal.type("Hello" + ENTER)
    terminal.expect(FIGURES)
    terminal.expect(PROMPT)
    terminal.type(END)
    assert terminal.exit_code() == 0


def test_a_paste_of_several_lines_is_one_message(
    terminal: Terminal, run: Any, bundle: Path
) -> None:
    terminal.expect(PROMPT)
    terminal.paste("one\ntwo\n\nthree")
    terminal.expect("three")
    terminal.type(ENTER)
    terminal.expect(FIGURES)
    said(terminal, "/drop", "left out 1 turn, 0 kept")


def test_ctrl_c_stops_an_answer_and_twice_leaves(chat: Chat) -> None:
    with chat(tokens=4000) as terminal:
        terminal.expect(PROMPT)
        terminal.type("Hello" + ENTER)
        terminal.expect(r"Hello\s[\s\S]{40}")  # the answer has begun
        terminal.type(INTERRUPT)
        terminal.expect(r"tokens in [^\r]*, stopped")
        said(
            terminal, "/tokens 4", "at most 4 tokens"
        )  # it goes on, and something typed is no second Ctrl-C
        terminal.expect(PROMPT)
        terminal.type(INTERRUPT)
        terminal.expect("Ctrl-C once more leaves")
        terminal.expect(PROMPT)
        terminal.type(INTERRUPT)
        assert terminal.exit_code() == 0


def test_what_was_typed_comes_back_in_the_next_chat(chat: Chat, history: Path) -> None:
    with chat() as terminal:
        said(terminal, "/tokens 5", "at most 5 tokens")
        terminal.expect(PROMPT)
        terminal.type("/quit" + ENTER)
        assert terminal.exit_code() == 0
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    with chat() as terminal:
        said(terminal, UP + UP, "at most 5 tokens")


def test_commands_are_answered_and_not_sent(terminal: Terminal) -> None:
    terminal.expect(PROMPT)
    for typed, answer in {
        "/halp": "no command /halp: expected one of /system",
        "/system Be brief.": "the system message is changed",
        "/system": "no system message from here on",
        "/temperature warm": "/temperature warm: expected a number",
        "/temperature 0.7": "temperature 0.7 from here on",
        "/temperature 0": "greedy from here on",
        "/tokens many": "/tokens many: expected a number",
        "/save": "/save: expected a file",
        "/load nothing.chat": "nothing.chat: No such file",
        "/save pyproject.toml": "pyproject.toml is not a conversation",
    }.items():
        terminal.type(typed + ENTER)
        shown = terminal.expect(re.escape(answer))
        assert " tokens in " not in shown
        terminal.expect(PROMPT)


def test_a_conversation_is_saved_and_loaded(chat: Chat, bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "one.chat"
    with chat() as terminal:
        said(terminal, "Hello")
        said(terminal, f"/save {file}", r"kept 1 turn in\s")
    with chat(bundle, "-v") as terminal:
        said(terminal, f"/load {file}", r"continuing after 1 turn; \d+ tokens are cached")
        said(terminal, "More", "prompt tokens kept from before")


@pytest.mark.full
def test_saving_while_a_session_is_open(chat: Chat, bundle: Path, tmp_path: Path) -> None:
    """Into the session's own file, which this chat has locked, and into another."""
    own, other = tmp_path / "own.chat", tmp_path / "other.chat"
    with chat(bundle, "--session", own) as terminal:
        said(terminal, "Hello")
        said(terminal, "/reset", "new conversation")
        for file, turns in ((own, "0 turns"), (other, "0 turns")):
            said(terminal, f"/save {file}", rf"kept {turns} in\s")
    with chat(bundle, "--session", own) as terminal:
        assert "continuing after" not in terminal.expect(PROMPT)
        terminal.type(f"/load {other}" + ENTER)
        terminal.expect(PROMPT)


def test_colours_say_who_wrote_a_token(chat: Chat, bundle: Path) -> None:
    green = "\x1b[32m"
    with chat(bundle, "--drafter", "model", "--draft-length", 4, tokens=64) as terminal:
        said(terminal, "Hello")
        assert green not in terminal.written
        said(terminal, "/colours", "green: drafted tokens")
        said(terminal, "Hello")
        assert green in terminal.written


def test_a_model_without_a_template_says_so_and_continues_text(
    chat: Chat, plain_bundle: Path, run: Any
) -> None:
    with chat(plain_bundle) as terminal:
        shown = terminal.expect(PROMPT)
        assert "has no chat template" in " ".join(shown.split())
        assert "each line is continued as text" in shown
        terminal.type("def f(x):" + ENTER)
        terminal.expect(FIGURES)
        terminal.type("/system Be brief." + ENTER)
        terminal.expect("a system message needs a chat template")


def test_run_without_a_prompt_is_a_chat(chat: Chat, history: Path) -> None:
    with terminals.edgedec("run", "demo", "-n", 8, EDGEDEC_HISTORY=str(history)) as terminal:
        assert "each line is continued as text" in terminal.expect(PROMPT)
        terminal.type("def f(x):" + ENTER)
        terminal.expect(FIGURES)
        terminal.type("/exit" + ENTER)
        assert terminal.exit_code() == 0
