"""Loads a model and prints the time and the memory it took: the child process of ``loading``.

Prints once the model is loaded, and again for every line of its standard input.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from edgedec.decoding.session import Want
from edgedec.decoding.tree import TokenTree
from edgedec.hardware.mapped import memory_kinds
from edgedec.records.load import LoadOptions
from edgedec.runtimes.registry import load

_PROMPT, _TOKENS = 16, 8


def main() -> None:
    """Load the model in ``argv[1]`` and decode a few tokens, which touches all weights."""
    # The first model brings what Python and the runtime need for any.
    load("onnx", Path(sys.argv[2]), LoadOptions()).close()
    before = _held()
    begin = perf_counter()
    model = load("onnx", Path(sys.argv[1]), LoadOptions())
    seconds = perf_counter() - begin
    session = model.open(64)
    session.prefill(list(range(_PROMPT)))
    digest = hashlib.sha256()
    for token in range(_TOKENS):
        found = session.forward(TokenTree(token), want=Want.LOGITS).logits
        assert found is not None
        digest.update(found.tobytes())
        session.commit([0])
    _say(load_s=seconds, logits=digest.hexdigest(), before=before, held=_held())
    for _ in sys.stdin:
        _say(held=_held())


def _held() -> dict[str, int]:
    found = memory_kinds()
    return {} if found is None else dataclasses.asdict(found)


def _say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
