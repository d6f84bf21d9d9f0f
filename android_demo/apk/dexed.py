"""Runs core's tests on its classes as they are in the APK.

No Android runs here, but what dx wrote can be turned back into class files: if these still give the
numbers of the vectors, then neither the desugarer nor dx has changed what the code computes.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from xml.etree import ElementTree

from android_demo.apk import classes, tools
from android_demo.apk.checks import CheckError
from android_demo.apk.project import Project

PACKAGE = "dev/edgedec/core/"
# Of core's tests, those that read the vectors, which hold on every processor.
VECTORS = "ChatPiecesTest,ManifestVectorsTest,NoiseTest,SamplerTest,TokenizerVectorsTest"
# With whole texts.
TESTS = f"{VECTORS},DemoTextsTest"
# Debian's enjarify is written for Debian's Python.
_PATH = "/usr/bin:/bin"


def check(project: Project, dex: Path) -> None:
    """Print how many tests passed on the classes of a dex file; raise CheckError otherwise."""
    tools.maven(project, "test-compile", "--projects", "core")
    built, folder = project.build / "core", project.work / "dexed"
    shutil.rmtree(folder, ignore_errors=True)
    count = turned_back(project, dex, folder / "core" / "classes")
    compiled = {
        file.relative_to(built / "classes") for file in (built / "classes").rglob("*.class")
    }
    lost = [file for file in compiled if not (folder / "core" / "classes" / file).exists()]
    if lost or not compiled:
        raise CheckError(f"the dex file should have all classes of core and lacks {lost}")
    shutil.copytree(built / "test-classes", folder / "core" / "test-classes")
    passed = run_tests(project.built_in(folder))
    tools.say(f"  back from dex: {passed} tests passed on {count} classes of core")


def turned_back(project: Project, dex: Path, folder: Path) -> int:
    """Unpack the class files that core's part of a dex file turns into; return how many."""
    jar = project.work / "back.jar"
    tools.run(project, ["enjarify", dex, "-f", "-o", jar], path=_PATH)
    libraries = [*classes.listed(project), tools.jar(project, "onnxruntime")]
    classes.run_own(project, "Repair", folder, jar, PACKAGE, *libraries)
    return sum(1 for _ in folder.rglob("*.class"))


def run_tests(project: Project) -> int:
    """Run tests on compiled classes as they are; return how many passed."""
    try:
        tools.maven(project, "surefire:test", f"-Dtest={TESTS}", "--projects", "core")
    except tools.BuildError as error:
        raise CheckError(f"core computes something else after dx: {error}") from error
    reports = (project.build / "core" / "surefire-reports").glob("*.xml")
    suites = [ElementTree.parse(report).getroot() for report in reports]
    passed = sum(int(one.get("tests", 0)) - int(one.get("skipped", 0)) for one in suites)
    if not passed:
        raise CheckError(f"of {TESTS} no test ran")
    return passed
