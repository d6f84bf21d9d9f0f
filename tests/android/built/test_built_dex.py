"""Lambdas become classes that do the same; what dx would leave to Android's linker is flagged."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from android_demo.apk import checks, classes, tools
from android_demo.apk.checks import CheckError
from android_demo.apk.project import Project

pytestmark = pytest.mark.android
LAMBDAS = Path(__file__).with_name("Lambdas.java")


def compiled(project: Project, folder: Path, source: Path, release: str = "8") -> Path:
    result = folder / "classes"
    tools.run(
        project, ["javac", "-nowarn", "-Xlint:-options", "--release", release, "-d", result, source]
    )
    return result


def printed(classes: Path, main: str) -> str:
    command = ["java", "-cp", str(classes), main]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / f"{name}.java"
    file.write_text(text, "utf-8")
    return file


def dexed(project: Project, folder: Path, source: Path) -> tuple[bytes, str]:
    """A class as dx translates it without the desugarer, and its instructions."""
    jar, dex = folder / "classes.jar", folder / "classes.dex"
    tree = compiled(project, folder, source)
    with zipfile.ZipFile(jar, "w") as archive:
        for file in sorted(tree.rglob("*.class")):
            archive.write(file, file.relative_to(tree).as_posix())
    classes.write_dex(project, jar, dex)
    return dex.read_bytes(), tools.run(project, ["dexdump", "-d", dex]).stdout


def test_desugared_lambdas_do_the_same(project: Project, tmp_path: Path) -> None:
    tree, jar = compiled(project, tmp_path, LAMBDAS), tmp_path / "desugared.jar"
    before = printed(tree, "Lambdas")
    assert len(before.splitlines()) == 24
    assert "invokedynamic" in disassembly(project, tree)
    classes.desugar(project, jar, [tree])
    with zipfile.ZipFile(jar) as archive:
        archive.extractall(tmp_path / "desugared")
    assert printed(tmp_path / "desugared", "Lambdas") == before
    assert "invokedynamic" not in disassembly(project, tmp_path / "desugared")


def disassembly(project: Project, folder: Path) -> str:
    return tools.run(project, ["javap", "-c", "-p", *sorted(folder.rglob("*.class"))]).stdout


def test_another_invokedynamic_is_refused(project: Project, tmp_path: Path) -> None:
    source = written(
        tmp_path, "Joined", 'class Joined { static String of(int n) { return n + " of"; } }'
    )
    tree = compiled(project, tmp_path, source, release="11")
    with pytest.raises(tools.BuildError, match=r"Joined\.of: expected a lambda"):
        classes.desugar(project, tmp_path / "out.jar", [tree])


def test_a_class_that_comes_twice_is_refused(project: Project, tmp_path: Path) -> None:
    tree = compiled(project, tmp_path, written(tmp_path, "Some", "class Some {}"))
    with pytest.raises(tools.BuildError, match="Some is there twice"):
        classes.desugar(project, tmp_path / "out.jar", [tree, tree])


def test_a_lambda_that_was_left_is_flagged(project: Project, tmp_path: Path) -> None:
    source = written(
        tmp_path, "Left", "class Left { Runnable r = () -> System.out.println(this); }"
    )
    dex, instructions = dexed(project, tmp_path, source)
    with pytest.raises(CheckError, match="1 instructions invoke-custom are left, of 1 call sites"):
        checks.invoke_custom([dex], instructions)


def test_a_class_of_the_telemetry_is_flagged(project: Project, tmp_path: Path) -> None:
    source = written(
        tmp_path, "TelemetryInitializer", "package ai.onnxruntime; class TelemetryInitializer {}"
    )
    dex, _ = dexed(project, tmp_path, source)
    with pytest.raises(CheckError, match="classes of telemetry, as ai/onnxruntime/Telemetry"):
        checks.telemetry("E: manifest", [dex])
