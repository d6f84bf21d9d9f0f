"""Standard streams that the caller closed, and readers that went away: no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import kinds
import pytest

if sys.platform == "win32":
    pytest.skip("no shell that closes streams", allow_module_level=True)

COMMANDS = {
    "run": "run demo x -n 4",
    "config": "config",
    "refused": "run demo x --top-p 3",
    "json": "generate x -n 4 --json",
    "devices": "devices",
    "help": "run --help",
    "chat": "chat demo",
}
ENDINGS = (0, 1, 2)


def ended(command: str, redirected: str, *, program: str = "-m edgedec") -> tuple[int, str]:
    """The exit code of a command in a shell, and all that any stream shows."""
    done = subprocess.run(
        [
            "bash",
            "-c",
            f"{sys.executable} {program} {command} {redirected}; exit ${{PIPESTATUS[0]}}",
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "default"},
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("command", kinds.in_full(COMMANDS, 2))
@pytest.mark.parametrize(
    "redirected", kinds.in_full([">&-", "<&-", "2>&-", "<&- >&- 2>&-", "| true"], 3)
)
def test_no_traceback(command: str, redirected: str) -> None:
    code, shown = ended(COMMANDS[command], redirected)
    assert code in ENDINGS
    assert "Traceback" not in shown
    assert "Exception" not in shown
    if "|" not in redirected:
        assert code == (2 if command == "refused" else 0)


def test_without_the_replacement_there_is_one(tmp_path: Path) -> None:
    """The control: the same command, begun as before."""
    script = tmp_path / "former.py"
    script.write_text("from edgedec.cli import main\nmain(prog_name='edgedec')\n")
    code, shown = ended("config", ">&-", program=str(script))
    assert code == 1
    assert "Traceback" in shown


def test_no_file_takes_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    script = tmp_path / "numbers.py"
    script.write_text(
        "import os, sys\nfrom edgedec.__main__ import replace_closed_streams\n"
        "if sys.argv[1] == 'replaced': replace_closed_streams()\n"
        f"opened = os.open({str(tmp_path / 'file')!r}, os.O_CREAT | os.O_WRONLY)\n"
        "sys.exit(10 + opened)\n"
    )
    assert ended("former", "<&-", program=str(script))[0] == 10
    code, _ = ended("replaced", "<&- >&- 2>&-", program=str(script))
    assert code >= 13
