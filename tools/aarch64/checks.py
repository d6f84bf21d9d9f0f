"""What is run on an emulated ARM processor: texts, and those tests that the processor can fail."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tools.aarch64 import groups, rows
from tools.aarch64.llamacpp import built
from tools.aarch64.system import MissingError, System

# Arguments of the emulated Python, or a function that returns what goes wrong, "" if nothing does.
Check = Sequence[str] | Callable[[System], str]
_LIMIT_S = 900
_EDGEDEC = ("-m", "edgedec")
_PYTEST = (
    "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "slow or not slow",
)  # fmt: skip
_TEXTS = ("-m", "tools.aarch64.texts")
_ROWS = "tests/unit/runtimes/test_onnx_padding.py"
QUICK: dict[str, Check] = {
    "import": ("-c", "import edgedec, onnxruntime"),
    "a text": (*_EDGEDEC, "generate", "demo", "def read_lines(path):", "-n", "24"),
    "texts with and without drafts": (
        *_EDGEDEC, "verify", "demo", "--count", "1", "-n", "24", "--batch-invariant",
    ),
    "rows of int4": (*_PYTEST, _ROWS, "-k", "int4-llama"),
}  # fmt: skip


def _gguf(system: System, weights: str) -> str:
    """Return how a text of the demo's target in llama.cpp differs from plain decoding's.

    Raises:
        LeftOutError: there is no cross compiler for llama.cpp here.
        subprocess.TimeoutExpired: it is not done in time.

    """
    try:
        packages = built(system.cpu)
    except MissingError as error:
        raise groups.LeftOutError(str(error)) from None
    return _said(system.run((*_TEXTS, rows.exported(weights, None)), _LIMIT_S, packages=packages))


CHECKS: dict[str, Check] = QUICK | {
    "rows of other weights": (*_PYTEST, _ROWS, "-k", "fp32-llama or int8-llama or find"),
    "every drafter, to the last bit": _TEXTS,
    **{
        f"drafters of a GGUF file in {weights}, to the last bit": partial(_gguf, weights=weights)
        for weights, _ in rows.GGUF_WEIGHTS
    },
    "contract of sessions": (*_PYTEST, "tests/contract/test_onnx.py"),
    "saved texts": (*_PYTEST, "tests/unit/pipeline/test_saved_texts.py"),
    "a text within a limit on memory": (
        *_EDGEDEC, "generate", "demo", "def f(x):", "-n", "16", "--memory", "700MB",
        "--plan", "none",
    ),
    **{
        f"a text in a control group of {size} GB": partial(groups.problem, limit=size * groups.GB)
        for size in (1, 2)
    },
    "files of strangers": (
        *_PYTEST, "tests/unit/runtimes/test_onnx_trust.py", "tests/cli/test_cli_untrusted.py",
    ),
}  # fmt: skip


def failed(system: System, checks: Mapping[str, Check]) -> list[str]:
    """Run checks, print a line for each, and return the names of those that failed."""
    found = []
    for name, check in checks.items():
        begun = time.monotonic()
        try:
            problem = _problem(system, check)
            said = f"FAILED: {problem}" if problem else "ok"
        except groups.LeftOutError as error:
            problem, said = "", f"left out: {error}"
        found += [name] if problem else []
        print(f"{system.cpu.name}: {name}: {said}, {time.monotonic() - begun:.0f} s", flush=True)
    return found


def _problem(system: System, check: Check) -> str:
    """Return why a check failed; "" if it did not."""
    try:
        if callable(check):
            return check(system)
        return _said(system.run(check, _LIMIT_S))
    except subprocess.TimeoutExpired:
        return f"not done within {_LIMIT_S} s"


def _said(done: subprocess.CompletedProcess[str]) -> str:
    """Return the last words of a program that failed; "" of another."""
    if done.returncode == 0:
        return ""
    return " | ".join((done.stdout + done.stderr).strip().splitlines()[-4:]) or "no word"
