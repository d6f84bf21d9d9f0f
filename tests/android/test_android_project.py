"""Versions come from pom.xml; what is missing, or is not the pinned file, is said in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from android_demo.apk import aarch64, build, natives, resources, tools
from android_demo.apk.project import Project, properties

PROJECT = Project.read()


def test_versions_come_from_the_pom(tmp_path: Path) -> None:
    pom = tmp_path / "pom.xml"
    pom.write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><version>3</version><properties>'
        "<a>1</a><b>${a}.2</b><c>${maven.own}/x</c></properties></project>"
    )
    assert properties(pom) == {"version": "3", "a": "1", "b": "1.2", "c": "${maven.own}/x"}


def test_a_property_that_is_missing_is_named() -> None:
    with pytest.raises(KeyError, match=r"no property dx\.versions"):
        PROJECT["dx.versions"]


def test_each_fetched_file_is_pinned() -> None:
    names = {tools.jar(PROJECT, name).name for name in tools.JARS}
    names |= {f"{natives.NPM}-{natives.NPM_VERSION}.tgz", Path(natives.NPM_ENTRY).name}
    assert set(tools.pinned()) == names


def test_a_file_of_another_sum_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, pins = tmp_path / "some.jar", tmp_path / "pins"
    file.write_bytes(b"right")
    pins.write_text(f"{tools.sha256(file)}  some.jar\n")
    monkeypatch.setattr(tools, "PINNED", pins)
    tools.hold_to_its_sum(file)
    file.write_bytes(b"wrong")
    with pytest.raises(tools.BuildError, match=r"some\.jar has the sha256 "):
        tools.hold_to_its_sum(file)
    with pytest.raises(tools.BuildError, match=r"other\.jar has no line"):
        tools.hold_to_its_sum(tmp_path / "other.jar")


def test_programs_that_are_missing_are_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("java", "javac", "keytool", "mvn", "dexdump"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build.main(["ready"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "needs apksigner, zipalign, enjarify, which this machine lacks" in said
    assert "apt-get install --no-install-recommends apksigner zipalign enjarify)" in said


def test_a_manifest_gets_its_package_and_must_not_have_one() -> None:
    given = '<?xml version="1.0"?>\n<manifest xmlns:android="a">\n</manifest>'
    made = resources.with_package(given, "dev.edgedec.demo")
    assert '<manifest package="dev.edgedec.demo" xmlns:android="a">' in made
    with pytest.raises(tools.BuildError, match="remove it there"):
        resources.with_package(made, "dev.edgedec.demo")


def test_an_aar_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_AAR", "/nowhere/onnxruntime.aar")
    with pytest.raises(tools.MissingError, match="no such file"):
        natives.find(PROJECT)


def test_libraries_of_another_version_are_refused(tmp_path: Path) -> None:
    library = tmp_path / "libonnxruntime.so"
    library.write_bytes(b"\0VERS_" + PROJECT["onnxruntime.version"].encode() + b"\0")
    natives.hold_to_version(library, PROJECT)
    library.write_bytes(b"\0VERS_1.20.0\0")
    with pytest.raises(tools.BuildError, match=r"and is 1\.20\.0"):
        natives.hold_to_version(library, PROJECT)


def test_texts_on_arm_are_compared() -> None:
    def text(*ids: int, accepted: int = 2) -> dict[str, object]:
        return {"ids": list(ids), "figures": {"accepted_tokens": accepted}}

    assert "3 tokens, the same with a draft (2 accepted)" in aarch64.compared(
        "p", text(1, 2, 3), text(1, 2, 3)
    )
    with pytest.raises(tools.BuildError, match=r"\[1, 2, 3\] plainly, \[1, 2, 4\] with"):
        aarch64.compared("p", text(1, 2, 3), text(1, 2, 4))
    with pytest.raises(tools.BuildError, match="compares nothing"):
        aarch64.compared("p", text(1, 2), text(1, 2, accepted=0))
