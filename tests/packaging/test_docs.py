"""The pages of the repository: links lead somewhere, and the site needs no network."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from browser import Browser, browser

LINK = re.compile(r"\]\(([^)\s]+)\)", re.DOTALL)
LOADED = re.compile(
    r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=\"((?:https?:)?//[^\"]+)", re.I
)

FIELD = "document.querySelector('[data-md-component=search-query]')"


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


def test_every_helper_of_the_tests_is_on_its_page(repository: Path) -> None:
    folder = repository / "tests" / "support"
    listed = re.findall(r"^\| `(\w+)` \|", (folder / "README.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(file.stem for file in folder.glob("*.py"))


@pytest.fixture(scope="module")
def site(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages as a site, built strictly: a dead link, an unknown anchor or a page outside the
    menu fails."""
    pytest.importorskip("mkdocs", reason="mkdocs-material is not installed: extra docs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    silent = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=repository, env=silent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 12
    for page in pages:
        assert LOADED.findall(page.read_text("utf-8")) == [], page


@pytest.mark.full
@pytest.mark.skipif(os.name == "nt", reason="the workflow's job runs on Linux")
def test_a_version_stands_beside_the_others(repository: Path, tmp_path: Path) -> None:
    """The commands of the release, for two versions, into a branch of a repository here."""
    pytest.importorskip("mike", reason="mike is not installed: extra docs")
    import yaml

    work, origin = tmp_path / "work", tmp_path / "origin.git"
    work.mkdir()
    shutil.copy(repository / "mkdocs.yml", work)
    shutil.copytree(repository / "docs", work / "docs")
    release = yaml.safe_load((repository / ".github/workflows/release.yml").read_text("utf-8"))
    steps = release["jobs"]["pages"]["steps"]
    (build,) = (one for one in steps if "mike deploy" in one.get("run", ""))

    def run(script: str, **environment: str) -> str:
        there = {**os.environ, "NO_MKDOCS_2_WARNING": "1", **environment}
        there["PATH"] = f"{sysconfig.get_path('scripts')}{os.pathsep}{there['PATH']}"
        done = subprocess.run(
            ["bash", "-euc", script], cwd=work, env=there, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(f"git init -q --bare {origin}; git init -q; git remote add origin {origin}; git add -A")
    run("git -c user.name=a -c user.email=a@localhost commit -qm pages")
    for tag in ("v0.2.0", "v0.3.0"):
        run(f"{build['run']}\ngit push -q origin gh-pages", **build["env"] | {"TAG": tag})
    known = json.loads(run("git show gh-pages:versions.json"))
    assert [(one["version"], one["aliases"]) for one in known] == [
        ("0.3.0", ["latest"]), ("0.2.0", []),
    ]  # fmt: skip
    assert "latest/" in run("git show gh-pages:index.html")
    for version in ("0.2.0", "0.3.0"):
        page = run(f"git show gh-pages:{version}/index.html")
        assert '"version": {"provider": "mike"}' in page  # which asks for versions.json


def searched(window: Browser, site: Path) -> None:
    window.requests.clear()
    window.errors.clear()
    window.go((site / "guides" / "laptop.html").as_uri())
    window.wait(f"document.readyState === 'complete' && !!{FIELD}")
    window.run(f"{FIELD}.focus()")
    window.type("rollback")


@pytest.mark.full
@pytest.mark.chromium
def test_search_works_in_a_site_opened_from_a_folder(site: Path, tmp_path: Path) -> None:
    with browser(tmp_path / "browser") as window:
        searched(window, site)
        # A key typed before the page listens is lost.
        again = f"{FIELD}.dispatchEvent(new Event('keyup'))"
        window.wait(f"{again} && document.querySelectorAll('.md-search-result__item').length > 1")
        assert window.errors == []
        assert all(one.startswith(("file:", "data:")) for one in window.requests)
        shim = site / "assets" / "iframe-worker.js"
        kept = shim.read_text("utf-8")
        shim.write_text("", "utf-8")  # the control: browsers refuse workers there
        try:
            searched(window, site)
            with pytest.raises(AssertionError, match="SecurityError"):
                window.run("new Worker('search.js'), true")
        finally:
            shim.write_text(kept, "utf-8")


def test_the_menu_begins_with_guides_and_ends_with_development(repository: Path) -> None:
    menu = (repository / "mkdocs.yml").read_text("utf-8").split("\nnav:\n")[1]
    groups = re.findall(r"^  - ([\w ]+):$", menu, re.MULTILINE)
    assert groups == ["Guides", "Topics", "Reference", "Measured", "Development"]
    assert "errors.md" in menu.split("Development:")[1]


# Written by a program, or looked things up in.
LONG = {"cli.md", "api.md", "errors.md", "certificate.md", "bundle-format.md", "published.md"}


def test_no_page_is_longer_than_somebody_reads(repository: Path) -> None:
    pages = [page for page in (repository / "docs").rglob("*.md") if page.name not in LONG]
    words = {page.name: len(page.read_text("utf-8").split()) for page in pages}
    assert {name: count for name, count in words.items() if count > 2000} == {}


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
