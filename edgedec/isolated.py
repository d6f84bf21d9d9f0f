"""A Python process of our own beside this one, for libraries that may end theirs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

_START = (
    "import json, runpy, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "module = sys.argv.pop(1); runpy.run_module(module, run_name='__main__', alter_sys=True)"
)


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module, from where this process finds its modules.

    Isolated: neither the current folder nor the environment adds to them.
    """
    # A script inside the package would put it there, and `edgedec/gguf` in the place of `gguf`.
    package = Path(__file__).resolve().parent
    paths = json.dumps([path for path in sys.path if path and Path(path).resolve() != package])
    return [sys.executable, "-I", "-c", _START, paths, module, *arguments]
