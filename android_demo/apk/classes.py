"""From sources to one dex file: Maven compiles, lambdas become classes, dx writes Dalvik's code."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

from android_demo.apk import tools
from android_demo.apk.project import Project

_SOURCES = Path(__file__).with_name("src")
_ORT = "ai/onnxruntime/"
# They come with the AAR only; the jar for desktops has none. Held to that here and in checks.py.
_TELEMETRY = "telemetry"
_HEAP = "-Xmx2g"


def compile_all(project: Project) -> list[Path]:
    """Have Maven compile core and app; return the folders and jars that the APK needs."""
    tools.maven(
        project,
        "compile",
        "dependency:build-classpath",
        "-DincludeScope=runtime",
        f"-Dmdep.outputFile={project.work / 'classpath.txt'}",
        "--projects",
        "app",
        "--also-make",
    )
    return [project.build / "app" / "classes", *listed(project)]


def listed(project: Project) -> list[Path]:
    """Return what the app's classes need at run time, core's classes first."""
    text = (project.work / "classpath.txt").read_text("utf-8")
    return [Path(entry) for entry in text.strip().split(os.pathsep)]


def dex(project: Project, inputs: list[Path]) -> Path:
    """Write classes.dex of compiled classes and of ONNX Runtime's."""
    runtime = onnxruntime(project)
    whole, result = project.work / "classes.jar", project.work / "classes.dex"
    desugar(project, whole, [*inputs, runtime])
    write_dex(project, whole, result)
    return result


def onnxruntime(project: Project) -> Path:
    """Take the Java classes out of the jar for desktops, whose class files dx can read."""
    classes = project.work / "onnxruntime-classes.jar"
    with (
        zipfile.ZipFile(tools.jar(project, "onnxruntime")) as source,
        zipfile.ZipFile(classes, "w") as into,
    ):
        for name in sorted(source.namelist()):
            if not name.startswith(_ORT) or not name.endswith(".class"):
                continue
            if _TELEMETRY in name.lower():
                raise tools.BuildError(f"ONNX Runtime's jar has {name}, which the APK must not")
            into.writestr(zipfile.ZipInfo(name), source.read(name))
    return classes


def desugar(project: Project, result: Path, inputs: list[Path]) -> None:
    """Write one jar of all classes, without invokedynamic."""
    run_own(project, "Desugar", result, *inputs)


def run_own(project: Project, program: str, *arguments: str | Path) -> None:
    """Compile the programs of src/ and run one."""
    libraries = [tools.jar(project, name) for name in ("asm", "asm-tree", "asm-commons")]
    compiled = project.work / "programs"
    path = os.pathsep.join(str(file) for file in (compiled, *libraries))
    tools.run(project, ["javac", "-cp", path, "-d", compiled, *sorted(_SOURCES.glob("*.java"))])
    tools.java(project, "-cp", path, program, *arguments)


def write_dex(project: Project, classes: Path, result: Path) -> None:
    """Translate a jar for Android."""
    tools.java(
        project,
        _HEAP,
        "-cp",
        tools.jar(project, "dalvik-dx"),
        "com.android.dx.command.Main",
        "--dex",
        f"--min-sdk-version={project['android.minSdk']}",
        f"--output={result}",
        classes,
    )
