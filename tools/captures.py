"""Captures of the commands as a terminal shows them, as SVG: ``make captures``.

Each command runs for real in a pseudo-terminal of 80 and of 120 columns; a terminal emulator
(pyte) turns what it wrote, cursor moves included, into a screen, and rich draws that. Commands run
in an empty folder with a home and a cache of their own, and a capture that still shows a path of
this machine is refused.
"""

from __future__ import annotations

import argparse
import errno
import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from dataclasses import dataclass
from pathlib import Path

import pyte
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "captures"
WIDTHS = (80, 120)
ROWS = 30
# The emulated screen is taller than any output: what a real one scrolls away stays to be drawn.
TALL = 600
LIMIT_S = 900.0
PROMPT = "def __lt__(self, other):"

# What a picture that is drawn anew begins with.
_REDRAW = b"\r\x1b[2K"

# Without fonts from elsewhere: rich's own template fetches them.
SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, monospace;
font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath></defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""


@dataclass(frozen=True, slots=True)
class Capture:
    """A command to show.

    Attributes:
        name: of the files.
        words: the command's, without ``edgedec``.
        at: share of the output after which the screen is drawn; 1 is the end.

    """

    name: str
    words: tuple[str, ...]
    at: float = 1.0


CAPTURES = (
    Capture("generate", ("generate", PROMPT)),
    Capture("demo-race", ("demo", "--count", "1"), at=0.5),
)


def run(capture: Capture, width: int, folder: Path) -> list[bytes]:
    """What the command writes to a terminal of this width, in pieces as they came.

    Raises:
        SystemExit: it failed, or took longer than ``LIMIT_S``.

    """
    program = [sys.executable, "-m", "edgedec", *capture.words]
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execve(sys.executable, program, _environment(folder))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, width, 0, 0))
    pieces: list[bytes] = []
    end = time.monotonic() + LIMIT_S
    while (piece := _read(terminal, end)) is not None:
        pieces.append(piece)
    if time.monotonic() >= end:
        os.kill(pid, signal.SIGKILL)
    os.close(terminal)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status:
        shown = b"".join(pieces).decode("utf-8", "replace")
        raise SystemExit(f"edgedec {' '.join(capture.words)}: ended with {status}:\n{shown[-600:]}")
    return pieces


def _read(terminal: int, end: float) -> bytes | None:
    """The next piece; None at the end of the output or of the time."""
    ready, _, _ = select.select([terminal], [], [], max(0.0, end - time.monotonic()))
    if not ready:
        return None
    try:
        return os.read(terminal, 1 << 16) or None
    except OSError as error:  # Linux says so when the last writer has closed
        if error.errno != errno.EIO:
            raise
        return None


def _environment(folder: Path) -> dict[str, str]:
    """As little as a command needs, with caches and plans of its own."""
    kept = {
        name: os.environ[name] for name in ("PATH", "LANG", "LD_LIBRARY_PATH") if name in os.environ
    }
    own = {name: str(folder / "home") for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")}
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    own |= {"EDGEDEC_HISTORY": str(folder / "home" / "history"), "PROMPT_TOOLKIT_NO_CPR": "1"}
    return {**kept, **own, "PYTHONPATH": paths, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}


def screen(pieces: list[bytes], width: int, at: float = 1.0) -> list[Text]:
    """The lines a terminal shows after this share of the output, styles included."""
    shown = pyte.Screen(width, TALL)
    stream = pyte.ByteStream(shown)
    data = b"".join(pieces)
    end = round(len(data) * at)
    if end < len(data):  # not in the middle of a redrawn picture
        end = max(0, data.rfind(_REDRAW, 0, end)) or end
    stream.feed(data[:end])
    lines = [_line(shown.buffer[row], width) for row in range(TALL)]
    while lines and not lines[-1].plain.strip():
        lines.pop()
    return lines


def _line(cells: dict[int, pyte.screens.Char], width: int) -> Text:
    line = Text()
    for column in range(width):
        cell = cells[column]
        words = [
            word for word in ("bold", "italics", "underscore", "reverse") if getattr(cell, word)
        ]
        style = " ".join({"italics": "italic", "underscore": "underline"}.get(w, w) for w in words)
        if cell.fg != "default":
            style += f" {_colour(cell.fg)}"
        line.append(cell.data, style.strip())
    line.rstrip()
    return line


def _colour(name: str) -> str:
    """A colour of pyte's as rich calls it."""
    if len(name) == 6 and all(letter in "0123456789abcdef" for letter in name):
        return f"#{name}"
    return {"brown": "yellow"}.get(name, name.replace("bright", "bright_"))


def check(lines: list[Text], folder: Path) -> None:
    """Refuse lines that show where this machine keeps things, also where a path is wrapped."""
    words = "".join(line.plain.strip() for line in lines)
    for path in {ROOT, folder, Path.home(), Path(sys.prefix), Path(sys.base_prefix)}:
        if len(path.parts) > 1 and str(path) in words:
            raise SystemExit(f"a capture shows {path}: run the command with relative paths")


def draw(lines: list[Text], title: str, command: str, width: int) -> str:
    """An SVG that needs nothing from anywhere."""
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(Text.assemble(("$ ", "bold"), command), overflow="fold")
    for line in lines:
        console.print(line, no_wrap=True, overflow="crop", crop=True)
    name = f"{title.split()[-1]}-{width}"
    drawn = console.export_svg(title=title, code_format=SVG, unique_id=name)
    # Every run of characters names the window of its line, which nothing here leaves.
    return re.sub(r' clip-path="url\(#[\w-]*-line-\d+\)"', "", drawn)


def take(capture: Capture, width: int, folder: Path, out: Path) -> Path:
    """Run one command and write its SVG."""
    lines = screen(run(capture, width, folder), width, capture.at)
    check(lines, folder)
    command = " ".join(f'"{word}"' if " " in word else word for word in ("edgedec", *capture.words))
    file = out / f"{capture.name}-{width}.svg"
    file.write_text(draw(lines, f"edgedec {capture.name}", command, width), "utf-8")
    return file


def main() -> None:
    """All captures, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *(one.name for one in CAPTURES)])
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for capture in CAPTURES:
            if asked.names and capture.name not in asked.names:
                continue
            for width in WIDTHS:
                file = take(capture, width, folder, asked.out)
                print(f"{file.name}: {file.stat().st_size} bytes", flush=True)


if __name__ == "__main__":
    main()
