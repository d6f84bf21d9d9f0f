"""The pages of the repository: links lead somewhere, and the site needs no network."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

LINK = re.compile(r"\]\(([^)\s]+)\)", re.DOTALL)
LOADED = re.compile(
    r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=\"((?:https?:)?//[^\"]+)", re.I
)


def dead_links(page: Path) -> list[str]:
    """Relative links of a page to files that are not there."""
    targets = [link.split("#")[0] for link in LINK.findall(page.read_text("utf-8"))]
    relative = [target for target in targets if target and "://" not in target]
    return [target for target in relative if not (page.parent / target).exists()]


def test_links_of_pages_outside_the_site_lead_somewhere(repository: Path) -> None:
    for page in (repository / "README.md", repository / "CONTRIBUTING.md"):
        assert LINK.search(page.read_text("utf-8"))
        assert dead_links(page) == []


def test_a_dead_link_would_be_seen(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("[a](gone.md#part) [b](page.md) [c](https://example.org)")
    assert dead_links(tmp_path / "page.md") == ["gone.md"]


def test_the_site_builds_and_loads_nothing_from_elsewhere(repository: Path, tmp_path: Path) -> None:
    """Strictly: a dead link, an unknown anchor or a page outside the menu fails."""
    pytest.importorskip("mkdocs", reason="mkdocs-material is not installed: extra docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    silent = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=repository, env=silent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 12
    for page in pages:
        assert LOADED.findall(page.read_text("utf-8")) == [], page


def tokens_per_pass(prompt: str) -> float:
    from edgedec import Pipeline

    with Pipeline.open("demo", plan="none") as pipeline:
        return pipeline.generate(prompt, draft_length=4).metrics.block_efficiency


def test_the_first_command_of_the_pages_wins_visibly(repository: Path) -> None:
    """It is the first thing that a newcomer sees of edgedec: the picture shows the same command."""
    first = r'^edgedec generate "(.+)"$'
    prompts = {
        re.findall(first, (repository / page).read_text("utf-8"), re.MULTILINE)[0]
        for page in ("README.md", "docs/index.md")
    }
    (prompt,) = prompts
    assert f'PROMPT = "{prompt}"' in (repository / "tools" / "captures.py").read_text("utf-8")
    drawn = (repository / "docs" / "captures" / "generate-80.svg").read_text("utf-8")
    words = html.unescape(drawn).replace("\xa0", " ")
    assert prompt in words
    (factor,) = re.findall(r"([\d.]+)x plain decoding", words)
    assert float(factor) >= 1.3
    assert tokens_per_pass(prompt) >= 4


def test_a_first_command_that_hardly_wins_would_be_seen() -> None:
    assert tokens_per_pass("def format_date(value):") < 4
