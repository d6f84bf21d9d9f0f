"""Every example in the README, the help and the docs is a command that exists, model first."""

import re
import shlex
from pathlib import Path

import click
import pytest

from edgedec.cli import main

FILES = (".json", ".jsonl", ".gguf", ".lark", ".txt", ".toml", ".py")


def examples(text: str) -> list[str]:
    """Commands in a text: lines in code blocks, and code within lines that has a model."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    found = [
        line[line.index("edgedec ") :] for line in lines if re.match(r"(.* \| )?edgedec ", line)
    ]
    return [line for line in found if "[OPTIONS]" not in line and "COMMAND" not in line]


def words_of(example: str) -> list[str]:
    """The words after ``edgedec``, without a remark or what comes after a pipe."""
    words = shlex.split(re.split(" {2,}", example)[0], comments=True)[1:]
    return words[: words.index("|")] if "|" in words else words


def parse(words: list[str]) -> click.Context:
    """What click makes of the words; nothing is run."""
    command = main.get_command(click.Context(main), words[0])
    assert command is not None, words
    with command.make_context(words[0], words[1:]) as context:
        return context


@pytest.fixture
def shown(repository: Path) -> list[str]:
    pages = [repository / "README.md", *(repository / "docs").rglob("*.md")]
    pages += [repository / "models" / "demo" / "README.md"]
    return [line for page in pages for line in examples(page.read_text("utf-8"))]


def test_every_example_is_a_command(
    shown: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(shown) > 40
    for example in shown:
        words = words_of(example)
        for word in words:
            if word.endswith(FILES) and "/" not in word:
                (tmp_path / word.removeprefix("@")).write_text("Be brief.", "utf-8")
        try:
            parse(words)
        except click.exceptions.Exit:  # --help and its kin
            pass
        except click.UsageError as error:
            pytest.fail(f"{example}: {error.format_message()}")


def test_every_example_has_its_model_first(shown: list[str]) -> None:
    for example in shown:
        words = words_of(example)
        assert not {"--bundle", "--target"} & set(words), example


@pytest.mark.parametrize(
    "wrong", ["generate x --max-tokens 3", "plan --draft nowhere", "verify a b", "nothing"]
)
def test_an_example_that_is_none_would_be_seen(wrong: str) -> None:
    with pytest.raises((click.UsageError, AssertionError)):
        parse(shlex.split(wrong))


def test_examples_are_found_where_they_stand() -> None:
    text = "```\ncat x | edgedec generate demo\nmake demo\n```\nedgedec plan\n"
    assert examples(text) == ["edgedec generate demo"]


def python_of(page: Path) -> list[str]:
    """Blocks of Python that decode something."""
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [block for block in blocks if "Pipeline.open(" in block]


@pytest.mark.parametrize(
    ("page", "package"),
    [
        ("README.md", "numpy"),
        pytest.param("docs/guides/embed.md", "numpy", marks=pytest.mark.full),
        ("docs/grammars.md", "llguidance"),
    ],
)
def test_the_python_shown_runs(repository: Path, page: str, package: str, capsys) -> None:
    pytest.importorskip(package)
    blocks = python_of(repository / page)
    assert blocks
    for block in blocks:
        exec(compile(block.replace("./my-bundle", "demo"), page, "exec"), {})
    assert capsys.readouterr().out


def test_every_page_whose_python_decodes_is_tried(repository: Path) -> None:
    pages = [repository / "README.md", *(repository / "docs").rglob("*.md")]
    tried = {"README.md", "docs/guides/embed.md", "docs/grammars.md"}
    tried |= {"docs/python.md"}  # by tests/examples/test_python_page.py
    pages.remove(repository / "docs" / "api.md")  # signatures
    assert {p.relative_to(repository).as_posix() for p in pages if python_of(p)} == tried
