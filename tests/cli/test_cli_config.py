"""The file of defaults, and what it changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
NUMBERS = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "max_new_tokens",
)


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
            "spec": None,
            "threads": None,
            "memory": None,
            "system": None,
            **dict.fromkeys(NUMBERS),
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


def text_of(found: Any) -> str:
    assert found.exit_code == 0, found.output
    text: str = json.loads(found.stdout)["text"]
    return text


def test_how_answers_are_drawn_and_what_they_are_told(
    run: Run, config: Path, bundle: Path, plain_bundle: Path
) -> None:
    ask = ["run", bundle, "Hello", "--json"]
    length, bias = ["-n", 6], ["--logit-bias", "0=-100000"]
    drawn = text_of(run(*ask, *length, *bias, "--temperature", 2, "--seed", 5))
    told = text_of(run(*ask, *length, *bias, "--temperature", 0, "--system", "Be brief."))
    raw = text_of(run(*ask, *length, *bias, "--temperature", 0, "--raw"))
    alone = text_of(run("run", plain_bundle, "Hello", "--json", *length, *bias))
    for name, value in {"temperature": "2", "seed": "5", "max-new-tokens": "6"}.items():
        assert run("config", "set", name, value).exit_code == 0
    assert text_of(run(*ask, *bias)) == drawn
    assert text_of(run(*ask, *bias, "--seed", 6)) != drawn  # the control
    for words in (["temperature", "0"], ["system", "Be brief."]):
        assert run("config", "set", *words).exit_code == 0
    assert text_of(run(*ask, *bias)) == told != text_of(run(*ask, *bias, "--system", "Sing."))
    # What takes no system message is as it was.
    assert text_of(run(*ask, *bias, "--raw")) == raw
    assert text_of(run("generate", bundle, "Hello", "--json", *bias)) == raw
    assert text_of(run("run", plain_bundle, "Hello", "--json", *bias)) == alone
    assert run("run", "demo", "x", "-n", 2).stderr.count("note:") == 0
    refused = run("run", plain_bundle, "Hello", "--system", "Be brief.")
    assert refused.exit_code != 0


def test_a_configured_system_message_is_for_new_conversations(
    run: Run, config: Path, bundle: Path, tmp_path: Path
) -> None:
    chat = ["chat", bundle, "-n", 2, "--session", tmp_path / "one.chat"]
    assert run("config", "set", "system", "First.").exit_code == 0
    assert "system    First." in squeezed(run(*chat, stdin="One\n/show\n"))
    assert run("config", "set", "system", "Second.").exit_code == 0
    assert "system    First." in squeezed(run(*chat, stdin="/show\n"))
    assert "system    Third." in squeezed(run(*chat, "--system", "Third.", stdin="/show\n"))
    chat[-1] = tmp_path / "two.chat"
    assert "system    Second." in squeezed(run(*chat, stdin="/show\n"))


def squeezed(shown: Any) -> list[str]:
    return ["    ".join(line.split(maxsplit=1)) for line in shown.stderr.splitlines()]


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
        (
            "colour = 'red'",
            "no setting colour: expected model, draft, drafter, spec, threads, memory, system",
        ),
        ("threads = 0", "threads is 0, expected --threads, 1 to 1024"),
        ("threads = true", "threads is True, expected"),
        ("model = ''", "model is '', expected"),
        ("memory = -1", "memory is -1, expected"),
        ("memory = 8", "memory is 8, expected"),
        ("memory = 'plenty'", "expected a size such as 512MB"),
        ("draft = 'none'\ndrafter = 'text'", "draft = 'none' names a drafter as drafter = 'text'"),
        ("draft = 'demo'\ndrafter = 'text'", "the drafter text takes no draft model"),
        ("draft = 'magic'", "no drafter 'magic'"),
        ("temperature = 'hot'", "temperature is 'hot', expected --temperature, a number"),
        ("top_p = true", "top_p is True, expected --top-p, a number"),
        ("top_p = 3", "top_p 3: expected more than 0, at most 1"),
        ("top_k = 0.5", "top_k 0.5: expected a whole number"),
        ("temperature = nan", "temperature nan: expected 0 (greedy) or"),
        ("max_new_tokens = 0", "max_new_tokens is 0: expected 1 or more"),
        ("system = 3", "system is 3, expected --system, for run and chat"),
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
        (["set", "top-p", "3"], "top_p 3.0: expected more than 0, at most 1"),
        (["set", "temperature", "hot"], "'hot' is not a valid float"),
        (["set", "seed", "0.5"], "'0.5' is not a valid integer"),
        (["set", "max_new_tokens", "0"], "0 is not in the range x>=1"),
        (["top-p", "0.5"], "did you mean edgedec config set top-p 0.5?"),
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
