"""Help pages: options in groups, every option once, the everyday ones first."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from edgedec.cli import _group, _help, main

Run = Callable[..., Any]
TITLES = ["Text", "Drafting", "Device and memory", "Output"]
OPENING = ("run", "chat", "generate", "verify", "bench", "serve", "demo", "plan", "profile")


def groups(shown: str) -> dict[str, list[str]]:
    """The options of a help page, by the title of their group."""
    found: dict[str, list[str]] = {}
    for line in shown.splitlines():
        if title := re.fullmatch(r"([A-Z][\w ,]+):", line):
            found[title[1]] = []
        elif found and (option := re.match(r"  (?:-\w, )?(--[\w-]+)", line)):
            found[[*found][-1]].append(option[1])
    return found


@pytest.mark.parametrize("command", OPENING)
def test_the_groups_come_in_one_order(run: Run, command: str) -> None:
    for flag in ("--help", "--help-all"):
        titles = [title for title in groups(run(command, flag).stdout) if title in TITLES]
        assert titles == [title for title in TITLES if title in titles]
        assert {"Drafting", "Device and memory"} <= {*titles}


@pytest.mark.parametrize("command", [*OPENING, "export", "inspect", "prepare"])
def test_every_option_stands_on_the_full_page_once(run: Run, command: str) -> None:
    found = main.get_command(click.Context(main), command)
    assert found is not None
    every = sorted(
        next(flag for flag in one.opts if flag.startswith("--"))
        for one in found.get_params(click.Context(found))
        if isinstance(one, click.Option) and not one.hidden
    )
    shown = groups(run(command, "--help-all").stdout)
    assert sorted(option for of_group in shown.values() for option in of_group) == every


@pytest.mark.parametrize("command", [*OPENING, "export"])
def test_the_short_page_begins_each_group_of_the_full_one(run: Run, command: str) -> None:
    short, full = (groups(run(command, flag).stdout) for flag in ("--help", "--help-all"))
    for title, options in short.items():
        if title != "Options":  # to which each command adds its own
            assert full[title][: len(options)] == options
        assert {*options} <= {*full[title]}
    assert sum(map(len, short.values())) < sum(map(len, full.values()))


def test_options_of_one_runtime_have_a_group_of_their_own(run: Run) -> None:
    full = groups(run("generate", "--help-all").stdout)
    assert full["GGUF only"] == ["--kv", "--gpu-layers", "--rpc", "--rpc-trust"]
    assert "--weight-memory" in full["Device and memory"]
    assert "GGUF only" not in groups(run("generate", "--help").stdout)


def test_an_option_that_is_in_no_group_is_shown_first(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: nothing is lost that nobody has put into a group."""
    left = {title: names for title, names in _help.SHOWN.items() if title != "Output"}
    monkeypatch.setattr(_help.GroupedCommand, "shown", left)
    shown = groups(run("generate", "--help").stdout)
    assert {"--verbose", "--out", "--json"} <= {*shown["Options"]}


def commands(shown: str) -> dict[str, list[str]]:
    """The commands of the main page, by the title of their group."""
    found: dict[str, list[str]] = {}
    for line in shown.splitlines():
        if title := re.fullmatch(r"([A-Z][\w ]+):", line):
            found[title[1]] = []
        elif found and (command := re.match(r"  (\w+) +\S", line)):
            found[[*found][-1]].append(command[1])
    return found


def test_commands_of_every_day_come_first_and_every_one_once(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = commands(run("--help").stdout)
    titles = [title for title in shown if title != "Options"]
    assert titles == ["Use a model", "Make and fit one", "Measure and compare", "This machine"]
    assert shown["Use a model"][:5] == ["run", "chat", "serve", "pull", "list"]
    files = {file.stem for file in Path(_help.__file__).parent.glob("[!_]*.py")}
    every = [name for title in titles for name in shown[title]]
    assert len(every) == len(files)
    assert {*every} == files
    # A command that nobody put into a group is shown all the same, and one that is gone is not.
    changed = {"Use a model": (*_group.GROUPS["Use a model"], "gone")}
    monkeypatch.setattr(_group, "GROUPS", changed)
    others = commands(run("--help").stdout)
    assert "gone" not in others["Use a model"]
    assert {*others["Use a model"], *others["Others"]} == files
