"""The draft that goes with a model, from the command line: one question, and nothing unasked."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("huggingface_hub", reason="the extra hub is not installed")

import listed_drafts
from hub_server import Hub
from listed_drafts import DRAFT, MODELS, TARGET, TRAINED

from edgedec import Pipeline
from edgedec.cli import _partner
from edgedec.library import Library

pytestmark = pytest.mark.usefixtures("library", "exports_once")
Run = Callable[..., Any]
TEXT = ["def f(x):", "-n", 2, "--raw"]
# Which parity no smaller form of these weights needs, and which is made in a second.
FORM = ["--weights", "fp32"]


@pytest.fixture(autouse=True)
def hubs(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Hub]]:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    listed_drafts.listing(monkeypatch, DRAFT)
    with listed_drafts.serving(monkeypatch) as hubs:
        yield hubs


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], list[str]]:
    """Answer the questions of a terminal; return the list that they are kept in."""

    def call(answer: bool) -> list[str]:
        questions: list[str] = []

        class Terminal:
            @staticmethod
            def isatty() -> bool:
                return True

        class System:
            stdin = stderr = Terminal()

        def confirm(text: str, **_: object) -> bool:
            questions.append(text)
            return answer

        monkeypatch.setattr(_partner, "sys", System())
        monkeypatch.setattr(_partner.click, "confirm", confirm)
        return questions

    return call


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """The target as a folder of one's own, which the list knows by its sizes."""
    return shutil.copytree(MODELS / "target", tmp_path / "mine")


def named(library: Library) -> set[str]:
    return {model.name for model in library.models()}


def fetched(hubs: dict[str, Hub]) -> set[str]:
    return {name for name, hub in hubs.items() if hub.requests}


def test_run_without_a_terminal_fetches_nothing_and_says_what_would_go_with_it(
    run: Run, mine: Path, hubs: dict[str, Hub], library: Library
) -> None:
    result = run("run", mine, *TEXT, *FORM)
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.stderr.splitlines() if "would go with it" in line]
    assert line == (
        f"draft: {DRAFT} (small model, 2 M parameters, about 4 MB, licence: Apache-2.0) would go"
        " with it: --yes fetches it, --no-draft leaves it out"
    )
    assert (fetched(hubs), named(library)) == (set(), {"mine"})
    quiet = run("run", mine, *TEXT, *FORM, "--no-draft")
    assert (quiet.stdout, "would go" in quiet.stderr) == (result.stdout, False)


def test_run_asks_once_and_the_library_remembers(
    run: Run,
    mine: Path,
    hubs: dict[str, Hub],
    library: Library,
    answer: Callable[[bool], list[str]],
) -> None:
    questions = answer(False)
    plain = run("run", mine, *TEXT, *FORM)
    assert len(questions) == 1
    assert questions[0].endswith(f"drafts for {TARGET}. Fetch and use it?")
    run("run", mine, *TEXT, *FORM)
    assert len(questions) == 1
    assert fetched(hubs) == set()
    drafted = run("run", mine, *TEXT, *FORM, "--yes", "--json")
    assert named(library) == {"mine", DRAFT}
    assert json.loads(drafted.stdout)["plan"]["drafter"] == "hybrid"
    assert json.loads(drafted.stdout)["text"] == plain.stdout.removesuffix("\n")
    before = len(hubs[DRAFT].requests)
    again = run("run", mine, *TEXT, *FORM, "--json")
    assert json.loads(again.stdout)["plan"]["drafter"] == "hybrid"
    assert (len(questions), len(hubs[DRAFT].requests)) == (1, before)


def test_run_makes_a_target_with_its_head_after_one_question(
    run: Run,
    mine: Path,
    library: Library,
    answer: Callable[[bool], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed_drafts.listing(monkeypatch, TRAINED)
    questions = answer(True)
    result = run("run", mine, *TEXT, *FORM, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["plan"]["drafter"] == "headed"
    assert len(questions) == 1
    assert "which is then converted with it" in questions[0]
    shown = run("show", "mine").stdout
    assert any(line.startswith("head ") and TRAINED in line for line in shown.splitlines())


def test_pull_fetches_both(run: Run, library: Library) -> None:
    listing = run("pull", TARGET, *FORM, "--yes", "--json")
    assert listing.exit_code == 0, listing.output
    assert json.loads(listing.stdout)["name"] == TARGET
    assert named(library) == {TARGET, DRAFT}


def test_pull_alone_fetches_one(run: Run, library: Library, hubs: dict[str, Hub]) -> None:
    result = run("pull", TARGET, *FORM)
    assert "would go with it" in result.stderr
    assert (named(library), fetched(hubs)) == ({TARGET}, {TARGET})


def test_chat_looks_for_a_draft_too(run: Run, mine: Path, library: Library) -> None:
    run("pull", mine, *FORM, "--no-draft")
    run("pull", MODELS / "draft", *FORM, "--no-draft")
    result = run("chat", mine, "--max-new-tokens", 2, stdin="def f(x):\n")
    assert "draft: draft, from the library" in result.stderr
    assert "draft:" not in run("chat", mine, "-n", 2, "--no-draft", stdin="def f(x):\n").stderr
    alone = run("chat", mine, "-n", 2, "--spec", "lookup:n=3", stdin="def f(x):\n")
    assert "draft:" not in alone.stderr


def test_the_server_opens_each_model_with_the_draft_that_is_here(
    run: Run, mine: Path, library: Library, hubs: dict[str, Hub]
) -> None:
    from edgedec.cli import _served
    from edgedec.cli.serve import command

    run("pull", mine, *FORM, "--no-draft")
    run("pull", MODELS / "draft", *FORM, "--no-draft")
    with command.make_context("serve", ["--models", "mine"]) as context:
        chosen = dict(context.params)
        (offer,) = _served.offers(("mine",), chosen, tells=False)
        (alone,) = _served.offers(("mine",), chosen | {"no_draft": True}, tells=False)
    with offer.open() as pipeline:
        assert pipeline.plan["drafter"] == "hybrid"
    with alone.open() as pipeline:
        assert pipeline.plan["drafter"] == "text"
    assert fetched(hubs) == set()


@pytest.mark.full
def test_python_takes_what_is_here_and_fetches_what_it_is_told_to(
    run: Run,
    mine: Path,
    library: Library,
    hubs: dict[str, Hub],
    caplog: pytest.LogCaptureFixture,
) -> None:
    run("pull", mine, *FORM, "--no-draft")
    caplog.set_level(logging.INFO, logger="edgedec")
    with Pipeline.open("mine", plan="none") as pipeline:
        assert pipeline.plan["drafter"] == "text"
    with Pipeline.open("mine", draft="auto", plan="none") as pipeline:
        assert pipeline.plan["drafter"] == "text"
    assert f"draft: {DRAFT} (small model" in caplog.text
    assert "would go with it: download=True fetches it" in caplog.text
    assert fetched(hubs) == set()
    with Pipeline.open("mine", draft="auto", download=True, plan="none") as pipeline:
        assert pipeline.plan["drafter"] == "hybrid"
    with Pipeline.open("mine", draft="auto", drafter="lookup", plan="none") as pipeline:
        assert pipeline.plan["drafter"] == "lookup"


def test_offline_says_what_would_go_with_it(
    run: Run, mine: Path, hubs: dict[str, Hub], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    result = run("run", mine, *TEXT, *FORM, "--yes")
    assert result.exit_code == 0
    assert "would go with it: HF_HUB_OFFLINE forbids fetching it" in result.stderr
    assert fetched(hubs) == set()
