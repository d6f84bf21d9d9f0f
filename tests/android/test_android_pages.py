"""The pages of the Android demo say what the files say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from android_demo.apk.project import DEMO, Project

PROJECT = Project.read()
GUIDE = DEMO.parent / "docs" / "guides" / "android.md"
EXAMPLE = DEMO / "core" / "src" / "test" / "kotlin" / "dev" / "edgedec" / "guide" / "Writer.kt"
# What README's table of versions has to name.
NAMED = (
    "kotlin.version",
    "onnxruntime.version",
    "dx.version",
    "asm.version",
    "apktool.version",
    "android.all.version",
    "robolectric.version",
)


def blocks(page: str) -> list[str]:
    return re.findall(r"^```kotlin\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def test_the_example_is_the_one_that_is_tested() -> None:
    """Maven compiles and runs it: WriterTest.kt, beside it."""
    package, _, code = EXAMPLE.read_text("utf-8").partition("\n\n")
    assert package == "package dev.edgedec.guide"
    assert code in blocks(GUIDE.read_text("utf-8"))
    body = code.partition("class ")[2].splitlines()
    assert len(body) <= 20


def test_the_guide_names_the_version_of_onnx_runtime() -> None:
    version = PROJECT["onnxruntime.version"]
    assert f"onnxruntime-android:{version}" in blocks(GUIDE.read_text("utf-8"))[0]


def test_readme_names_the_versions_of_the_pom() -> None:
    table = [line for line in (DEMO / "README.md").read_text("utf-8").splitlines() if "|" in line]
    for name in NAMED:
        assert any(PROJECT[name] in line for line in table), name


def test_links_lead_somewhere() -> None:
    for page in (DEMO / "README.md", GUIDE):
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
            assert "://" in link or (page.parent / link.split("#")[0]).exists(), link


def test_pages_name_files_that_are_there() -> None:
    words = re.findall(r"`(android_demo/[\w./-]+|apk/[\w./-]+)`", GUIDE.read_text("utf-8"))
    words += re.findall(
        r"`(apk/[\w./-]+|gradle/[\w./-]+)`", (DEMO / "README.md").read_text("utf-8")
    )
    assert words
    built = Path("android_demo/build")
    for word in words:
        place = DEMO.parent / word if word.startswith("android_demo") else DEMO / word
        assert place.exists() or Path(word).is_relative_to(built), word


def test_every_picture_is_shown() -> None:
    folder = DEMO.parent / "docs" / "captures"
    pictures = {picture.name for picture in folder.glob("android-*.png")}
    assert len(pictures) == 18
    shown = re.findall(r'<img src="([^"]+)" width="\d+" alt="([^"]+)">', GUIDE.read_text("utf-8"))
    assert {Path(source).name for source, _ in shown} == pictures
    assert all((GUIDE.parent / source).exists() for source, _ in shown)
    read_aloud = [words for _, words in shown]
    assert len(set(read_aloud)) == len(read_aloud)


def counts(name: str) -> set[int]:
    """Numbers that the table of the vectors has for a file: they are counted in it."""
    found: Any = json.loads((DEMO / "vectors" / name).read_text("utf-8"))
    if name == "chat.json":
        cases = [case for template in found["pieces"] for case in template["cases"]]
        refused = sum("refused" in case for case in cases)
        return {len(cases) - refused, refused, len(found["pieces"])}
    if name == "manifests.json":
        return {len(found), sum(case["refused"] is not None for case in found)}
    if name == "texts.json":
        each = len(found["cases"]) // len(found["classes"])
        return {each, sum(len(case["ids"]) for case in found["cases"]), len(found["classes"])}
    return {len(part) for key, part in found.items() if key != "made_with"}


def test_readme_counts_the_vectors() -> None:
    rows = re.findall(
        r"^\| `(\w+\.json)` \| ([^|]+) \|", (DEMO / "README.md").read_text("utf-8"), re.M
    )
    files = {file.name for file in (DEMO / "vectors").glob("*.json")}
    assert {name for name, _ in rows} == files
    for name, cell in rows:
        assert {int(number) for number in re.findall(r"\d+", cell)} == counts(name), name
