"""Whether somebody with an Android SDK has built the app by gradle/, and which files that were."""

from __future__ import annotations

import hashlib
from pathlib import Path

SUFFIXES = (".kts", ".toml", ".xml", ".properties")
NEVER = "never built"


def digest(folder: Path) -> str:
    """Return the hash of the build files, as the Gradle task stampVerified computes it."""
    found = hashlib.sha256()
    for file in sorted(folder.iterdir(), key=lambda one: one.name):
        if file.suffix in SUFFIXES:
            text = file.read_text("utf-8").replace("\r\n", "\n")
            found.update(f"{file.name}\n{text}\n".encode())
    return found.hexdigest()


def sentence(folder: Path) -> str:
    """Return what README says about builds with Gradle."""
    stamp = (folder / "VERIFIED").read_text("utf-8").strip()
    if stamp == NEVER:
        return "These files have never built the app: nobody with an SDK has tried them yet."
    facts = dict(line.split(maxsplit=1) for line in stamp.splitlines())
    built = f"Built with the Android Gradle plug-in {facts['agp']} on {facts['date']}"
    if facts["sha256"] != digest(folder):
        return f"{built}, but not since these files changed."
    return f"{built}."
