"""The model as the first argument, and what is said where it or a command's name is wrong."""

import json
import re
from pathlib import Path

import click
import pytest

from benchmarks.program import PROGRAMS
from edgedec._support.model_path import names_model
from edgedec.bundle.manifest import read_manifest
from edgedec.cli import _group, _values, main
from edgedec.cli._model import meant
from edgedec.errors import BundleError, CheckpointError
from edgedec.export.checkpoint import Checkpoint

LENGTH = ["-n", 6]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present folder: a bundle's and a checkpoint's folder, and one with GGUF files."""
    monkeypatch.chdir(tmp_path)
    for name, file in (
        ("bundle", "manifest.json"),
        ("checkpoint", "config.json"),
        ("downloads", "b.gguf"),
        ("downloads", "a-00001-of-00002.gguf"),
        ("downloads", "a-00002-of-00002.gguf"),
        ("notes", "notes.txt"),
        ("with space", "manifest.json"),
    ):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / file).touch()
    (tmp_path / "model.gguf").touch()
    (tmp_path / "my model.gguf").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], ("demo", None)),
        (["def f(x):"], ("demo", "def f(x):")),
        (["notes"], ("demo", "notes")),
        (["downloading"], ("demo", "downloading")),
        ([""], ("demo", "")),
        (["-"], ("demo", "-")),
        (["either/or"], ("demo", "either/or")),
        (["what is model.gguf"], ("demo", "what is model.gguf")),
        (["x" * 5000], ("demo", "x" * 5000)),
        (["nul\0byte"], ("demo", "nul\0byte")),
        (["demo"], ("demo", None)),
        (["bundle"], ("bundle", None)),
        (["with space"], ("with space", None)),
        (["model.gguf"], ("model.gguf", None)),
        (["my model.gguf"], ("my model.gguf", None)),
        (["downloads"], ("downloads", None)),
        (["bundle", "notes"], ("bundle", "notes")),
        (["demo", "bundle"], ("demo", "bundle")),
        (["demo", "either/or"], ("demo", "either/or")),
        (["./missing", "x"], ("./missing", "x")),
        (["missing", "two words"], ("missing", "two words")),
        (["model.gguf", ""], ("model.gguf", "")),
    ],
)
def test_what_words_mean(folder: Path, words: list[str], expected: tuple[str, str | None]) -> None:
    assert meant(words, None) == expected


@pytest.mark.parametrize("word", ["bundle", "demo", "def f(x):", "Qwen/Qwen3-0.6B", "model.gguf"])
def test_after_an_option_for_the_model_every_word_is_the_prompt(folder: Path, word: str) -> None:
    assert meant([word], "bundle") == ("bundle", word)
    assert meant([], "bundle") == ("bundle", None)


def test_a_hub_name_that_is_a_folder_is_that_folder(folder: Path) -> None:
    (folder / "Qwen" / "Qwen3-0.6B").mkdir(parents=True)
    assert meant(["Qwen/Qwen3-0.6B"], None) == ("demo", "Qwen/Qwen3-0.6B")
    (folder / "Qwen" / "Qwen3-0.6B" / "manifest.json").touch()
    assert meant(["Qwen/Qwen3-0.6B"], None) == ("Qwen/Qwen3-0.6B", None)


@pytest.mark.parametrize(
    ("command", "ask"),
    [
        ("chat", LENGTH),
        ("demo", ["--json", "--count", 1, *LENGTH]),
        ("inspect", ["--quick"]),
        ("plan", ["--forget"]),
        ("verify", ["--count", 1, *LENGTH]),
    ],
)
def test_the_model_of_other_commands(run, bundle, one_line, command, ask) -> None:
    for words in ([bundle], ["--bundle", bundle], ["--target", bundle]):
        assert run(command, *words, *ask, stdin="").exit_code == 0
    twice = one_line(run(command, bundle, "--bundle", "demo", *ask, stdin=""))
    assert "the model is given twice" in twice


def test_every_command_with_a_model_takes_it_first() -> None:
    context = click.Context(main)
    usages = {
        name: command.collect_usage_pieces(context)
        for name in main.list_commands(context)
        if (command := main.get_command(context, name)) is not None
    }
    assert {name for name, pieces in usages.items() if "MODEL" in str(pieces[1:2])} == {
        *(
            "bench",
            "card",
            "chat",
            "demo",
            "devices",
            "generate",
            "inspect",
            "plan",
            "prepare",
            "profile",
            "pull",
            "rm",
            "run",
            "serve",
            "show",
            "verify",
        ),
    }
    assert not [name for name, pieces in usages.items() if "BUNDLE" in str(pieces)]


def test_a_system_message(run, bundle, one_line, tmp_path: Path) -> None:
    ask = [*LENGTH, "--temperature", 0, "--json"]
    told = {"role": "system", "content": "Be brief."}
    asked = {"role": "user", "content": "Hello"}
    file = tmp_path / "chat.json"

    def of(*messages: dict[str, str]) -> str:
        file.write_text(json.dumps(messages), "utf-8")
        found = json.loads(run("generate", bundle, "--messages", file, *ask).stdout)
        return str(found["prompt_tokens"]) + found["text"]

    def with_system(*words: object) -> str:
        found = json.loads(run("generate", bundle, *words, "--system", "Be brief.", *ask).stdout)
        return str(found["prompt_tokens"]) + found["text"]

    assert with_system("Hello") == of(told, asked) != of(asked)
    file.write_text(json.dumps([asked]), "utf-8")
    assert with_system("--messages", file) == of(told, asked)
    of(told, asked)
    again = one_line(run("generate", bundle, "--messages", file, "--system", "x"))
    assert "leave --system out" in again
    lines = one_line(run("generate", bundle, "--prompts", file, "--system", "x"))
    assert "--system goes with PROMPT or --messages" in lines


@pytest.mark.parametrize(
    ("written", "meaning"),
    [
        ("\\n", "\n"),
        ("\\ndef ", "\ndef "),
        ("\\t\\n", "\t\n"),
        ("\\\\n", "\\n"),
        ("\\d+", "\\d+"),
        ("\n", "\n"),
        ("end", "end"),
        ("\\", "\\"),
    ],
)
def test_a_line_end_in_a_stop_string(written: str, meaning: str) -> None:
    assert _values.stop_text(written) == meaning


def test_a_line_end_stops_the_text(run) -> None:
    result = run("generate", "def f(x):", "--stop", "\\n", "-n", 20, "--json")
    found = json.loads(result.stdout)
    assert (found["finish_reason"], found["text"].count("\n")) == ("stop", 0)


def options_of(command: click.Command) -> set[str]:
    return {flag for one in command.get_params(click.Context(command)) for flag in one.opts}


def test_every_name_of_another_program_leads_to_something_here() -> None:
    """To an option or a command that exists; none is a name of this program."""
    context = click.Context(main)
    commands = {name: main.get_command(context, name) for name in main.list_commands(context)}
    options = {name: options_of(found) for name, found in commands.items() if found is not None}
    for name, here in _group._ELSEWHERE.items():
        taking = [one for one, known in options.items() if here in known]
        assert any(name not in options[one] for one in taking), name
    assert not set(_group._COMMANDS) & set(commands)
    for advice in _group._COMMANDS.values():
        if moved := re.search(r"python -m benchmarks ([a-z]+)", advice):
            assert moved[1] in PROGRAMS
            continue
        used = re.findall(r"edgedec ([a-z]+)(?:[^,]*? (--[a-z]+))?", advice)
        assert used or "edgedec --" in advice or "`hf " in advice, advice
        assert all(option in {*options[command], ""} for command, option in used), advice


def test_a_server_leaves_to_requests_only_what_it_has_no_option_for() -> None:
    context = click.Context(main)
    serve, generate = (main.get_command(context, name) for name in ("serve", "generate"))
    assert serve is not None
    assert generate is not None
    instead = set(getattr(serve, "instead", ()))
    assert "--temperature" in instead
    assert not instead & options_of(serve)
    others = {"--prompt", "--no-think"}
    assert instead - others <= options_of(generate)


def test_short_options_are_the_customary_ones(run, bundle) -> None:
    ask = ["x", "--temperature", 1, "--json", *LENGTH]
    long = run("generate", "--model", bundle, "--seed", 5, "--threads", 1, *ask).stdout
    short = run("generate", "-m", bundle, "-s", 5, "-t", 1, *ask).stdout
    also = run("run", "-m", bundle, "-s", 5, "-t", 1, "--raw", *ask).stdout
    told = [json.loads(found) for found in (long, short, also)]
    assert len({one["text"] for one in told}) == 1
    assert {(one["seed"], one["plan"]["threads"]) for one in told} == {(5, 1)}
    assert run("-V").stdout == run("--version").stdout


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("downloads", "give a file, downloads/a-00001-of-00002.gguf, downloads/b.gguf"),
        ("checkpoint", "make one with `edgedec export checkpoint --out DIR`"),
        ("notes", "has no manifest.json"),
        ("empty", "empty is an empty folder: give a bundle, a Hugging Face folder or a .gguf"),
        ("lora", "lora is a LoRA adapter, which only changes a model: merge it into"),
        ("whole/target", "whole/target is a part of the bundle whole: give whole"),
        ("whole/target/model.onnx", "is a file of a bundle: give the folder, whole"),
        ("checkpoint/config.json", "is a file of a checkpoint: give the folder, checkpoint"),
        ("app/static", "app/static is an empty folder"),  # beside another program's manifest
        ("notes/notes.txt", "is a file: give a bundle"),
        ("missing", "is not a folder"),
        ("Qwen/Qwen3-0.6B", "then `edgedec export ./Qwen3-0.6B --out DIR`"),
    ],
)
def test_what_is_no_bundle(folder: Path, name: str, expected: str) -> None:
    for place in ("empty", "lora", "whole/target", "app/static"):
        (folder / place).mkdir(parents=True)
    (folder / "lora" / "adapter_config.json").write_text("{}")
    (folder / "whole" / "manifest.json").write_text('{"schema_version": 2}')
    (folder / "whole" / "target" / "model.onnx").touch()
    (folder / "app" / "manifest.json").write_text('{"name": "app"}')
    with pytest.raises(BundleError) as caught:
        read_manifest(Path(name))
    assert expected in str(caught.value)


def test_inside_a_bundle_the_present_folder_is_a_part_of_it(
    folder: Path, run, one_line, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "bundle" / "manifest.json").write_text('{"schema_version": 2}')
    (folder / "bundle" / "target").mkdir()
    monkeypatch.chdir(folder / "bundle" / "target")
    assert one_line(run("chat", ".")).endswith(". is a part of the bundle ..: give ..")


def test_a_hub_name_is_no_checkpoint(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="hf download Qwen"):
        Checkpoint.open("Qwen/Qwen3-0.6B")


def test_a_folder_that_cannot_be_listed_is_no_model(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert not names_model("notes")


@pytest.mark.parametrize("command", [["plan"], ["generate", "demo", "x"]])
def test_too_little_memory_is_refused_before_measuring(
    run, one_line, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def measured(*args: object, **options: object) -> None:
        raise AssertionError("it was measured")

    monkeypatch.setattr("edgedec.profiling.run.profile", measured)
    line = one_line(run(*command, "--memory", "1MB"))
    assert "1 MB is too little for any plan" in line
    assert "weights take 9 MB" in line
    assert "`edgedec plan` without --memory" in line
    if command == ["plan"]:  # the control
        assert isinstance(run(*command, "--memory", "1GB").exception, AssertionError)
