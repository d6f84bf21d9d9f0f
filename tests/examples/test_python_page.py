"""Every block of docs/python.md runs, in a folder that has the models it names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tiny_bundles
from serving import TEMPLATE
from tiny_checkpoints import noisy_checkpoint

from edgedec.export import ExportOptions
from edgedec.profiling import measuring

BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
WORDS = {
    # Models of this page that a test has none of, and forms that random weights pass.
    '"./Qwen3-0.6B", progress': '"./Qwen3-0.6B", weights="fp32", progress',
    'draft="./Qwen3-0.6B", progress': 'draft="./Qwen3-0.6B", parity=False, progress',
}


def blocks(repository: Path) -> list[str]:
    return BLOCK.findall((repository / "docs" / "python.md").read_text("utf-8"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a checkpoint, a larger one, and a bundle that chats."""
    entries = {"eos_token": "<|end|>", "chat_template": TEMPLATE}
    for name, noise in (("Qwen3-8B", 0.0), ("Qwen3-0.6B", 0.01)):
        noisy_checkpoint(tmp_path / name, noise=noise, context=2048, entries=entries)
    target = tmp_path / "Qwen3-8B"
    options = ExportOptions(target, tmp_path / "bundle", weights="fp32", parity=False)
    (tmp_path / "my-bundle").symlink_to(tiny_bundles.kept(options), target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measuring, "BUDGET_S", 0.02)
    monkeypatch.setattr(measuring, "WIDTHS", (1, 2, 4, 8))
    monkeypatch.setattr(measuring, "CONTEXTS", (32, 64))
    monkeypatch.setenv("EDGEDEC_CACHE", str(tmp_path / "profiles"))
    monkeypatch.setenv("EDGEDEC_LIBRARY", str(tmp_path / "library"))
    return tmp_path


@pytest.mark.slow
def test_the_page_runs_from_top_to_bottom(
    repository: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    found = blocks(repository)
    assert len(found) >= 7
    for block in found:
        for word, replacement in WORDS.items():
            block = block.replace(word, replacement)
        exec(compile(block, "docs/python.md", "exec"), names)
        assert capsys.readouterr().out


def test_the_table_names_options_that_exist(repository: Path) -> None:
    from edgedec.generation.keywords import TEXTS
    from edgedec.loading.options import OPENINGS

    page = (repository / "docs" / "python.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and "`--" in line]
    named = {name for row in rows for name in re.findall(r"(\w+)=", row.split("|")[3])}
    assert named == {"stop", "provider", "json_schema", "logit_bias", "mmap"}
    assert named <= {*TEXTS, *OPENINGS}
