"""Runs core's tests on its classes as they are in the APK.

No Android runs here, but what dx wrote can be turned back into class files: if these still give the
numbers of the vectors, then neither the desugarer nor dx has changed what the code computes.
"""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from xml.etree import ElementTree

from android_demo.apk import tools
from android_demo.apk.checks import CheckError
from android_demo.apk.project import Project

PACKAGE = "dev/edgedec/core/"
# Of core's tests, those that need no ONNX Runtime.
TESTS = "NoiseTest,DrawsTest"
# Debian's enjarify is written for Debian's Python.
_PATH = "/usr/bin:/bin"


def check(project: Project, dex: Path) -> None:
    """Print how many tests passed on the classes of a dex file; raise CheckError otherwise."""
    folder = project.work / "dexed"
    shutil.rmtree(folder, ignore_errors=True)
    back = turned_back(project, dex)
    count = unpack(back, folder / "core" / "classes")
    shutil.copytree(project.build / "core" / "test-classes", folder / "core" / "test-classes")
    passed = run_tests(project.built_in(folder))
    tools.say(f"  back from dex: {passed} tests passed on {count} classes of core")


def turned_back(project: Project, dex: Path) -> Path:
    """Return a jar with the class files of a dex file."""
    result = project.work / "back.jar"
    tools.run(project, ["enjarify", dex, "-f", "-o", result], path=_PATH)
    return result


def unpack(jar: Path, folder: Path) -> int:
    """Unpack core's classes; return how many there are."""
    folder.mkdir(parents=True)
    with zipfile.ZipFile(jar) as archive:
        names = [name for name in archive.namelist() if name.startswith(PACKAGE)]
        archive.extractall(folder, names)
    if not names:
        raise CheckError(f"the dex file should have classes of {PACKAGE} and has none")
    return len(names)


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
