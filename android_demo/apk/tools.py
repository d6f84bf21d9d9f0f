"""The programs that the build runs: what is missing is said in one line, what fails shows why."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from android_demo.apk.project import Project

# A program, and Debian's package of it.
PACKAGES = {
    "java": "default-jdk-headless",
    "javac": "default-jdk-headless",
    "keytool": "default-jdk-headless",
    "mvn": "maven",
    "apksigner": "apksigner",
    "zipalign": "zipalign",
    "dexdump": "dexdump",
    "enjarify": "enjarify",
}
# Of `make android-aarch64` alone.
_FURTHER = {
    "qemu-aarch64-static": "qemu-user-static",
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
}
# Fetched by Maven: the jar's name, and the property of pom.xml that has its version.
JARS = {
    "apktool-cli": "apktool.version",
    "android-all": "android.all.version",
    "dalvik-dx": "dx.version",
    "asm": "asm.version",
    "asm-tree": "asm.version",
    "asm-commons": "asm.version",
    "onnxruntime": "onnxruntime.version",
    "junit-platform-console-standalone": "junit.console.version",
}
PINNED = Path(__file__).with_name("pinned.sha256")
_AAPT2 = {
    "Linux": "prebuilt/linux/aapt2",
    "Darwin": "prebuilt/macosx/aapt2",
    "Windows": "prebuilt/windows/aapt2.exe",
}
_LAST_LINES = 30
Command = list[str | Path]


class MissingError(Exception):
    """Something that the build needs is not here; the message says how to get it."""


class BuildError(Exception):
    """A step failed, or a file is not what it has to be."""


def require(*programs: str) -> None:
    """Raise an error that names which of the programs, of all by default, are not installed."""
    wanted = programs or tuple(PACKAGES)
    absent = [name for name in wanted if shutil.which(name) is None]
    if absent:
        packages = " ".join(dict.fromkeys({**PACKAGES, **_FURTHER}[name] for name in absent))
        raise MissingError(
            f"the Android demo needs {', '.join(absent)}, which this machine lacks "
            f"(on Debian: apt-get install --no-install-recommends {packages})"
        )


def run(
    project: Project, command: Sequence[str | Path], *, path: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program and return what it printed; temporary files stay in the build folder."""
    scratch = project.work / "tmp"
    scratch.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "ORT_DISABLE_TELEMETRY": "1",
        "TMPDIR": str(scratch),
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
    }
    if path is not None:
        environment["PATH"] = path
    done = subprocess.run(
        [str(part) for part in command],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).strip().splitlines()
        # After this mark Maven explains how to use Maven.
        ends = [place for place, line in enumerate(lines) if "[Help 1]" in line]
        shown = "\n".join(lines[: ends[0] + 1 if ends else None][-_LAST_LINES:])
        raise BuildError(f"{Path(str(command[0])).name} failed ({done.returncode}):\n{shown}")
    return done


def java(project: Project, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the JVM."""
    scratch = project.work / "tmp"
    return run(project, ["java", f"-Djava.io.tmpdir={scratch}", *arguments])


def maven(project: Project, *arguments: str, pom: str = "pom.xml") -> None:
    """Run Maven on a pom.xml of the demo, with the options of the variable MVN_ARGS."""
    options = shlex.split(os.environ.get("MVN_ARGS", ""))
    command = ["mvn", "--quiet", "--file", str(project.demo / pom), *options]
    run(project, [*command, f"-Ddemo.build={project.build}", *arguments])


def jar(project: Project, name: str) -> Path:
    """Return a jar that Maven fetched."""
    return project.tools / f"{name}-{project[JARS[name]]}.jar"


def fetch(project: Project) -> None:
    """Have Maven fetch the jars that are not there, and hold them to their pinned sums."""
    absent = [name for name in JARS if not jar(project, name).exists()]
    if not absent:
        return
    incoming = project.tools / "incoming"
    copy = ["dependency:copy-dependencies", f"-DoutputDirectory={incoming}"]
    try:
        maven(project, *copy, f"-DincludeArtifactIds={','.join(absent)}", pom="apk/pom.xml")
    except BuildError as error:
        last = str(error).splitlines()[1:2]
        raise MissingError(f"Maven cannot fetch {', '.join(absent)}: {' '.join(last)}") from error
    for name in absent:
        hold_to_its_sum(incoming / jar(project, name).name)
        os.replace(incoming / jar(project, name).name, jar(project, name))
    shutil.rmtree(incoming)


def pinned() -> dict[str, str]:
    """Return the sha256 of each fetched file by its name."""
    lines = PINNED.read_text("utf-8").splitlines()
    return {name: value for value, name in (line.split() for line in lines)}


def hold_to_its_sum(file: Path) -> None:
    """Raise an error if a file is not the one whose sha256 is pinned."""
    wanted = pinned().get(file.name)
    if wanted is None:
        raise BuildError(f"{file.name} has no line in {PINNED.name}: add its sha256 there")
    found = sha256(file)
    if found != wanted:
        raise BuildError(
            f"{file.name} has the sha256 {found}, {PINNED.name} has {wanted}: "
            f"remove {file} and run this again"
        )


def sha256(file: Path) -> str:
    """Return the sha256 of a file as hexadecimal digits."""
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def aapt2(project: Project) -> Path:
    """Return aapt2, unpacked from apktool; the variable AAPT2 may name another one."""
    given = os.environ.get("AAPT2")
    if given:
        return Path(given)
    system, machine = platform.system(), platform.machine()
    if system not in _AAPT2 or (system == "Linux" and machine != "x86_64"):
        raise MissingError(f"aapt2 is not to be had for {system} {machine}: set AAPT2 to its path")
    program = project.tools / Path(_AAPT2[system]).name
    if not program.exists():
        part = program.with_name(program.name + ".part")
        with zipfile.ZipFile(jar(project, "apktool-cli")) as archive:
            part.write_bytes(archive.read(_AAPT2[system]))
        part.chmod(0o755)
        os.replace(part, program)
    return program


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)
    sys.stdout.flush()
