"""Wrong uses of the commands and of the Python interface, each run to see what it prints.

``tools/help_pages.py`` writes what comes of them to docs/errors.md. They run in a folder of their
own with a cache of its own, need no extra and no network, and print the same on every machine.
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

from edgedec._support import installation
from edgedec.bundle import Bundle
from edgedec.cli import main

HEAD = """# Wrong uses, and what is printed

Written by `make help-pages` from the list in `tools/wrong_uses.py`, which runs every one of them;
do not edit. They stand in a folder that holds

| Name | What it is |
|---|---|
{contents}

The commands print one line, after `edgedec: error: `, and end with the code that is given.
"""

CONTENTS = {
    "checkpoint/": "a model as it comes from a hub, without its weights",
    "downloads/": "a folder with a file `model.gguf`, whose download was cut short",
    "broken/": "a bundle whose manifest is cut short",
    "newer/": "a bundle of a later version",
    "cut/": "a bundle whose weights are cut short",
    "taken/": "a folder with notes of somebody",
    "notes.txt": "a text",
    "chats.jsonl": "prompts for `--prompts` that are conversations",
    "twice.jsonl": "prompts with one id twice",
    "pirate.json": "a conversation with a message that has no role",
}

COMMANDS = {
    "edgedec": """
edgedec genrate "Hi"
edgedec "def f(x):"
edgedec Qwen/Qwen3-0.6B
edgedec downloads/model.gguf
""",
    "The model and the prompt": """
edgedec generate Once upon a time
edgedec generate demo Once upon a time
edgedec generate demo "Hi" --bundle demo
edgedec generate Qwen/Qwen3-0.6B "Hi"
edgedec generate Qwen/Qwen3-0.6B
edgedec generate downloads "Hi"
edgedec generate checkpoint "Hi"
edgedec generate ./missing "Hi"
edgedec generate missing.gguf
edgedec generate notes.txt "Hi there"
edgedec generate broken "Hi"
edgedec generate newer "Hi"
edgedec generate cut "Hi"
edgedec generate ""
edgedec generate "- one"
edgedec chat demo --target demo
edgedec chat checkpoint
""",
    "Options": """
edgedec generate "Hi" --temprature 1
edgedec generate "Hi" --max-tokens 5
edgedec generate -m demo "Hi"
edgedec generate "Hi" -n 0
edgedec generate "Hi" --temperature -1
edgedec generate "Hi" --top-p 2
edgedec generate "Hi" --logit-bias hello
edgedec generate "Hi" --logit-bias 99999=1
edgedec generate "Hi" --stop ""
edgedec generate "Hi" --draft magic
edgedec generate "Hi" --draft lokup
edgedec generate "Hi" --draft Qwen/Qwen3-0.6B
edgedec generate "Hi" --draft missing.gguf
edgedec generate "Hi" --draft lookup --drafter model
edgedec generate "Hi" --draft-length many
edgedec generate "Hi" --accept magic
edgedec generate "Hi" --max-context 1000000
edgedec generate "Hi" --kv-memory 1KB
edgedec generate "Hi" --memory 1MB
edgedec generate "Hi" --memory plenty
edgedec generate "Hi" --plan missing.json
edgedec generate "Hi" --logprobs 3
edgedec demo --count 0
""",
    "Prompts in files": """
edgedec generate "Hi" --prompts twice.jsonl
edgedec generate "Hi" --out results.jsonl
edgedec generate --prompts missing.jsonl
edgedec generate --prompts notes.txt
edgedec generate --prompts twice.jsonl
edgedec generate --prompts chats.jsonl --system "Be brief."
edgedec generate --messages notes.txt
edgedec generate --messages pirate.json
edgedec verify demo --prompts chats.jsonl
""",
    "Other commands": """
edgedec export Qwen/Qwen3-0.6B --out new
edgedec export missing --out new
edgedec export checkpoint --out new
edgedec export checkpoint
edgedec export checkpoint --out new --format onnx,pdf
edgedec export checkpoint --out new --exporter optimum --format gguf
edgedec inspect notes.txt
edgedec inspect cut
edgedec inspect downloads/model.gguf
edgedec verify nothing
edgedec bench demo --draft missing
edgedec plan demo --memory 1MB
edgedec plan demo --out taken
edgedec profile demo --threads 0
edgedec simulate demo --card abacus
edgedec devices --jsno
edgedec cache --clean
edgedec doctor please
""",
}

CONFIG = {
    "model_type": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
    "rms_norm_eps": 1e-5, "max_position_embeddings": 128, "tie_word_embeddings": True,
}  # fmt: skip

PYTHON = """
Pipeline.open("missing")
Pipeline.open("Qwen/Qwen3-0.6B")
Pipeline.open("demo", n_threads=2)
Pipeline.open("demo", draft="magic")
pipeline.generate("")
pipeline.generate(b"Hi")
pipeline.generate([99999])
pipeline.generate("Hi", 10)
pipeline.generate("Hi", max_tokens=10)
pipeline.generate("Hi", max_new_tokens=0)
pipeline.generate("Hi", temperature=-1)
pipeline.generate("Hi", draft="magic")
pipeline.generate("Hi", stop="")
pipeline.generate("Hi" * 9000)
pipeline.chat([])
pipeline.chat([{"role": "user"}])
[next(stream) for stream in (pipeline.stream("Hi"), pipeline.stream("Hi"))]
GenerateOptions(logprobs=-1)
SamplingParams(top_k=0.5)
"""


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

    with Pipeline.open("demo", threads=1) as pipeline:
        names = {
            "GenerateOptions": GenerateOptions,
            "Pipeline": Pipeline,
            "SamplingParams": SamplingParams,
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
    """A message as somebody sees it who installed edgedec from its wheel, in this folder."""
    here = f"`{installation.upgrade()}`"
    text = text.replace(here, f"`pip install --upgrade {installation.DISTRIBUTION}`")
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
