"""llama.cpp goes without AMX, whose kernels some compilers break, and keeps its other kernels."""

from __future__ import annotations

import subprocess
import sys

import pytest

llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

_ASK = """
from edgedec.runtimes.llamacpp import backends, library, tiles
backends.load_plugins()
print(library.reorders_weights(), tiles.granted())
"""


def ask(before: str = "") -> tuple[bool, bool, str]:
    """Return whether weights are reordered and AMX is granted in a new process, and its stderr."""
    done = subprocess.run(
        [sys.executable, "-c", before + _ASK], capture_output=True, text=True, check=True
    )
    reorders, granted = done.stdout.split()
    return reorders == "True", granted == "True", done.stderr


def built_with_amx() -> bool:
    return b"AMX_INT8 = 1" in llama_cpp.llama_print_system_info()


def test_weights_are_reordered_and_amx_is_never_granted() -> None:
    reorders, granted, said = ask()
    assert reorders
    assert not (granted and built_with_amx())
    assert said == ""


def test_where_another_library_was_granted_amx_weights_keep_their_order() -> None:
    reorders, granted, _ = ask("import onnxruntime\n")
    assert reorders == (not granted or not built_with_amx())


def test_signal_stacks_are_as_before() -> None:
    """A signal arrives on the stack it had: faulthandler's, for example."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", _ASK + "import ctypes; ctypes.string_at(0)"],
        capture_output=True,
        text=True,
    )
    assert done.stdout.split()[0] == "True"
    assert "Segmentation fault" in done.stderr
    assert "string_at" in done.stderr
