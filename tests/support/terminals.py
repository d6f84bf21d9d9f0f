"""A command in a pseudo-terminal that a test types into, and what it shows."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from waiting import LIMIT_S

REPOSITORY = Path(__file__).resolve().parents[2]
_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[=>])")
INTERRUPT, END, ENTER, UP = "\x03", "\x04", "\r", "\x1b[A"


class Terminal:
    """A running command; made by ``edgedec``.

    Attributes:
        written: everything that it has written, escapes included.

    """

    def __init__(self, pid: int, parent: int) -> None:
        self._pid, self._parent = pid, parent
        self.written = ""
        self._seen = 0

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._parent, text.encode())

    def paste(self, text: str) -> None:
        """Paste, as a terminal does that brackets it."""
        self.type(f"\x1b[200~{text}\x1b[201~")

    def expect(self, pattern: str) -> str:
        """Wait until a pattern is shown after what was expected before; return what came by then.

        Raises:
            AssertionError: it does not come.

        """
        end = time.monotonic() + LIMIT_S
        while True:
            shown = _ESCAPES.sub("", self.written)
            if found := re.compile(pattern).search(shown, self._seen):
                before, self._seen = self._seen, found.end()
                return shown[before : found.end()]
            assert self._more(end), f"{pattern!r} did not come: {self.written[-2000:]!r}"

    def exit_code(self) -> int:
        """Wait for its end."""
        end = time.monotonic() + LIMIT_S
        while self._more(end):
            pass
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        return os.waitstatus_to_exitcode(status)

    def _more(self, end: float) -> bool:
        """Read what was written; False at the end of it, or of the time."""
        ready, _, _ = select.select([self._parent], [], [], max(0.0, end - time.monotonic()))
        try:
            data = os.read(self._parent, 1 << 16) if ready else b""
        except OSError:  # how Linux says that the other end is closed
            data = b""
        self.written += data.decode("utf-8", "replace")
        return bool(data)

    def close(self) -> None:
        if self._pid:
            os.kill(self._pid, 9)
            os.waitpid(self._pid, 0)
        os.close(self._parent)


@contextmanager
def edgedec(*words: object, **variables: str) -> Iterator[Terminal]:
    """Run ``edgedec`` with these words in a terminal of 100 columns."""
    paths = [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    own = {"TERM": "xterm-256color", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    there = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    # A terminal that answers where the cursor is would have to be emulated.
    there |= own | {"PROMPT_TOOLKIT_NO_CPR": "1"} | variables
    command = [sys.executable, "-m", "edgedec", *map(str, words)]
    pid, parent = pty.fork()
    if pid == 0:
        try:
            os.chdir(REPOSITORY)
            os.execve(sys.executable, command, there)
        finally:
            os._exit(127)
    fcntl.ioctl(parent, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    terminal = Terminal(pid, parent)
    try:
        yield terminal
    finally:
        terminal.close()
