"""``chat --session`` in processes that are killed, share a file, or whose disk or weights fail."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from killing import child
from kinds import in_full
from small_disk import fill
from waiting import until

from edgedec.__main__ import main

Start = Callable[..., "subprocess.Popen[bytes]"]
pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no SIGSTOP here")


def arguments(bundle: Path, file: Path) -> list[object]:
    return [
        "chat", "--bundle", bundle, "--session", file, "--drafter", "none", "--max-new-tokens", 8,
        "--logit-bias", "0=-100000",
    ]  # fmt: skip


def talk(start: Start, bundle: Path, file: Path, *lines: str) -> subprocess.CompletedProcess[str]:
    process = start(*arguments(bundle, file))
    output, errors = process.communicate("".join(line + "\n" for line in lines).encode())
    return subprocess.CompletedProcess([], process.returncode, output.decode(), errors.decode())


def send(process: subprocess.Popen[bytes], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line.encode() + b"\n")
    process.stdin.flush()


def wait_for(file: Path) -> None:
    until(file.exists)


def test_two_processes_on_one_file(start: Start, bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "one.chat"
    first = start(*arguments(bundle, file))
    send(first, "One")
    wait_for(file)
    second = talk(start, bundle, file, "Two")
    assert second.returncode == 2
    (line,) = second.stderr.strip().splitlines()
    assert line.endswith("another edgedec process has this conversation open: end that, or name"
                         " another file")  # fmt: skip
    _, errors = first.communicate()
    assert first.returncode == 0, errors.decode()
    third = talk(start, bundle, file, "Three")
    assert "continuing after 1 turn; " in third.stderr


def test_the_lock_of_a_killed_process_is_free(start: Start, bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "one.chat"
    first = start(*arguments(bundle, file))
    send(first, "One")
    wait_for(file)
    first.kill()
    first.communicate()
    assert (tmp_path / "one.chat.lock").exists()
    assert talk(start, bundle, file, "Two").returncode == 0


def test_a_command_of_one_answer_promises_no_other(start: Start, bundle: Path, disk: Path) -> None:
    """The control: the chat above says that its next answer tries again."""
    filling = fill(disk, 0)
    words = ["run", *arguments(bundle, disk / "one.chat")[1:], "Hi"]
    process = start(*words)
    _, errors = process.communicate()
    assert process.returncode == 2
    last = errors.decode().strip().splitlines()[-1]
    assert last.endswith("not saved: the file has nothing of this conversation")
    filling.unlink()


# The weights shrink once the first answer is saved.
SHRINKS = """
import os, sys
from pathlib import Path
from edgedec.__main__ import main
from edgedec.cli._conversation import SessionFile
file, write = Path(sys.argv[3]) / "target" / "model.onnx.data", SessionFile.write

def written(self):
    write(self)
    os.truncate(file, 0)

SessionFile.write = written
main()
"""
# Without a look at lengths, as in the middle of a pass.
IN_A_PASS = """
from edgedec.loading.in_use import FilesInUse
FilesInUse.check = lambda self: None
"""


@pytest.mark.skipif("not sys.platform.startswith('linux')", reason="needs Linux")
@pytest.mark.parametrize("moment", in_full(["in a pass", "between two answers"]))
def test_weights_that_shrink_do_not_end_it_without_a_word(
    start: Start, bundle: Path, tmp_path: Path, moment: str
) -> None:
    own = Path(shutil.copytree(bundle, tmp_path / "bundle"))
    file = tmp_path / "one.chat"
    source = IN_A_PASS + SHRINKS if moment == "in a pass" else SHRINKS
    process = child(source, *arguments(own, file))
    _, errors = process.communicate(b"One\nTwo\n/quit\n")
    said = errors.decode()
    if moment == "in a pass":
        assert process.returncode == -signal.SIGBUS, said
        assert "Bus error" in said
        assert "run_with_iobinding" in said
    else:
        assert process.returncode == 0, said
        assert "model.onnx.data was cut short while it was in use: it has 0 bytes" in said
    (own / "target" / "model.onnx.data").unlink()
    shutil.copy2(bundle / "target" / "model.onnx.data", own / "target")
    again = talk(start, own, file, "Two")
    assert again.returncode == 0, again.stderr
    assert "continuing after 1 turn; " in again.stderr


def test_32_bits_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "maxsize", 2**31 - 1)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "32 bits" in line
    assert "64-bit" in line
