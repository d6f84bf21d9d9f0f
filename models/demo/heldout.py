"""Makes function heads that the demo pair never saw; none is stored.

They are read from those files of the running interpreter's own library that are named in
``heldout.txt``.
"""

from __future__ import annotations

import ast
import random
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from edgedec.errors import InputError

_SHORTEST_BODY_LINES = 4
_CONTEXT_LINES = 12


@dataclass(frozen=True, slots=True)
class Prompt:
    """A function head with the lines before it, and its source.

    Attributes:
        name: file and function.
        text: up to a dozen lines, the last one the end of the ``def`` statement.
        head: the ``def`` statement alone, for display.

    """

    name: str
    text: str
    head: str


def heldout_prompts(count: int, *, seed: int = 0) -> list[Prompt]:
    """Function heads from held-out files, ordered by ``seed``; InputError without such files."""
    prompts = [prompt for path in heldout_files() for prompt in _heads(path)]
    if not prompts:
        raise InputError(
            "none of the held-out standard library files is installed: install Python with its "
            "library sources"
        )
    random.Random(seed).shuffle(prompts)
    return prompts[:count]


def heldout_bodies(count: int, *, seed: int = 0) -> list[Prompt]:
    """The same functions, cut in the middle of their bodies; see ``heldout_prompts``."""
    prompts = [prompt for path in heldout_files() for prompt in _heads(path, inside=True)]
    random.Random(seed).shuffle(prompts)
    return prompts[:count]


def heldout_files() -> list[Path]:
    """Those held-out files that the running interpreter has."""
    from edgedec.models.demo import HELDOUT

    library = Path(sysconfig.get_path("stdlib"))
    names = HELDOUT.read_text(encoding="utf-8").split()
    return [library / name for name in names if (library / name).is_file()]


def _heads(path: Path, *, inside: bool = False) -> Iterator[Prompt]:
    source = path.read_text(encoding="utf-8", errors="replace")
    lines = source.splitlines()
    try:
        module = ast.parse(source)
    except SyntaxError:
        return
    for node in ast.walk(module):
        if not isinstance(node, ast.FunctionDef):
            continue
        if (node.end_lineno or 0) - node.lineno < _SHORTEST_BODY_LINES:
            continue
        end = node.body[0].lineno - 1
        head = "\n".join(lines[node.lineno - 1 : end])
        if not head.rstrip().endswith(":"):
            continue
        name = f"{path.name}:{node.name}"
        if inside:
            name, end = f"{name}, body", (end + (node.end_lineno or end)) // 2
        # No line end after the colon: in the texts a model reads, that and the indentation
        # after it are one token.
        text = "\n".join(lines[max(0, node.lineno - 1 - _CONTEXT_LINES) : end]).rstrip()
        yield Prompt(name, text, head)
