"""From a model to text in one command, and the library: ``run, pull, list, show, rm``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete

from edgedec.cli import main
from edgedec.export import export_bundle
from edgedec.library import Library, making

LENGTH = ["-n", 8]
pytestmark = pytest.mark.usefixtures("library", "exports_once")
Run = Callable[..., Any]


@pytest.fixture
def demo(repository: Path) -> Path:
    """The checkpoints of the pair that ships."""
    return repository / "models" / "demo"


def line(generated: Any) -> str:
    """What `edgedec run` writes where `edgedec generate` wrote this, which is the text alone."""
    written: str = generated.stdout
    return written if written.endswith("\n") else written + "\n"


def test_a_line_that_is_not_ended_is_ended_unless_the_text_is_asked_for(
    run: Run, bundle: Path, demo: Path
) -> None:
    asked = ["--temperature", 0, "-n", 4, "--logit-bias", "0=-100000"]
    text = json.loads(run("generate", bundle, "Hello", *asked, "--json").stdout)["text"]
    assert not text.endswith("\n")
    assert run("generate", bundle, "Hello", *asked).stdout == text
    assert run("run", bundle, "Hello", "--raw", *asked).stdout == text + "\n"
    ended = ["demo", "def f(x):", "--regex", "a\n"]  # one that is ended is not ended twice
    assert run("run", *ended).stdout == run("generate", *ended).stdout == "a\n"
    answers = run("chat", bundle, *asked, stdin="One\nTwo\n").stdout
    assert answers.endswith("\n")
    assert answers.count("\n") == 2


def test_a_checkpoint_is_run_in_one_command(run: Run, demo: Path, library: Library) -> None:
    first = run("run", demo / "draft", "def f(x):", "--raw", *LENGTH)
    assert first.exit_code == 0, first.output
    assert "into a bundle (auto, rounded to nearest)" in first.stderr
    (model,) = library.models()
    assert line(run("generate", model.path, "def f(x):", *LENGTH)) == first.stdout
    again = run("run", demo / "draft", "def f(x):", "--raw", *LENGTH)
    assert again.stdout == first.stdout
    assert "into a bundle" not in again.stderr
    for word in ("draft", model.id[:8]):
        assert run("run", word, "def f(x):", "--raw", *LENGTH).stdout == first.stdout


@pytest.mark.full
def test_the_library_is_searched_for_a_draft(run: Run, demo: Path) -> None:
    run("pull", demo / "draft")
    ask = ["run", demo / "target", "def f(x):", "--raw", *LENGTH, "--json"]
    found = run(*ask)
    assert "draft: draft, from the library" in found.stderr
    assert json.loads(found.stdout)["plan"]["drafter"] == "hybrid"
    alone = run(*ask, "--drafter", "text")
    assert json.loads(alone.stdout)["plan"]["drafter"] == "text"
    given = run(*ask, "--draft", demo / "draft")
    for other in (alone, given):
        assert json.loads(other.stdout)["text"] == json.loads(found.stdout)["text"]


def test_a_chat_template_is_used_unless_raw(run: Run, bundle: Path, plain_bundle: Path) -> None:
    ask = [*LENGTH, "--json"]
    told = json.loads(run("run", bundle, "Hello", *ask).stdout)
    system = json.loads(run("run", bundle, "Hello", "--system", "Be brief.", *ask).stdout)
    raw = json.loads(run("run", bundle, "Hello", "--raw", *ask).stdout)
    generated = json.loads(run("generate", bundle, "Hello", *ask).stdout)
    assert raw["text"] == generated["text"]
    assert raw["prompt_tokens"] < told["prompt_tokens"] < system["prompt_tokens"]
    plain = json.loads(run("run", plain_bundle, "Hello", *ask).stdout)
    assert plain["text"] == json.loads(run("generate", plain_bundle, "Hello", *ask).stdout)["text"]
    code = json.loads(run("run", "demo", "def f(x):", *ask).stdout)
    assert code["text"] == json.loads(run("generate", "def f(x):", *ask).stdout)["text"]


def test_the_present_folder_is_a_model(
    run: Run, demo: Path, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is a link: the model has the link's name."""
    (tmp_path / "mine").symlink_to(demo / "draft")
    monkeypatch.chdir(tmp_path / "mine")
    monkeypatch.setenv("PWD", str(tmp_path / "mine"))
    found = run("run", ".", "def f(x):", "--raw", *LENGTH)
    assert found.exit_code == 0, found.output
    assert run("run", tmp_path / "mine", "def f(x):", "--raw", *LENGTH).stdout == found.stdout


@pytest.mark.parametrize("command", ["chat", "serve", "generate", "inspect", "run"])
def test_a_word_that_names_nothing_is_compared_with_the_library(
    run: Run, one_line: Callable[..., str], demo: Path, command: str
) -> None:
    prompt = ["two words"] if command in ("generate", "run") else []
    line = one_line(run(command, "drafd", *prompt))
    assert "nor a model of the library (`edgedec list` shows them)" in line
    run("pull", demo / "draft")
    line = one_line(run(command, "drafd", *prompt))
    assert line.endswith("nor a model of the library: did you mean draft?")


def test_a_checkpoint_without_a_tokenizer_is_refused_before_it_is_read(
    run: Run, one_line: Callable[..., str], demo: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from edgedec._support.opened_before import OpenedBefore

    def hashed(*_: object) -> str:
        raise AssertionError("the weights were read")

    monkeypatch.setattr(OpenedBefore, "digest", hashed)
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes((demo / "draft" / name).read_bytes())
    assert "has no tokenizer.json: get it from" in one_line(run("run", folder, "x", *LENGTH))
    (folder / "tokenizer.json").write_bytes((demo / "draft" / "tokenizer.json").read_bytes())
    assert isinstance(run("run", folder, "x", *LENGTH).exception, AssertionError)


@pytest.mark.parametrize("command", ["run", "generate", "chat"])
def test_a_system_message_for_the_demo_is_remarked_on(run: Run, bundle: Path, command: str) -> None:
    words = [] if command == "chat" else ["Hi"]
    asked = run(command, "demo", *words, "--system", "Be brief.", *LENGTH, stdin="Hi\n")
    assert asked.exit_code == 0, asked.output
    assert "note: demo was trained on code alone: with --system" in asked.stderr
    other = run(command, bundle, *words, "--system", "Be brief.", *LENGTH, stdin="Hi\n")
    assert "trained on code" not in other.stderr


def test_the_prompt_comes_from_standard_input(run: Run) -> None:
    given = run("run", "demo", "def f(x):", *LENGTH).stdout
    assert run("run", "demo", *LENGTH, stdin="def f(x):").stdout == given
    assert run("run", "demo", "-", *LENGTH, stdin="def f(x):").stdout == given


@pytest.mark.parametrize("word", ["missing", "./missing", "x" * 5000, "a\nb"])
def test_what_means_no_model(run: Run, one_line: Callable[..., str], word: str) -> None:
    assert "is not a file or folder here" in one_line(run("run", word, "Hi"))


def test_the_library_is_listed_shown_and_emptied(
    run: Run, one_line: Callable[..., str], demo: Path, library: Library
) -> None:
    assert run("list").stdout.startswith("0 models, 0 bytes in ")
    pulled = json.loads(run("pull", demo / "draft", "--json").stdout)
    assert run("pull", demo / "draft", "--weights", "fp16").exit_code == 0
    listed = json.loads(run("list", "--json").stdout)
    assert {one["form"]["weights"] for one in listed["models"]} == {"auto", "fp16"}
    assert listed["size_bytes"] == library.size_bytes() > 0
    shown = run("show", pulled["id"][:6]).stdout
    for part in ("draft", pulled["id"], str(demo / "draft"), "model.safetensors  sha256 "):
        assert part in shown
    assert len(json.loads(run("show", "draft", "--json").stdout)["models"]) == 2
    assert "did you mean draft?" in one_line(run("show", "drafts"))
    removed = json.loads(run("rm", pulled["id"], "--json").stdout)
    assert removed["removed"] == [pulled["id"]]
    assert removed["freed_bytes"] > 3_000_000
    assert run("rm", "--unused").stdout == "freed 0 bytes\n"
    assert run("rm", "--all").exit_code == 0
    assert library.models() == []
    assert library.size_bytes() == 0


def test_a_served_model_has_the_name_that_was_typed(
    run: Run, demo: Path, library: Library, tmp_path: Path
) -> None:
    """And not "bundle", the folder in which the library keeps it."""
    from edgedec.cli import _library, _served

    run("pull", demo / "draft")
    (model,) = library.models()
    for typed in ("draft", model.id[:8]):
        name, *others = _served.names(typed, _library.located(typed).model)
        assert name == "draft"
        assert {typed, model.id} <= {*others}
    (tmp_path / "mine").symlink_to(model.path)
    for path, name in (
        (f"{tmp_path}/mine", "mine"),
        ("./Qwen3-0.6B", "Qwen3-0.6B"),
        ("large.Q4_0.gguf", "large.Q4_0"),
        (".", Path.cwd().name),
        ("demo", "demo"),
    ):
        assert _served.names(path, None) == (name, path)


def test_a_full_disk_leaves_nothing(
    run: Run, one_line: Callable[..., str], demo: Path, library: Library,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        patch.setattr(making, "export_bundle", export_bundle)
        result = run("run", demo / "draft", "def f(x):", "--raw")
    assert result.exit_code == 2
    last = result.stderr.splitlines()[-1]
    assert "no space left for " in last
    assert "--out" not in last, "an option that run does not have"
    assert library.models() == []
    assert not [name for name in os.listdir(library.folder / "models")]  # noqa: PTH208, C416


def test_completion_offers_the_models_of_the_library(run: Run, demo: Path) -> None:
    run("pull", demo / "draft")

    def offered(*words: str) -> list[str]:
        *before, last = words
        shell = ShellComplete(main, {}, "edgedec", "_EDGEDEC_COMPLETE")
        return [item.value for item in shell.get_completions(before, last)]

    assert offered("run", "") == ["demo", "draft"]
    assert offered("rm", "dr") == ["draft"]
    assert offered("rm", "xy") == []
    assert offered("run", "./") == ["./"]  # a path: the shell's own
    assert {"run", "rm"} <= set(offered("r"))


def test_these_commands_start_light(start: Callable[..., Any], tmp_path: Path) -> None:
    process = start("list", env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"})
    _, errors = process.communicate(timeout=60)
    loaded = {line.split("|")[-1].strip() for line in errors.decode().splitlines()}
    assert not {"onnxruntime", "tokenizers", "onnx", "torch", "huggingface_hub"} & loaded
    assert click.__name__ in loaded


def test_a_text_is_held_to_a_form(run: Run, bundle: Path, tmp_path: Path) -> None:
    pytest.importorskip("llguidance", reason="llguidance not installed: install the extra grammar")
    schema, grammar = tmp_path / "schema.json", tmp_path / "grammar.lark"
    schema.write_text('{"enum": ["red", "green"]}', "utf-8")
    grammar.write_text('start: "blue" | "white"', "utf-8")
    for option, texts in (
        (["--json-schema", schema], {'"red"', '"green"'}),
        (["--regex", "[ab]c"], {"ac", "bc"}),
        (["--grammar", grammar], {"blue", "white"}),
    ):
        # With a chat template, without one, and with a seed.
        for more in (["--raw"], [], ["--temperature", 1, "--seed", 3]):
            found = run("run", bundle, "Name a colour.", *option, *more)
            assert found.exit_code == 0, found.output
            assert found.stdout.strip() in texts
    assert run("run", bundle, "x", "--json-mode", *LENGTH).stdout.startswith("{")


def test_a_chat_has_no_form(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgedec.cli.run._chats", lambda as_json, raw: True)
    found = run("run", "demo", "--json-mode")
    assert found.exit_code == 2
    assert "go with a prompt" in found.stderr
