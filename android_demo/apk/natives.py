"""ONNX Runtime's libraries for phones, out of its AAR."""

from __future__ import annotations

import os
import re
import shutil
import tarfile
import zipfile
from pathlib import Path

from android_demo.apk import tools
from android_demo.apk.project import Project

ABIS = ("arm64-v8a", "x86_64")
LIBRARIES = ("libonnxruntime.so", "libonnxruntime4j_jni.so")
# A plug-in for Unity that brings Microsoft's AAR, with another manifest; README says how it was
# compared with what Microsoft published. For the version in its name only.
NPM = "com.github.asus4.onnxruntime"
NPM_VERSION = "0.4.9"
NPM_ONNXRUNTIME = "1.29.0"
NPM_ENTRY = "package/Plugins/Android/onnxruntime.aar"
_VERSION_SYMBOL = re.compile(rb"VERS_(\d+\.\d+\.\d+)")


def unpack(project: Project, abis: tuple[str, ...]) -> dict[str, Path]:
    """Unpack the libraries; return each file by its place in the APK."""
    aar = find(project)
    files = {}
    with zipfile.ZipFile(aar) as archive:
        for abi in abis:
            for name in LIBRARIES:
                file = project.work / "natives" / abi / name
                file.parent.mkdir(parents=True, exist_ok=True)
                try:
                    file.write_bytes(archive.read(f"jni/{abi}/{name}"))
                except KeyError:
                    raise tools.BuildError(f"{aar} has no jni/{abi}/{name}") from None
                files[f"lib/{abi}/{name}"] = file
            hold_to_version(project.work / "natives" / abi / LIBRARIES[0], project)
    return files


def hold_to_version(library: Path, project: Project) -> None:
    """Raise an error unless a library has the version of the Java classes."""
    wanted = project["onnxruntime.version"]
    found = _VERSION_SYMBOL.search(library.read_bytes())
    version = found[1].decode() if found else "no version"
    if version != wanted:
        raise tools.BuildError(
            f"{library.name} should be ONNX Runtime {wanted}, as in pom.xml, and is {version}: "
            "take the AAR of that version"
        )


def find(project: Project) -> Path:
    """Return the AAR: the setting's, an earlier one's, Microsoft's, or the pinned package's."""
    given = os.environ.get("ORT_AAR")
    if given:
        if not Path(given).is_file():
            raise tools.MissingError(f"ORT_AAR names {given}, and there is no such file")
        return Path(given)
    version = project["onnxruntime.version"]
    kept = project.tools / f"onnxruntime-android-{version}.aar"
    if not kept.exists() and not _of_microsoft(project, kept) and not _of_npm(project, kept):
        raise tools.MissingError(
            f"onnxruntime-android {version} was found neither by Maven nor, with npm, as "
            f"{NPM}@{NPM_VERSION}: set ORT_AAR to the path of its AAR"
        )
    return kept


def _of_microsoft(project: Project, kept: Path) -> bool:
    """Have Maven fetch the AAR; return whether there is one."""
    version = project["onnxruntime.version"]
    incoming = project.tools / "incoming"
    try:
        tools.maven(
            project,
            "dependency:copy",
            f"-Dartifact=com.microsoft.onnxruntime:onnxruntime-android:{version}:aar",
            f"-DoutputDirectory={incoming}",
            "--non-recursive",
        )
    except tools.BuildError:
        return False
    os.replace(incoming / kept.name, kept)
    return True


def _of_npm(project: Project, kept: Path) -> bool:
    """Have npm fetch the package that has the AAR, and hold both to their pinned sums."""
    if project["onnxruntime.version"] != NPM_ONNXRUNTIME or shutil.which("npm") is None:
        return False
    incoming = project.tools / "incoming"
    incoming.mkdir(parents=True, exist_ok=True)
    npm = ["npm", "pack", f"{NPM}@{NPM_VERSION}", "--silent", "--no-update-notifier"]
    npm += ["--cache", str(incoming / "cache"), "--pack-destination", str(incoming)]
    try:
        tools.run(project, npm)
    except tools.BuildError:
        return False
    package = incoming / f"{NPM}-{NPM_VERSION}.tgz"
    tools.hold_to_its_sum(package)
    with tarfile.open(package) as archive:
        entry = archive.extractfile(NPM_ENTRY)
        assert entry is not None
        aar = incoming / Path(NPM_ENTRY).name
        aar.write_bytes(entry.read())
    tools.hold_to_its_sum(aar)
    os.replace(aar, kept)
    shutil.rmtree(incoming)
    return True
