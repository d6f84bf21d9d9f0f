"""The child process of ``grammars``: compiles a grammar with the bytes as its vocabulary.

A grammar from elsewhere may take long, need much memory or overflow the stack of the library, which
ends the process. So this runs on a small stack: what passes here fits that of any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import llguidance

from edgedec._support import _sandbox_child
from edgedec._support._sandbox_child import Refusal
from edgedec.grammar import llg

_STACK_BYTES = 512 << 10
_BYTES = [bytes([byte]) for byte in range(256)]


class _Bytes:
    """A vocabulary of the 256 bytes and an end of text."""

    eos_token_id = 256
    bos_token_id = None
    tokens = (*_BYTES, b"\xff[256]")
    special_token_ids = (256,)

    def __call__(self, data: bytes | str) -> list[int]:
        return list(data.encode() if isinstance(data, str) else data)


def compiled(task: Mapping[str, Any]) -> str:
    """Return a ``source`` of a ``kind`` in the library's own form, after trying it.

    Raises:
        Refusal: it cannot be used; says why.

    """
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Bytes()))
    outcome: list[str | BaseException] = []

    def work() -> None:
        try:
            text = llg.translated(task["kind"], task["source"])
            matcher = llg.matcher(tokenizer, text)
            if not matcher.is_error():
                matcher.compute_bitmask()
            if matcher.is_error():
                raise ValueError(matcher.get_error())
            outcome.append(text)
        except BaseException as error:  # a panic in the library is not an Exception
            outcome.append(error)

    threading.stack_size(_STACK_BYTES)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    found = outcome[0]
    if isinstance(found, MemoryError):
        raise found
    if isinstance(found, BaseException):
        raise Refusal(type(found).__name__, llg.reason(str(found)))
    return found


if __name__ == "__main__":
    _sandbox_child.serve(compiled)
