"""From base.apk, the dex file and the libraries to the APK: put together, aligned and signed."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

from android_demo.apk import tools
from android_demo.apk.project import Project

# Android 15 has devices with pages of this size; what is stored can be mapped on all of them.
PAGE = 16384
# A key for trying the demo, of no secret: made at the first build, known by nobody else's phone.
ALIAS, PASSWORD = "debug", "android"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def make(project: Project, base: Path, dex: Path, natives: dict[str, Path]) -> Path:
    """Write the APK and return it; the same inputs and key give the same bytes."""
    put_together = project.work / "unaligned.apk"
    put_together_at(put_together, base, dex, natives)
    aligned = project.work / "aligned.apk"
    tools.run(project, ["zipalign", "-f", str(PAGE), put_together, aligned])
    signed = project.work / "signed.apk"
    sign(project, aligned, signed)
    os.replace(signed, project.apk)
    return project.apk


def put_together_at(result: Path, base: Path, dex: Path, natives: dict[str, Path]) -> None:
    """Write a zip of everything: the libraries are stored, so that they load from the APK."""
    with zipfile.ZipFile(base) as source, zipfile.ZipFile(result, "w") as archive:
        for entry in source.infolist():
            archive.writestr(_entry(entry.filename, entry.compress_type), source.read(entry))
        archive.writestr(_entry("classes.dex", zipfile.ZIP_DEFLATED), dex.read_bytes())
        for name, file in sorted(natives.items()):
            archive.writestr(_entry(name, zipfile.ZIP_STORED), file.read_bytes())


def _entry(name: str, compression: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type = compression
    entry.external_attr = 0o644 << 16
    return entry


def key(project: Project) -> Path:
    """Return the key store, which is made once and never leaves the build folder."""
    store = project.demo / "build" / "debug.p12"
    if not store.exists():
        store.parent.mkdir(parents=True, exist_ok=True)
        part = store.with_suffix(".part")
        part.unlink(missing_ok=True)
        command: tools.Command = [
            "keytool",
            "-genkeypair",
            "-keystore",
            part,
            "-storetype",
            "PKCS12",
        ]
        command += ["-alias", ALIAS, "-storepass", PASSWORD, "-dname", "CN=edgedec demo debug key"]
        # Signatures of RSA are the same each time, those of ECDSA are not.
        command += ["-keyalg", "RSA", "-keysize", "2048", "-validity", "10000"]
        tools.run(project, command)
        os.replace(part, store)
    return store


def sign(project: Project, source: Path, result: Path) -> None:
    """Sign by schemes 2 and 3: 1 is for Android 6 and older, 4 for installing while copying."""
    command: tools.Command = ["apksigner", "sign", "--ks", key(project), "--ks-key-alias", ALIAS]
    command += ["--ks-pass", f"pass:{PASSWORD}", "--min-sdk-version", project["android.minSdk"]]
    command += ["--v1-signing-enabled", "false", "--v2-signing-enabled", "true"]
    command += ["--v3-signing-enabled", "true", "--v4-signing-enabled", "false"]
    tools.run(project, [*command, "--out", result, source])
