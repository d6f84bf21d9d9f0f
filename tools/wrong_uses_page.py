"""Runs wrong uses to see what each prints; ``help_pages.py`` writes it to docs/errors.md.

They run in a folder of their own with a cache of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click.testing
from wrong_uses import COMMANDS, CONTENTS, PYTHON

from edgedec._support import installation
from edgedec.bundle import Bundle
from edgedec.cli import main

HEAD = """# Wrong uses, and what is printed

Written by `make help-pages` from the list in `tools/wrong_uses.py`, which runs every one of them;
do not edit. They run in a folder that contains

| Name | What it is |
|---|---|
{contents}

The commands print one line, after `edgedec: error: `, and exit with the given code.
"""

CONFIG = {
    "model_type": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
    "rms_norm_eps": 1e-5, "max_position_embeddings": 128, "tie_word_embeddings": True,
}  # fmt: skip


def page() -> str:
    """The whole page, Markdown."""
    contents = "\n".join(f"| `{name}` | {what} |" for name, what in CONTENTS.items())
    parts = [HEAD.format(contents=contents)]
    with sandbox():
        for title, lines in COMMANDS.items():
            rows = [command_row(line) for line in lines.strip().splitlines()]
            parts.append(section(title, ("Command", "Code", "What is printed"), rows))
        rows = list(python_rows())
    parts.append(section("Python", ("Expression", "Exception", "Its message"), rows))
    return "\n".join(parts)


def section(title: str, heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """One table."""
    lines = [f"## {title}\n", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def command_row(line: str) -> tuple[str, ...]:
    """A command, its exit code and its line."""
    code, printed = run(shlex.split(line)[1:])
    return quoted(line), str(code), quoted(printed)


def run(words: list[str]) -> tuple[int, str]:
    """The exit code of a command and the line that it prints on standard error."""
    result = click.testing.CliRunner().invoke(main, words, input="", prog_name="edgedec")
    lines = result.stderr.splitlines()
    if result.stdout or len(lines) != 1 or not lines[0].startswith("edgedec: error: "):
        raise SystemExit(f"{words}: expected one line of error, got {result.output}")
    return result.exit_code, portable(lines[0].removeprefix("edgedec: error: "))


def python_rows() -> Iterator[tuple[str, ...]]:
    """An expression, the exception that it raises, and what that says."""
    from edgedec import GenerateOptions, Pipeline, SamplingParams

    with Pipeline.open("demo", threads=1) as pipeline, Pipeline.open("demo", threads=1) as closed:
        closed.close()
        names = {
            "GenerateOptions": GenerateOptions,
            "Pipeline": Pipeline,
            "SamplingParams": SamplingParams,
            "closed": closed,
            "pipeline": pipeline,
        }
        for line in PYTHON.strip().splitlines():
            try:
                eval(line, names)
            except Exception as error:
                kind = type(error).__name__
                yield quoted(line), f"`{kind}`", quoted(portable(" ".join(str(error).split())))
            else:
                raise SystemExit(f"{line}: expected an exception")


def portable(text: str) -> str:
    """A message as somebody sees it whose installation kept no clone, in this folder."""
    text = text.replace(installation.upgrade(), installation.UPGRADE)
    return text.replace(f"{Path.cwd()}{os.sep}", "")


def quoted(text: str) -> str:
    """Code in a cell of a Markdown table."""
    marks = "``" if "`" in text else "`"
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{marks}{pad}{text}{pad}{marks}".replace("|", "\\|")


@contextlib.contextmanager
def sandbox() -> Iterator[None]:
    """A present folder with ``CONTENTS``, and a cache where nothing was measured."""
    before = dict(os.environ)
    there = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        os.chdir(folder)
        os.environ["EDGEDEC_CACHE"] = os.environ["XDG_CACHE_HOME"] = str(folder / ".cache")
        os.environ["EDGEDEC_LIBRARY"] = str(folder / ".library")
        os.environ["EDGEDEC_CONFIG"] = str(folder / ".config.toml")
        os.environ.pop("EDGEDEC_DEBUG", None)
        try:
            fill(folder)
            yield
        finally:
            os.chdir(there)
            os.environ.clear()
            os.environ.update(before)


def fill(folder: Path) -> None:
    """Make what ``CONTENTS`` describes."""
    demo = Bundle.open("demo").path
    for name in CONTENTS:
        if name.endswith("/"):
            (folder / name).mkdir()
    (folder / "checkpoint/config.json").write_text(json.dumps(CONFIG), "utf-8")
    (folder / "lora/adapter_config.json").write_text('{"peft_type": "LORA"}', "utf-8")
    (folder / "downloads/model.gguf").write_bytes(b"GGUF\3\0\0\0")
    (folder / "broken/manifest.json").write_text('{"schema_version": 2, "roles"', "utf-8")
    (folder / "newer/manifest.json").write_text('{"schema_version": 99}', "utf-8")
    shutil.copytree(demo, folder / "cut", dirs_exist_ok=True)
    weights = folder / "cut/target/model.onnx.data"
    weights.write_bytes(weights.read_bytes()[:1000])
    (folder / "taken/notes.txt").write_text("Mine.\n", "utf-8")
    (folder / "notes.txt").write_text("Buy milk.\n", "utf-8")
    chat = {"id": "a", "messages": [{"role": "user", "content": "Hi"}]}
    (folder / "chats.jsonl").write_text(json.dumps(chat) + "\n", "utf-8")
    (folder / "twice.jsonl").write_text('{"id": "a", "prompt": "Hi"}\n' * 2, "utf-8")
    (folder / "pirate.json").write_text('[{"content": "Arr"}]', "utf-8")
