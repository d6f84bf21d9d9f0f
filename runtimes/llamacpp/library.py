"""Loads llama.cpp's shared library, redirects its log, and owns its objects.

llama.cpp logs to stderr. Here its output goes to the logger ``edgedec.llamacpp`` at level DEBUG,
which is silent by default; error lines are kept for messages.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from edgedec.errors import RuntimeUnavailable
from edgedec.runtimes.llamacpp import tiles
from edgedec.runtimes.llamacpp.taps import Taps
from edgedec.runtimes.llamacpp.waiting import suited_to_the_load

try:
    with suited_to_the_load():
        import llama_cpp
        from llama_cpp import llama_cpp as _api
# a library for another machine or of another version
except (RuntimeError, OSError, AttributeError) as error:
    raise RuntimeUnavailable(
        f"llama-cpp-python does not load: {str(error).splitlines()[0]}: install it again"
    ) from error

api: Any = _api
FOLDER = Path(llama_cpp.__file__).parent / "lib"  # folder of its libraries
Params = Any  # ctypes structures, whose fields type checkers do not see
Pointer = Any

logger = logging.getLogger("edgedec.llamacpp")
_DEBUG, _WARNING, _ERROR, _CONTINUED = 1, 3, 4, 5  # ggml_log_level


class _Log(threading.local):
    """The last warnings and errors of this thread."""

    def __init__(self) -> None:
        self.warnings: deque[str] = deque(maxlen=16)
        self.errors: deque[str] = deque(maxlen=16)
        self.level = 0


_log = _Log()


@api.llama_log_callback  # type: ignore[untyped-decorator]
def _on_log(level: int, text: bytes, _: object) -> None:
    if level != _CONTINUED:
        _log.level = level
    # llama.cpp's own debug output is thousands of lines per load, too many for DEBUG here.
    python_level = logging.DEBUG if _log.level > _DEBUG else logging.DEBUG - 1
    if _log.level < _WARNING and not logger.isEnabledFor(python_level):
        return
    line = text.decode("utf-8", "replace").strip()
    if not line:
        return
    if _log.level >= _WARNING:
        (_log.errors if _log.level == _ERROR else _log.warnings).append(line)
    logger.log(python_level, "%s", line)


api.llama_log_set(_on_log, ctypes.c_void_p(0))
api.llama_backend_init()


def forget() -> None:
    """Clear the log before a call whose failure would be explained by it."""
    _log.errors.clear()
    _log.warnings.clear()


def lines() -> tuple[list[str], list[str]]:
    """Return the errors and the warnings since ``forget``."""
    return [*_log.errors], [*_log.warnings]


def told(errors: list[str], warnings: list[str]) -> None:
    """Take over the lines of another thread, which made a call for this one."""
    _log.errors.extend(errors)
    _log.warnings.extend(warnings)


def warned(word: str) -> bool:
    """Return whether a warning since ``forget`` contains this word."""
    return any(word in line for line in _log.warnings)


def reason() -> str:
    """Return why the last call failed, in llama.cpp's own words, in one line."""
    # The first line states the cause, the following ones its consequences.
    line = " ".join(next(iter(_log.errors), "it gives no reason").split())
    place, _, words = line.partition(": ")
    return words if words and " " not in place else line


# -- interruption -------------------------------------------------------------------------------

_c_library = ctypes.CDLL("msvcrt" if os.name == "nt" else None)
# llama.cpp calls the abort callback after every node of the graph. A Python function would take a
# microsecond and the interpreter's lock each time; strlen of a two-byte buffer takes neither.
_asks = api.ggml_abort_callback(ctypes.cast(_c_library.strlen, ctypes.c_void_p).value or 0)


class StopFlag:
    """A flag set from any thread that stops a running graph."""

    def __init__(self) -> None:
        self._text = (ctypes.c_ubyte * 2)()

    def set(self) -> None:
        """Stop the running pass, or the next one."""
        self._text[0] = 1

    def clear(self) -> None:
        """Let passes run again."""
        self._text[0] = 0

    def is_set(self) -> bool:
        """Return whether a stop is requested."""
        return self._text[0] != 0

    def put_into(self, params: Params) -> None:
        """Make a context use this flag, which must outlive it."""
        params.abort_callback = _asks
        params.abort_callback_data = ctypes.addressof(self._text)


@functools.cache
def reorders_weights() -> bool:
    """Return whether weights may be stored in their kernels' own order: not for AMX's kernels."""
    return tiles.unused(api)


@functools.cache
def shown_states() -> Taps:
    """Return the functions that show residual streams; AttributeError if there are none."""
    return Taps(api._lib)


def has_states() -> bool:
    """Return whether this llama.cpp has ``shown_states``."""
    try:
        shown_states()
    except AttributeError:
        return False
    return True


def keeps_states() -> bool:
    """Return whether this llama.cpp can keep earlier states of recurrent models."""
    fields = {name for name, *_ in api.llama_context_params._fields_}
    return "n_rs_seq" in fields and hasattr(api, "llama_n_rs_seq")


# -- forks --------------------------------------------------------------------------------------

# Whether a model was loaded in this process, and whether it was forked from one like that.
_used = forked = False


def _in_fork() -> None:
    global forked
    forked = forked or _used


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_fork)


def check_forks() -> None:
    """Refuse to compute in a fork of a process that computed: OpenMP would wait for its threads.

    Raises:
        RuntimeUnavailable: it says what to do.

    """
    global _used
    if forked:
        raise RuntimeUnavailable(
            "llama.cpp cannot compute in a process that was forked from one in which it did: start"
            " processes by spawn, or open the first model after the fork"
        )
    _used = True


# -- objects that llama.cpp allocates -----------------------------------------------------------


class Caller(Protocol):
    """Makes calls of llama.cpp for one model: at once, or as ``link.Link`` does."""

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what the function returns."""
        ...

    def post(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function, now or later."""
        ...

    def watch(self) -> None:
        """Begin to notice lost devices, once the model is loaded."""
        ...

    def whole_graphs(self) -> AbstractContextManager[None]:
        """Return the context in which the model's contexts are made."""
        ...


class Direct:
    """Calls llama.cpp on the calling thread."""

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    post = __call__

    def watch(self) -> None:
        """Do nothing: no device of this machine is lost."""

    def whole_graphs(self) -> AbstractContextManager[None]:
        """Return a context without an effect."""
        return nullcontext()


class Weights:
    """A loaded model; freed when the last reference goes.

    Args:
        pointer: the ``llama_model``.
        call: makes every call that may wait for a device.

    Attributes:
        pointer, call: as given.
        vocab: its vocabulary.

    """

    def __init__(self, pointer: Pointer, call: Caller | None = None) -> None:
        self.pointer = pointer
        self.call: Caller = call or Direct()
        self.vocab = api.llama_model_get_vocab(pointer)
        weakref.finalize(self, self.call.post, api.llama_model_free, pointer)

    @property
    def recurrent(self) -> bool:
        """Whether some of its layers have a state instead of keys and values."""
        model = self.pointer
        return bool(api.llama_model_is_recurrent(model) or api.llama_model_is_hybrid(model))

    def text(self, key: str) -> str | None:
        """Return a value of the file's metadata; None if there is none."""
        buffer = ctypes.create_string_buffer(512)
        size = api.llama_model_meta_val_str(self.pointer, key.encode(), buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace") if size >= 0 else None


def version() -> str:
    """Return the version of llama.cpp itself."""
    return f"{api.llama_version().decode()}, llama-cpp-python {llama_cpp.__version__}"
