"""llama.cpp at work in a process of its own: it may abort, it may need much memory.

``python -m edgedec.export.gguf.child`` reads one JSON request from its standard input, does it,
and answers with one JSON object on its standard output. It ends when its input does, so it
never outlives whoever started it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from typing import Any

from edgedec._support import isolated
from edgedec.errors import ExportError

_POLL_S = 0.2
_TELLING = re.compile("error|failed|GGML_ASSERT|GGML_ABORT|what\\(\\)", re.IGNORECASE)


def ask(request: Mapping[str, Any], on_wait: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Have a request done in a child process.

    Args:
        request: ``task``, a module of this package with ``run(request)``, and what it needs.
        on_wait: called a few times a second meanwhile.

    Raises:
        ExportError: it failed; with the last line that llama.cpp said.

    """
    command = isolated.python(__name__)
    # On an abort llama.cpp would call a debugger; the line before is what tells.
    quiet = {"GGML_NO_BACKTRACE": "1", "PYTHONFAULTHANDLER": ""}
    environment = {**os.environ, **quiet}
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            env=environment,
        )
        try:
            answer = _talk(child, json.dumps(request).encode() + b"\n", on_wait)
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()
            for stream in (child.stdin, child.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
        if child.returncode or not isinstance(answer, dict):
            said.seek(0)
            raise ExportError(_reason(said.read(), child.returncode, answer))
    return answer


def _talk(child: subprocess.Popen[bytes], request: bytes, on_wait: Callable[[], None]) -> Any:
    """The child's answer; its input stays open, since closing it would end the child."""
    if child.stdin is None or child.stdout is None:
        raise RuntimeError("the child has no pipes")
    with contextlib.suppress(BrokenPipeError):
        child.stdin.write(request)
        child.stdin.flush()
    parts: list[bytes] = []
    output = child.stdout
    reader = threading.Thread(target=lambda: parts.append(output.read()), daemon=True)
    reader.start()
    while reader.is_alive():
        reader.join(_POLL_S)
        on_wait()
    child.wait()
    try:
        return json.loads(b"".join(parts))
    except ValueError:
        return None


def _reason(said: bytes, code: int, answer: Any) -> str:
    lines = [line.strip() for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.search(line)] or lines
    last = telling[-1][-300:] if telling else "it said nothing"
    how = f"by signal {-code}" if code < 0 else f"with status {code}"
    return f"llama.cpp ended {how}: {last}"


def _end_with_input() -> None:
    """End this process once the other side of the pipe is gone."""
    sys.stdin.buffer.read()
    os._exit(1)


def main() -> None:
    """Do one request."""
    import importlib

    # llama.cpp writes to the standard output too: the answer gets a copy of it, the rest goes
    # where errors go.
    answer = os.dup(1)
    os.dup2(2, 1)
    request = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()
    # The thread still reads; a clean end would wait for its lock on the input.
    try:
        task = importlib.import_module(f"{__package__}.{request['task']}")
        with os.fdopen(answer, "wb") as stream:
            stream.write(json.dumps(task.run(request)).encode())
    except Exception as error:
        sys.stderr.write(f"{error}\n")
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main()
