"""Tries an untrusted ``tokenizer.json`` in a child process with limits.

The effect of its expressions and normalizers shows only when they run. Files that opened are
remembered by sha256; a later panic is a one-line error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from edgedec._support.opened_before import OpenedBefore
from edgedec._support.sandbox import Limits, Refused, Sandbox, Stopped
from edgedec.errors import BundleError

if TYPE_CHECKING:
    import tokenizers

# Limits of trying a tokenizer; a slow device reads a megabyte a second.
BASE_MEMORY_BYTES, MEMORY_PER_BYTE = 160 << 20, 40
BASE_CPU_S, BYTES_PER_SECOND = 1.0, 1 << 20
CHECK_VERSION = 3
CHECKER = Sandbox("edgedec.text._tokenizer_child", idle_s=5.0)


def load(text: str, file: Path) -> tokenizers.Tokenizer:
    """Return the tokenizer of a ``tokenizer.json``, tried in a child unless it opened before.

    Args:
        file: its name in messages.

    Raises:
        BundleError: it cannot be used.

    """
    import tokenizers

    expected = f"{file}: expected a Hugging Face tokenizer.json"
    known = OpenedBefore("tokenizers", f"{tokenizers.__version__} {CHECK_VERSION}")
    digest = hashlib.sha256(text.encode()).hexdigest()
    if not known.opened(digest):
        try_in_child(text, expected)
        known.remember(digest)
        known.save()
    return parse(text, expected)


def parse(text: str, expected: str) -> tokenizers.Tokenizer:
    """Return the library's tokenizer of a ``tokenizer.json``, in this process.

    Raises:
        BundleError: it cannot be used; the message begins with ``expected``.

    """
    import tokenizers

    with one_line_errors(expected):
        return tokenizers.Tokenizer.from_str(text)


def try_in_child(text: str, expected: str) -> None:
    """Load and try a ``tokenizer.json`` in a child process, unless it passed before.

    Raises:
        BundleError: it cannot be used, or exceeds its limits; the message begins with ``expected``.

    """
    size = len(text.encode())
    limits = Limits(
        memory_bytes=BASE_MEMORY_BYTES + MEMORY_PER_BYTE * size,
        cpu_s=BASE_CPU_S + size / BYTES_PER_SECOND,
        wall_s=10 * (BASE_CPU_S + size / BYTES_PER_SECOND),
        answer_bytes=1 << 16,
    )
    try:
        CHECKER.ask({"tokenizer": text}, limits)
    except Stopped as error:
        raise BundleError(f"{expected}: it was stopped: {error}") from None
    except Refused as error:
        raise BundleError(f"{expected}: {error}") from None


@contextmanager
def one_line_errors(expected: str) -> Iterator[None]:
    """Turn every exception of the library into a one-line BundleError.

    A panic in it is a BaseException of a class that cannot be imported.
    """
    try:
        yield
    except (MemoryError, BundleError):
        raise
    except BaseException as error:
        panicked = any(kind.__name__ == "PanicException" for kind in type(error).__mro__)
        if not isinstance(error, Exception) and not panicked:
            raise  # KeyboardInterrupt, SystemExit
        reason = " ".join(str(error)[:1000].split())[:200]
        raise BundleError(f"{expected}: {reason}") from None
