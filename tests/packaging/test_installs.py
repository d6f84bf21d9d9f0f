"""From an index into an empty environment: pip, uv and pipx install, and the demo pair answers."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from sources_copied import build, copy_sources

from edgedec._support.installation import DISTRIBUTION

pytestmark = [pytest.mark.network, pytest.mark.slow]
SCRIPTS = "Scripts" if os.name == "nt" else "bin"
PROMPT = "def __lt__(self, other):"
GENERATE = ("generate", "demo", PROMPT, "-n", "8", "--threads", "1")


def run(*words: str | Path, **environment: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command outside the clone; nothing of this environment is on its path."""
    there = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    there |= {name: str(value) for name, value in environment.items()}
    return subprocess.run(
        [str(word) for word in words], cwd=Path(sys.prefix), env=there, capture_output=True,
        text=True, check=False,
    )  # fmt: skip


def program(name: str) -> str:
    """The path of a program, of this environment or of the machine."""
    found = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: pip install {name}")
    return found


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def index(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an index on this machine that has this distribution alone."""
    sources, served = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("served")
    asked = run(sys.executable, "-m", "pip", "download", "--no-deps", "--retries=1",
                "--timeout=10", "--dest", served / "reached", "click")  # fmt: skip
    if asked.returncode:
        pytest.skip("no package index can be reached, which has the packages that edgedec needs")
    copy_sources(repository, sources)
    build(sources, "--wheel")
    (wheel,) = (sources / "dist").iterdir()
    page = served / "simple" / DISTRIBUTION
    page.mkdir(parents=True)
    shutil.copy(wheel, page)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    link = f'<a href="{wheel.name}#sha256={digest}">{wheel.name}</a>'
    (page / "index.html").write_text(f"<!DOCTYPE html><html><body>{link}</body></html>", "utf-8")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(served))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/simple/"
        server.shutdown()


def answers(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_pip_installs_what_answers(index: str, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    assert run(sys.executable, "-m", "venv", environment).returncode == 0
    python = environment / SCRIPTS / "python"
    installed = run(
        python, "-m", "pip", "install", "--quiet", "--extra-index-url", index,
        f"{DISTRIBUTION}[grammar]",
    )  # fmt: skip
    assert installed.returncode == 0, installed.stderr
    edgedec = environment / SCRIPTS / "edgedec"
    answers(run(edgedec, *GENERATE))
    constrained = run(edgedec, "generate", "demo", PROMPT, "--regex", "[ab]{3}", "--threads", "1")
    answers(constrained)
    assert set(constrained.stdout.strip().removeprefix(PROMPT)) <= {"a", "b"}
    doctor = run(edgedec, "doctor")
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr

    # The control: without the bundle inside, this is seen.
    (manifest,) = environment.rglob("edgedec/models/demo/bundle/manifest.json")
    manifest.unlink()
    assert run(edgedec, "doctor").returncode == 1
    assert run(edgedec, *GENERATE).returncode != 0


def test_uv_installs_it_as_a_tool(index: str, tmp_path: Path) -> None:
    folders = {"UV_TOOL_DIR": tmp_path / "tools", "UV_TOOL_BIN_DIR": tmp_path / "bin"}
    installed = run(
        program("uv"), "tool", "install", "--python", sys.executable, "--index", index,
        DISTRIBUTION, **folders,
    )  # fmt: skip
    assert installed.returncode == 0, installed.stderr
    answers(run(tmp_path / "bin" / "edgedec", *GENERATE))


def test_pipx_runs_it(index: str, tmp_path: Path) -> None:
    """By the distribution's name, of which it has a command."""
    answers(
        run(
            program("pipx"), "run", "--python", sys.executable,
            f"--pip-args=--extra-index-url={index}", DISTRIBUTION, *GENERATE,
            PIPX_HOME=tmp_path / "pipx", PIPX_BIN_DIR=tmp_path / "bin", USE_EMOJI="0",
        )
    )  # fmt: skip
