"""The pages of the Android demo say what the files say."""

from __future__ import annotations

import re
from pathlib import Path

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
