"""The papers of the project: forms that a forge reads, a citation, and what they name exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from test_docs import dead_links

import edgedec

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: extra docs")

PAPERS = ("SECURITY.md", "CODE_OF_CONDUCT.md", "SUPPORT.md")
KINDS = {"markdown", "textarea", "input", "dropdown", "checkboxes"}


def wrong_form(form: Any) -> list[str]:
    """What GitHub would refuse in an issue form, and what ours must have."""
    found = [f"no {name}" for name in ("name", "description", "body") if not form.get(name)]
    ids = []
    for part in form.get("body", []):
        if part.get("type") not in KINDS:
            found.append(f"no such kind: {part.get('type')}")
        if part.get("type") == "markdown":
            continue
        ids.append(part.get("id"))
        if not part.get("attributes", {}).get("label"):
            found.append(f"{part.get('id')}: no label")
    if len(set(ids)) != len(ids) or not all(re.fullmatch(r"[\w-]+", str(one)) for one in ids):
        found.append("ids")
    labels = [str(part.get("attributes", {}).get("label", "")) for part in form.get("body", [])]
    if not any("`edgedec doctor`" in label for label in labels):
        found.append("does not ask for doctor")
    return found


def forms(repository: Path) -> list[Path]:
    folder = repository / ".github" / "ISSUE_TEMPLATE"
    return [file for file in sorted(folder.glob("*.yml")) if file.name != "config.yml"]


def test_the_issue_forms_are_read_and_ask_for_doctor(repository: Path) -> None:
    files = forms(repository)
    assert len(files) == 4
    for file in files:
        assert wrong_form(yaml.safe_load(file.read_text("utf-8"))) == [], file.name


def test_a_wrong_form_would_be_seen() -> None:
    twice = {"type": "input", "id": "a", "attributes": {"label": "A"}}
    form = {"name": "x", "body": [twice, twice, {"type": "text", "id": "b"}]}
    assert wrong_form(form) == [
        "no description", "no such kind: text", "b: no label", "ids", "does not ask for doctor",
    ]  # fmt: skip


def test_links_and_commands_of_the_papers_exist(repository: Path) -> None:
    for name in PAPERS:
        assert dead_links(repository / name) == []
    commands = {file.stem for file in (repository / "edgedec" / "cli").glob("[a-z]*.py")}
    for name in (*PAPERS, "docs/deprecation.md", "docs/releasing.md", "docs/submissions.md"):
        text = (repository / name).read_text("utf-8")
        assert set(re.findall(r"`edgedec ([a-z]+)", text)) <= commands, name


def test_the_citation_is_of_this_version(repository: Path) -> None:
    cited = yaml.safe_load((repository / "CITATION.cff").read_text("utf-8"))
    needed = {"cff-version", "message", "title", "authors", "version", "license"}
    assert needed <= set(cited)
    assert str(cited["version"]) == edgedec.__version__
    assert cited["cff-version"] == "1.2.0"
    for work in cited["references"]:
        assert {"type", "title", "authors"} <= set(work)


def test_the_guide_names_the_wheel_of_this_version(repository: Path) -> None:
    guide = (repository / "docs" / "guides" / "install.md").read_text("utf-8")
    named = set(re.findall(r"edgedec_runtime-([\d.]+)-py3", guide))
    assert named == {edgedec.__version__}
