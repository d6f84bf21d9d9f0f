"""Build the APK of the demo without an Android SDK: `make android`.

    python3 android_demo/apk/build.py [STEP] [--abi ABI]

Steps:
    programs   say which programs are missing
    ready      fetch all that the build needs, too
    resources  make base.apk and the class R, which the app's own tests need
    apk        make the APK and check it (the default)
    check      check the one that was made
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from android_demo.apk import checks, classes, dexed, natives, package, resources, tools
from android_demo.apk.project import Project

STEPS = ("programs", "ready", "resources", "apk", "check")


def main(arguments: list[str] | None = None) -> int:
    """Run a step; return the exit code: 1 if it failed, 2 if something is missing."""
    parser = argparse.ArgumentParser(description="Build the APK of the demo.", allow_abbrev=False)
    parser.add_argument("step", nargs="?", choices=STEPS, default="apk")
    parser.add_argument(
        "--abi",
        action="append",
        choices=natives.ABIS,
        help="processors that the APK is for: arm64-v8a by default, x86_64 for emulators",
    )
    chosen = parser.parse_args(arguments)
    abis = tuple(dict.fromkeys(chosen.abi or natives.ABIS[:1]))
    try:
        run(Project.read(), chosen.step, abis)
    except tools.MissingError as error:
        print(error, file=sys.stderr)
        return 2
    except tools.BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def run(project: Project, step: str, abis: tuple[str, ...]) -> None:
    """Run one step."""
    if step == "resources":
        tools.require("java", "javac", "mvn")
        tools.fetch(project)
        resources.build(project)
        return
    tools.require()
    if step == "programs":
        return
    tools.fetch(project)
    if step == "ready":
        natives.find(project)
        return
    if step == "apk":
        began = time.monotonic()
        build(project, abis)
        tools.say(f"{project.apk}, built in {time.monotonic() - began:.0f} s; checks:")
    checks.check(project, project.apk, abis)
    dexed.check(project, project.work / "classes.dex")


def build(project: Project, abis: tuple[str, ...]) -> Path:
    """Make the APK; return it."""
    libraries = natives.unpack(project, abis)
    base = resources.build(project)
    dex = classes.dex(project, classes.compile_all(project))
    return package.make(project, base, dex, libraries)


if __name__ == "__main__":
    sys.exit(main())
