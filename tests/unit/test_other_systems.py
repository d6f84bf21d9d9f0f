"""Linux is where this was measured; here it is made to look like Windows and macOS from inside.

A child process takes away what the other system lacks, then imports every module and decodes.
Each system's own kernels, locks and limits are for the workflow of tests, which runs there.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kinds import in_full

# Packages of others choose by `sys.platform`, so they are imported before.
_OTHERS = """
import asyncio, concurrent.futures, multiprocessing, platform, socket, subprocess, tempfile, uuid
import numpy, onnxruntime, tokenizers, click, rich.console, filelock, jinja2, platformdirs
import prompt_toolkit, prompt_toolkit.output.defaults
for name in ("uvicorn", "starlette.applications", "prometheus_client", "llguidance", "onnx",
             "huggingface_hub", "openvino", "llama_cpp", "optimum", "torch", "ray"):
    try:
        __import__(name)
    except Exception:
        pass
"""
_NEITHER = """
import builtins, os, pathlib
def hidden(path):
    return str(path).startswith(("/proc", "/sys/"))
def absent(function):
    def guarded(path, *args, **named):
        if isinstance(path, (str, os.PathLike)) and hidden(os.fspath(path)):
            raise FileNotFoundError(2, "no such file", os.fspath(path))
        return function(path, *args, **named)
    return guarded
builtins.open = io_open = absent(builtins.open)
import io; io.open = io_open
os.open, os.stat, os.listdir, os.scandir = map(absent, (os.open, os.stat, os.listdir, os.scandir))
for name in ("sched_getaffinity", "sched_setaffinity", "posix_fadvise", "memfd_create"):
    if hasattr(os, name):
        delattr(os, name)
"""
# What the standard library of Windows lacks of Linux'.
_WINDOWS = """
import os, signal, sys, threading
for name in ("fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "syslog"):
    sys.modules[name] = None
for name in ("SIGHUP", "SIGKILL", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCHLD", "SIGPIPE",
             "SIGCONT", "SIGTSTP", "SIGWINCH", "pthread_sigmask", "setitimer", "alarm"):
    if hasattr(signal, name):
        delattr(signal, name)
# O_NONBLOCK and O_DIRECTORY stay: they are used where `os.name` is not "nt", which is not changed.
for name in ("fork", "forkpty", "getuid", "geteuid", "getgid", "getegid", "setsid", "killpg",
             "getpgid", "register_at_fork", "getloadavg", "sysconf", "uname", "mkfifo",
             "O_NOFOLLOW", "O_CLOEXEC", "pread", "pwrite", "statvfs", "WIFEXITED"):
    if hasattr(os, name):
        delattr(os, name)
"""
_MAC = """
import os, sys
sys.modules["_ctypes_linux"] = None
"""
_WALK = """
import importlib, pkgutil, edgedec
def failed(name):
    raise ImportError(name)
for one in pkgutil.walk_packages(edgedec.__path__, "edgedec.", onerror=failed):
    if "_child" not in one.name and not one.name.endswith("__main__"):
        try:
            importlib.import_module(one.name)
        except ModuleNotFoundError as error:
            if error.name not in ("llama_cpp", "optimum", "ray", "torch", "coremltools"):
                raise
        except ImportError as error:
            if "llama_cpp" not in str(error):
                raise
"""
_DECODE = """
from edgedec import Pipeline
with Pipeline.open("demo", plan="none", threads=1) as pipeline:
    print(repr(pipeline.generate("def read_lines(path):", max_new_tokens=8, temperature=0).text))
"""
SYSTEMS = {"windows": _NEITHER + _WINDOWS, "mac": _NEITHER + _MAC}


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def here() -> str:
    done = run(_OTHERS + _DECODE)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.full
@pytest.mark.parametrize("system", SYSTEMS)
def test_everything_imports_and_decodes_without_what_the_system_lacks(
    system: str, here: str
) -> None:
    done = run(_OTHERS + SYSTEMS[system] + _WALK + _DECODE)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == here


@pytest.mark.parametrize(
    ("system", "code"),
    in_full(
        [
            ("windows", "import fcntl"),
            ("windows", "import os; os.getuid()"),
            ("windows", "import signal; signal.SIGKILL"),
            ("mac", "open('/proc/self/status')"),
            ("mac", "from pathlib import Path; Path('/sys/class').stat()"),
            ("mac", "import os; os.sched_getaffinity(0)"),
        ],
        2,
    ),
)
def test_what_the_system_lacks_would_be_seen(system: str, code: str) -> None:
    assert run(code).returncode == 0
    assert run(_OTHERS + SYSTEMS[system] + code).returncode != 0


def test_every_skip_says_why(repository: Path) -> None:
    """Of tests that other systems leave out."""
    for file in (repository / "tests").rglob("test_*.py"):
        text = file.read_text("utf-8")
        assert text.count("pytest.mark.skipif(") <= text.count("reason="), file
