"""Runs core on an emulated ARM processor: `make android-aarch64`.

Debian's Java for arm64 is unpacked into the build folder and run by qemu's user mode. That covers
NEON kernels and their rounding, but neither Android's runtime nor its C library. The
tests of the vectors must pass, and two texts must be the same plainly and with a draft.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from android_demo.apk import tools
from android_demo.apk.dexed import VECTORS
from android_demo.apk.project import Project
from tools.aarch64.debian import A76, unpack

QEMU = "qemu-aarch64-static"
CPU = A76.name
# An emulated run may hang; none of them takes a tenth of this.
LIMIT_S = 300
PROMPTS = ("def read_lines(path):", "import os\n\nclass Reader:\n")


def main() -> int:
    """Run it all; return the exit code."""
    project = Project.read()
    try:
        tools.require("java", "javac", "mvn", QEMU, "apt-get", "dpkg-deb")
        tools.fetch(project)
        machine = Machine(project)
        path = class_path(project)
        run_vectors(project, machine, path)
        for prompt in PROMPTS:
            run_text(project, machine, path, prompt)
    except tools.MissingError as error:
        print(error, file=sys.stderr)
        return 2
    except tools.BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


class Machine:
    """A folder with the files of an ARM system, of which Java is run."""

    def __init__(self, project: Project):
        work = project.tools.parent.parent / "aarch64"
        self._root = work / "root"
        # Where Maven runs tests, too: they look for files from here.
        self._folder = project.demo / "core"
        if not (self._root / "complete").exists():
            tools.say("fetching Java for arm64")
            unpack(work, ["default-jre-headless"], lambda words: tools.run(project, words))
            (self._root / "proc" / "cpuinfo").write_text(A76.info(), "ascii")
            (self._root / "complete").touch()
        found = self._root.glob("usr/lib/jvm/java-*-openjdk-arm64/bin/java")
        (self._java,) = (java for java in found if not java.parents[1].is_symlink())

    def java(self, *arguments: str | Path) -> str:
        """Run Java and return what it printed."""
        command = [QEMU, "-L", self._root, "-cpu", CPU, self._java, *arguments]
        environment = {**os.environ, "ORT_DISABLE_TELEMETRY": "1", "LC_ALL": "C.UTF-8"}
        try:
            done = subprocess.run(
                [str(part) for part in command],
                env=environment,
                cwd=self._folder,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            raise tools.BuildError(f"the emulated Java did not end within {LIMIT_S} s") from None
        if done.returncode:
            last = (done.stdout + done.stderr).splitlines()[-20:]
            raise tools.BuildError("\n".join(["the emulated Java failed:", *last]))
        return done.stdout


def class_path(project: Project) -> str:
    """Compile core with its tests; return their class path."""
    listed = project.work / "aarch64.txt"
    goals = ["test-compile", "dependency:build-classpath", f"-Dmdep.outputFile={listed}"]
    tools.maven(project, *goals, "-DincludeScope=test", "--projects", "core")
    built = project.build / "core"
    own = [str(built / "classes"), str(built / "test-classes")]
    return os.pathsep.join([*own, listed.read_text("utf-8").strip()])


def run_vectors(project: Project, machine: Machine, path: str) -> None:
    """The vectors hold on this processor, too."""
    console = tools.jar(project, "junit-platform-console-standalone")
    chosen = [f"--select-class=dev.edgedec.core.{name}" for name in VECTORS.split(",")]
    options = ["--class-path", path, "--details=summary", "--disable-banner", *chosen]
    printed = machine.java(scratch(project), "-jar", console, "execute", *options)
    found = re.search(r"(\d+) tests successful", printed)
    if found is None or found[1] == "0":
        raise tools.BuildError(f"of {VECTORS} no test ran: {printed}")
    tools.say(f"{found[1]} tests of the vectors passed on {CPU}")


def run_text(project: Project, machine: Machine, path: str, prompt: str) -> None:
    """A text is the same plainly and with a draft."""
    command: tools.Command = [scratch(project), "-cp", path, "dev.edgedec.core.MainKt"]
    command += [project.bundle, prompt, "--json", "--max-new-tokens", "32", "--threads", "1"]
    # Of a fixed length: by the costs of an emulator, drafting would not pay.
    command += ["--draft-length", "4", "--drafter"]
    plain, drafted = (json.loads(machine.java(*command, name)) for name in ("none", "model"))
    tools.say(compared(prompt, plain, drafted))


def compared(prompt: str, plain: dict[str, Any], drafted: dict[str, Any]) -> str:
    """Return a line about two texts; raise an error unless they are equal and drafts were used."""
    accepted = drafted["figures"]["accepted_tokens"]
    if plain["ids"] != drafted["ids"]:
        raise tools.BuildError(f"{prompt!r}: {plain['ids']} plainly, {drafted['ids']} with a draft")
    if not accepted:
        raise tools.BuildError(f"{prompt!r}: no drafted token was accepted, which compares nothing")
    return f"{prompt!r}: {len(plain['ids'])} tokens, the same with a draft ({accepted} accepted)"


def scratch(project: Project) -> str:
    """Return the option that has Java unpack libraries into the build folder."""
    return f"-Djava.io.tmpdir={project.work / 'tmp'}"


if __name__ == "__main__":
    sys.exit(main())
