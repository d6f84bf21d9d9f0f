"""Runs the steps of docs/deploy/Containerfile where no container engine is at hand.

Its images are folders that begin as an empty Debian (debootstrap), ``RUN`` is chroot. The command
of the last image then runs as its user, without capabilities, in namespaces of its own, on a
read-only file system, until its health check passes; it answers a text, and ends at SIGTERM.

    sudo python -m tools.image_steps            # some minutes; 2 GB under /tmp while it runs
    sudo python -m tools.image_steps --base DIR # with a Debian that is there already
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tools.image_run import run_image

REPOSITORY = Path(__file__).resolve().parents[1]
FILE = REPOSITORY / "docs" / "deploy" / "Containerfile"
PACKAGES = "python3,python3-venv,ca-certificates"
# Of these the machine's own settings are used, as an engine's are.
_PASSED = ("PIP_INDEX_URL", "PIP_DEFAULT_TIMEOUT", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_NAMES, _TRUSTED = "/etc/resolv.conf", "/etc/ssl/certs/ca-certificates.crt"
_NEEDED = ("debootstrap", "chroot", "unshare", "setpriv", "mount")


@dataclass
class Image:
    """A stage: its folder, and what its instructions say.

    Attributes:
        root: the folder.
        env: of ``ENV``.
        user: of ``USER``, as ``uid:gid``.
        volumes: of ``VOLUME``.
        words: of ``ENTRYPOINT``, ``CMD`` and ``HEALTHCHECK``.

    """

    root: Path
    env: dict[str, str] = field(default_factory=dict)
    user: str = "0:0"
    volumes: list[str] = field(default_factory=list)
    words: dict[str, list[str]] = field(default_factory=dict)


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield each instruction of a Containerfile, and what follows it."""
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        name, _, rest = line.partition(" ")
        yield name, rest.strip()


class Steps:
    """Runs instructions.

    Args:
        base: folder of an empty Debian, which stands for every image of ``FROM``.
        folder: where the stages are made.

    """

    def __init__(self, base: Path, folder: Path) -> None:
        self._base, self._folder = base, folder
        self.stages: dict[str, Image] = {}
        self.image = Image(base)

    def run(self, text: str) -> Image:
        """Run all of a file; return the last stage."""
        for name, rest in instructions(text):
            print(f"{name} {rest}", flush=True)
            step = getattr(self, f"_{name.lower()}", None)
            if step is None:
                raise SystemExit(f"{name}: this instruction is not known here")
            step(rest)
        return self.image

    def _from(self, rest: str) -> None:
        name = rest.partition(" AS ")[2] or str(len(self.stages))
        root = self._folder / name
        subprocess.run(["cp", "-a", "--reflink=auto", self._base, root], check=True)
        (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")  # as in Python's images
        self.image = self.stages[name] = Image(root)

    def _copy(self, rest: str) -> None:
        source, target = rest.split()[-2:]
        inside = self.image.root / target.lstrip("/")
        if rest.startswith("--from="):
            stage = self.stages[rest.split()[0].removeprefix("--from=")]
            origin = stage.root / source.lstrip("/")
            shutil.copytree(origin, inside, symlinks=True, dirs_exist_ok=True)
        else:
            _copy_context(inside)

    def _run(self, rest: str) -> None:
        for file in (_NAMES, _TRUSTED):  # the machine's own
            shutil.copy(file, self.image.root / file.lstrip("/"))
        uid, gid = self.image.user.split(":")
        env = {
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": "/root",
            "PIP_CERT": _TRUSTED,
        }
        env |= {name: os.environ[name] for name in _PASSED if name in os.environ} | self.image.env
        command = ["chroot", f"--userspec={uid}:{gid}", self.image.root, "/bin/sh", "-c", rest]
        subprocess.run(command, env=env, check=True)

    def _user(self, rest: str) -> None:
        self.image.user = rest

    def _env(self, rest: str) -> None:
        path = self.image.env.get("PATH", "/usr/local/bin:/usr/bin:/bin")
        pairs = [word.partition("=") for word in shlex.split(rest.replace("$PATH", path))]
        self.image.env |= {name: value for name, _, value in pairs}

    def _volume(self, rest: str) -> None:
        self.image.volumes.append(rest)

    def _expose(self, rest: str) -> None:
        """Say nothing, as an engine does."""

    def _entrypoint(self, rest: str) -> None:
        self.image.words["ENTRYPOINT"] = json.loads(rest)

    def _cmd(self, rest: str) -> None:
        self.image.words["CMD"] = json.loads(rest)

    def _healthcheck(self, rest: str) -> None:
        self.image.words["HEALTHCHECK"] = json.loads(rest.partition(" CMD ")[2])


def _copy_context(inside: Path) -> None:
    """Copy the repository as .dockerignore leaves it, which lists what is kept."""
    inside.mkdir(parents=True, exist_ok=True)
    for line in (REPOSITORY / ".dockerignore").read_text("utf-8").splitlines():
        if line.startswith("!"):
            source = REPOSITORY / line.removeprefix("!")
            target = inside / line.removeprefix("!")
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, target, symlinks=True, ignore=ignored)
            else:
                shutil.copy(source, target)


def missing() -> str:
    """Return why the steps cannot be run here; "" if they can."""
    if os.name != "posix" or os.geteuid() != 0:
        return "it needs the rights of root"
    lacking = [name for name in _NEEDED if shutil.which(name) is None]
    return f"not installed: {', '.join(lacking)}" if lacking else ""


def main() -> int:
    """Run the steps, then the image; exit code 2 where that is not possible."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--base", type=Path, help="folder of a Debian by debootstrap")
    base: Path | None = parser.parse_args().base
    if why := missing():
        print(f"the image's steps cannot be run: {why}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="edgedec-image.") as name:
        folder = Path(name)
        folder.chmod(0o755)  # the image's user passes through
        if base is None:
            base = folder / "debian"
            subprocess.run(
                ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", base],
                check=True, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        image = Steps(base, folder).run(FILE.read_text("utf-8"))
        return run_image(image, REPOSITORY / "models" / "demo" / "bundle", folder)


if __name__ == "__main__":
    sys.exit(main())
