"""Every command of the README and the guides, run: the pair that ships stands in for the models.

Commands of other programs (``make``, ``pip``, ``scp``) are not run here; Python is, in
``test_examples``.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_examples import examples, words_of
from tiny_gguf import write_tiny_gguf

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PAGES = ["README.md", "docs/index.md", "docs/grammars.md"] + [
    f"docs/guides/{name}.md"
    for name in (
        "choose-a-draft", "does-it-help", "embed", "languages-and-editors", "laptop",
        "raspberry-pi", "troubleshooting", "upgrade-and-uninstall",
    )
]  # fmt: skip
# So that a run takes seconds; what a command does stays the same.
SHORT = {
    "bench": ["--count", "1", "-n", "8"],
    "verify": ["--count", "1", "-n", "8"],
    "demo": ["--count", "1", "-n", "16"],
    "export": ["--calibration", "none"],
    "generate": ["-n", "16"],
    "run": ["-n", "16"],
    "chat": ["-n", "16"],
}
# What a page's reader has, by its name in the page, and what stands in for it.
MADE = re.compile(r"\./([\w.-]+-(?:bundle|pair))\b")
CHECKPOINT = re.compile(r"(?<![\w/])(?:\./|[\w-]+/)((?:Qwen|Llama|MiMo|gemma-4-)[\w.-]+)")
GGUF = re.compile(r"\b(?:large|small|SmolLM2[\w.-]+)\.gguf\b")
FILES = {
    "notes.txt": "def read(file):\n    return file.read()\n",
    "mine.jsonl": '{"id": "one", "prompt": "def read(file):"}\n',
    "person.json": '{"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"],'
    ' "additionalProperties": false}',
    "answer.lark": 'start: "yes" | "no"\n',
}


@pytest.fixture(scope="module")
def pair(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pair that ships, with its chat template, as ``edgedec export`` makes it."""
    folder = tmp_path_factory.mktemp("stand-in")
    models = repository / "models" / "demo"
    words = ["export", str(models / "target"), "--draft", str(models / "draft"), "--out", "pair"]
    done = run([*words, *SHORT["export"]], folder)
    assert done.returncode == 0, done.stderr
    return folder / "pair"


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "EDGEDEC_LIBRARY": str(folder / "library"), "HF_HUB_OFFLINE": "1"}


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command; where it reads standard input, that is a prompt."""
    return subprocess.run(
        [sys.executable, "-m", "edgedec", *words], cwd=folder, env=environment(folder),
        input="def f(x):", capture_output=True, text=True, timeout=600,
    )  # fmt: skip


def served(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a server until it answers, and end it."""
    command = [sys.executable, "-m", "edgedec", *words, "--port", "0"]
    with subprocess.Popen(
        command, cwd=folder, env=environment(folder), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        line = process.stdout.readline()
        if found := re.search(r"http://[\d.]+:\d+", line):
            urllib.request.urlopen(f"{found[0]}/health", timeout=60).close()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    return subprocess.CompletedProcess(command, process.returncode, line, errors)


def prepare(commands: list[str], folder: Path, pair: Path, models: Path) -> None:
    """Put what stands in for a page's models and files into a folder."""
    text = "\n".join(commands)
    made = {match for line in commands if "--out" in line for match in MADE.findall(line)}
    for name in set(MADE.findall(text)) - made:
        (folder / name).symlink_to(pair)
    for name in set(CHECKPOINT.findall(text)):
        small = "0.6B" in name or "1B-" in name or name.endswith("1B")
        drafts = name.endswith(("eagle3", "-head", "-assistant"))
        kind = "head" if drafts else "draft" if small else "target"
        shutil.copytree(models / kind, folder / name)
    for name in set(GGUF.findall(text)):
        write_tiny_gguf(folder / name, noise=0.1 if name == "small.gguf" else 0.0)
    for name, content in FILES.items():
        (folder / name).write_text(content, "utf-8")


def commands_of(page: Path) -> Iterator[str]:
    for line in examples(page.read_text("utf-8")):
        # A hub's name is a folder here.
        yield CHECKPOINT.sub(r"./\1", line)


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run(
    repository: Path, tmp_path: Path, pair: Path, page: str
) -> None:
    commands = list(commands_of(repository / page))
    prepare(commands, tmp_path, pair, repository / "models" / "demo")
    for command in commands:
        if GGUF.search(command):
            pytest.importorskip("llama_cpp", reason="llama.cpp not installed: extra gguf")
        words = words_of(command)
        done = (served if words[0] == "serve" else run)(
            [*words, *SHORT.get(words[0], [])], tmp_path
        )
        assert done.returncode == 0, (command, done.stdout[-400:], done.stderr[-2000:])
        assert "Traceback" not in done.stderr, command
        assert done.stdout or words[0] == "export", command


def test_a_command_that_fails_would_be_seen(tmp_path: Path) -> None:
    assert run(["generate", "./nothing-bundle", "x"], tmp_path).returncode == 2
