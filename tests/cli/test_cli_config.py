"""The file of defaults, and what it changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "config.toml"
    monkeypatch.setenv("EDGEDEC_CONFIG", str(file))
    return file


def test_without_a_file_nothing_is_set(run: Run, config: Path) -> None:
    shown = json.loads(run("config", "--json").stdout)
    assert shown == {
        "file": str(config),
        "exists": False,
        "settings": {
            "model": "demo",
            "draft": "auto",
            "drafter": "auto",
            "threads": None,
            "memory": None,
        },
    }
    assert "(not there)" in run("config").stdout


def test_settings_are_defaults_and_options_go_before(run: Run, config: Path, bundle: Path) -> None:
    ask = ["def f(x):", "-n", 4, "--json"]
    plain = json.loads(run("generate", bundle, *ask).stdout)
    config.write_text(f'model = "{bundle}"\ndraft = "lookup"\nthreads = 1\n', "utf-8")
    found = json.loads(run("generate", *ask).stdout)
    assert found["text"] == plain["text"]
    assert (found["plan"]["drafter"], found["plan"]["threads"]) == ("lookup", 1)
    run_by_default = run("run", *ask[1:], "--raw", stdin="def f(x):")
    assert json.loads(run_by_default.stdout)["text"] == plain["text"]
    given = json.loads(run("generate", "demo", *ask, "--drafter", "none").stdout)
    assert given["plan"]["drafter"] == "none"
    assert given["text"] != plain["text"]
    assert "lookup" in run("config").stdout
    # Commands that measure or verify are the same for everybody.
    assert run("inspect", "--quick").stdout == run("inspect", "demo", "--quick").stdout


@pytest.mark.parametrize("command", ["generate", "run"])
@pytest.mark.parametrize(
    ("text", "typed", "drafter"),
    [
        ('draft = "lookup"', ["--draft", "none"], "none"),
        ('draft = "lookup"', ["--draft", "demo"], "hybrid"),
        ('draft = "auto"', ["--drafter", "lookup"], "lookup"),
        ('draft = "auto"\ndrafter = "lookup"', [], "lookup"),
        ('draft = "demo"', ["--drafter", "lookup"], "lookup"),
        ('draft = "demo"', ["--drafter", "model"], "model"),
        ('drafter = "lookup"', ["--draft", "auto"], "hybrid"),
        ('drafter = "auto"', ["--draft", "none"], "none"),
        ('drafter = "model"', ["--draft", "demo"], "model"),
    ],
)
def test_how_to_draft_is_first_what_was_typed(
    run: Run, config: Path, command: str, text: str, typed: list[str], drafter: str
) -> None:
    config.write_text(text + "\n", "utf-8")
    asked = [command, "demo", "x", *typed, "--plan", "none", "-n", 2, "--json"]
    assert json.loads(run(*asked).stdout)["plan"]["drafter"] == drafter


def test_two_ways_of_drafting_that_were_typed_are_refused(
    run: Run, one_line: Callable[..., str], config: Path
) -> None:
    config.write_text('draft = "text"\n', "utf-8")
    typed = ["generate", "demo", "x", "--draft", "none", "--drafter", "lookup"]
    assert "--draft none names a drafter as --drafter does" in one_line(run(*typed))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model", "is not TOML: "),
        ("modle = 'demo'", "no setting modle: did you mean model?"),
        ("colour = 'red'", "no setting colour: expected model, draft, drafter, threads, memory"),
        ("threads = 0", "threads is 0, expected --threads, 1 to 1024"),
        ("threads = true", "threads is True, expected"),
        ("model = ''", "model is '', expected"),
        ("memory = -1", "memory is -1, expected"),
        ("memory = 8", "memory is 8, expected"),
        ("memory = 'plenty'", "expected a size such as 512MB"),
        ("draft = 'none'\ndrafter = 'text'", "draft = 'none' names a drafter as drafter = 'text'"),
        ("draft = 'demo'\ndrafter = 'text'", "the drafter text takes no draft model"),
        ("draft = 'magic'", "no drafter 'magic'"),
    ],
)
def test_a_file_that_is_wrong(
    run: Run, one_line: Callable[..., str], config: Path, text: str, expected: str
) -> None:
    config.write_text(text + "\n", "utf-8")
    assert expected in one_line(run("generate", "Hi", "-n", 1))


def test_settings_are_set_read_and_forgotten(run: Run, config: Path) -> None:
    config = config.parent / "new" / "config.toml"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGEDEC_CONFIG", str(config))
        for name, value in (("threads", "4"), ("memory", "2GB"), ("model", 'a "b" \\ é')):
            assert run("config", "set", name, value).exit_code == 0
            assert run("config", "get", name).stdout == f"{value}\n"
        shown = json.loads(run("config", "--json").stdout)["settings"]
        assert (shown["threads"], shown["memory"]) == (4, "2GB")
        assert run("config", "set", "threads", "2").stderr == f"threads = 2, in {config}\n"
        assert config.read_text("utf-8").count("threads") == 1
        assert run("config", "unset", "memory").exit_code == 0
        missing = run("config", "get", "memory")
        assert (missing.exit_code, missing.stdout) == (1, "")


def test_other_lines_of_the_file_stay(run: Run, config: Path) -> None:
    config.write_text('# mine\nmodel = "demo"  # the pair\nthreads = 4\n', "utf-8")
    assert run("config", "set", "threads", "8").exit_code == 0
    assert config.read_text("utf-8") == 'threads = 8\n# mine\nmodel = "demo"  # the pair\n'


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["set", "threads", "many"], "threads is 'many', expected --threads, 1 to 1024"),
        (["set", "threads", "0"], "threads is 0, expected"),
        (["set", "memory", "8"], "did you mean 8GB?"),
        (["set", "colour", "red"], "'colour' is not one of"),
        (["set", "threads"], "Missing argument 'VALUE'"),
        (["threads", "4"], "did you mean edgedec config set threads 4?"),
        (["threads"], "did you mean edgedec config get threads?"),
        (["--json", "get", "threads"], "leave the command out"),
    ],
)
def test_what_cannot_be_set(
    run: Run, one_line: Callable[..., str], config: Path, words: list[str], expected: str
) -> None:
    config.write_text("threads = 3\n", "utf-8")
    assert expected in one_line(run("config", *words))
    assert config.read_text("utf-8") == "threads = 3\n"


def test_a_setting_that_is_not_a_line_of_its_own_is_left_alone(
    run: Run, one_line: Callable[..., str], config: Path
) -> None:
    text = 'model = """\ndemo"""\n'
    config.write_text(text, "utf-8")
    assert "change it by hand" in one_line(run("config", "set", "model", "demo"))
    assert config.read_text("utf-8") == text
