"""Runs the command of an image's folder as an engine with ``--read-only`` would."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tools.image_steps import Image

KEY = "a-key-for-the-image-0123456789"
_PATIENCE_S = 300.0
_ASK = f"""
import json, urllib.request
body = json.dumps({{"prompt": "def read(", "max_tokens": 8, "temperature": 0}}).encode()
head = {{"Content-Type": "application/json", "Authorization": "Bearer {KEY}"}}
asked = urllib.request.Request("http://127.0.0.1:8080/v1/completions", body, head)
print(json.load(urllib.request.urlopen(asked, timeout=60))["choices"][0]["text"])
"""
# What a process writes where nothing may be written.
_WRITES = "open('/opt/edgedec/written', 'w')"


def run_image(image: Image, model: Path, folder: Path) -> int:
    """Run an image in namespaces of its own; return the exit code of all checks.

    Args:
        image: to run.
        model: a bundle, which becomes ``/model``.
        folder: for the volume and the key.

    """
    given = {
        "root": str(image.root), "env": image.env, "user": image.user, "volumes": image.volumes,
        "words": image.words, "model": str(model), "folder": str(folder),
    }  # fmt: skip
    command = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", sys.executable]
    done = subprocess.run([*command, __file__, json.dumps(given)], check=False)
    return done.returncode


def _mount(*words: object) -> None:
    subprocess.run(["mount", *map(str, words)], check=True)


def _mounted(root: Path, model: Path, folder: Path, volumes: list[str], user: str) -> list[Path]:
    """Mount what an engine does, with the rest read-only; return what can be written."""
    _mount("--make-rprivate", "/")
    _mount("--bind", root, root)
    key = folder / "key"
    key.write_text(KEY, "ascii")
    (root / "run/secrets").mkdir(parents=True)
    (root / "run/secrets/edgedec-key").touch()
    (root / "model").mkdir()
    writable = [root / "tmp"]
    for name in volumes:
        volume = folder / "volume" / name.strip("/")
        volume.mkdir(parents=True)
        owner = (root / name.strip("/")).stat()
        os.chown(volume, owner.st_uid, owner.st_gid)  # a new volume is as the image's folder
        _mount("--bind", volume, root / name.strip("/"))
        writable.append(root / name.strip("/"))
    os.chown(key, *map(int, user.split(":")))
    for source, target in ((model, root / "model"), (key, root / "run/secrets/edgedec-key")):
        _mount("--bind", source, target)
        _mount("-o", "remount,ro,bind", target)
    _mount("-t", "tmpfs", "tmpfs", root / "tmp")
    _mount("-t", "proc", "proc", root / "proc")
    for name in ("null", "urandom"):
        (root / "dev" / name).touch()
        _mount("--bind", f"/dev/{name}", root / "dev" / name)
    _mount("-o", "remount,ro,bind", root)
    return writable


class Inside:
    """Processes of an image, as its user and without capabilities."""

    def __init__(self, root: str, user: str, env: dict[str, str]) -> None:
        uid, gid = user.split(":")
        self._before = [
            shutil.which("chroot") or "chroot", root,
            "setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--bounding-set=-all",
            "--inh-caps=-all", "--no-new-privs",
        ]  # fmt: skip
        self._env = env

    def start(self, words: list[str]) -> subprocess.Popen[bytes]:
        """Start a command."""
        return subprocess.Popen([*self._before, *words], env=self._env)

    def run(self, words: list[str], *, quiet: bool = False) -> int:
        """Run a command; return its exit code."""
        to = subprocess.DEVNULL if quiet else None
        return subprocess.run(
            [*self._before, *words], env=self._env, check=False, stderr=to
        ).returncode  # fmt: skip


def _until_healthy(inside: Inside, check: list[str], server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _PATIENCE_S
    while inside.run(check, quiet=True) != 0:
        if server.poll() is not None or time.monotonic() > end:
            raise SystemExit(f"the image did not become healthy, exit code {server.poll()}")
        time.sleep(0.2)


def _expect(holds: bool, what: str) -> None:
    print(f"{'ok' if holds else 'FAILED'}: {what}", flush=True)
    if not holds:
        raise SystemExit(1)


def main(given: dict[str, str], env: dict[str, str], words: dict[str, list[str]]) -> None:
    """Check the image; in namespaces of its own."""
    root, folder = Path(given["root"]), Path(given["folder"])
    writable = _mounted(root, Path(given["model"]), folder, list(given["volumes"]), given["user"])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    inside, check = Inside(str(root), given["user"], env), words["HEALTHCHECK"]
    _expect(inside.run(check, quiet=True) != 0, "the health check fails before the server runs")
    _expect(inside.run(["python", "-c", _WRITES], quiet=True) != 0, "the image cannot be written")
    server = inside.start([*words["ENTRYPOINT"], *words["CMD"]])
    _until_healthy(inside, check, server)
    _expect(True, "the health check passes")
    _expect(inside.run(["python", "-c", _ASK]) == 0, "it answers a text")
    server.terminate()
    _expect(server.wait(_PATIENCE_S) == 0, "it ends with code 0 at SIGTERM")
    for place in writable:
        found = sorted(str(path.relative_to(root)) for path in place.rglob("*") if path.is_file())
        print(f"written below /{place.relative_to(root)}: {', '.join(found) or 'nothing'}")


if __name__ == "__main__":
    _given = json.loads(sys.argv[1])
    main(_given, _given["env"], _given["words"])
