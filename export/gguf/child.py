"""Runs llama.cpp in a child process, since it may abort or need much memory."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

from edgedec._support import _sandbox_child
from edgedec._support.child import last_line
from edgedec._support.sandbox import Limits, Refused, Stopped, ask_once
from edgedec.errors import ExportError

# A large model on a slow device may take hours; the user interrupts a run that hangs.
_LIMITS = Limits(memory_bytes=None, cpu_s=None, wall_s=7 * 24 * 3600.0, answer_bytes=1 << 30)
# On an abort llama.cpp would start a debugger; the previous line states the reason.
_QUIET = {"GGML_NO_BACKTRACE": "1", "PYTHONFAULTHANDLER": ""}
_STATES_REASON = re.compile(rb"error|failed|GGML_ASSERT|GGML_ABORT|what\(\)", re.IGNORECASE)


def ask(request: Mapping[str, Any], on_wait: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Run a request in a child process.

    Args:
        request: ``task``, a module of this package with ``run(request)``, and its inputs.
        on_wait: called a few times a second while waiting.

    Raises:
        ExportError: it failed; the message has the last line of llama.cpp that states a reason.

    """
    try:
        answer: dict[str, Any] = ask_once(
            __name__, request, _LIMITS, environment=_QUIET, telling=_reason, on_wait=on_wait
        )
    except (Refused, Stopped) as error:
        raise ExportError(f"llama.cpp did not finish: {error}") from None
    return answer


def _reason(output: bytes) -> str:
    return last_line(b"\n".join(filter(_STATES_REASON.search, output.splitlines())) or output)


def main(request: Mapping[str, Any]) -> Any:
    """Run one request; if it fails, standard error says why."""
    try:
        return importlib.import_module(f"{__package__}.{request['task']}").run(request)
    except Exception as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit from None


if __name__ == "__main__":
    _sandbox_child.serve(main)
