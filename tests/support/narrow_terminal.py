"""Programs in a terminal of so many columns, and the lines that a reader sees."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def run(code: str, columns: int = 80, timeout_s: float = 300) -> str:
    """What a Python program writes to a terminal, both of its streams.

    Raises:
        ImportError: this system has no pseudo-terminals.

    """
    import fcntl
    import pty
    import termios

    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    there = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    paths = [str(REPOSITORY), str(Path(__file__).parent), there.get("PYTHONPATH", "")]
    there |= {"TERM": "xterm-256color", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=child, stderr=child, stdin=child, env=there,
        cwd=REPOSITORY,
    )  # fmt: skip
    os.close(child)
    written = bytearray()
    try:
        while block := _read(parent):
            written += block
        assert process.wait(timeout_s) == 0, written.decode()
    finally:
        process.kill()
        process.wait()
        os.close(parent)
    return written.decode()


def _read(parent: int) -> bytes:
    try:
        return os.read(parent, 1 << 16)
    except OSError:  # how Linux says that the other end is closed
        return b""


def lines(written: str) -> list[str]:
    """Every line that was ever shown, without colours and movements."""
    plain = _ESCAPES.sub("", written)
    return [line.rstrip() for line in re.split(r"[\r\n]+", plain) if line.strip()]
