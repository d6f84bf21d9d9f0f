"""Loads a model and prints the time and the memory it took: the child process of ``loading``.

Prints once the model is loaded, and again for every line of its standard input.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from edgedec.decoding.session import Want
from edgedec.decoding.tree import TokenTree
from edgedec.records.load import LoadOptions
from edgedec.runtimes.registry import load

_PROMPT, _TOKENS = 16, 8
_PROCESS = Path("/proc/self")


@dataclass(frozen=True, slots=True)
class MemoryKinds:
    """Resident memory by kind, in bytes.

    Attributes:
        private: pages that no file backs, such as weights packed at a load, and mapped pages that
            were written to. They belong to this process only and can only be swapped.
        mapped: pages of files, such as mapped weights; other processes may share them.
        reclaimable: unmodified mapped pages, which the system drops when memory is short and reads
            again when they are needed.
        proportional: private pages plus this process's share of every mapped page; the sum over all
            processes is their total memory.

    """

    private: int
    mapped: int
    reclaimable: int
    proportional: int


def memory_kinds(process: Path = _PROCESS) -> MemoryKinds | None:
    """Return what a ``process``, a folder in ``/proc``, holds; None where that is not reported.

    It walks all mappings, which takes about a millisecond for a loaded model.
    """
    try:
        lines = (process / "smaps_rollup").read_text("ascii").splitlines()[1:]
        found = {name: int(rest.split()[0]) * 1024 for name, _, rest in map(_split, lines)}
        mapped = found["Rss"] - found["Anonymous"]
        clean = found["Shared_Clean"] + found["Private_Clean"]
        return MemoryKinds(found["Anonymous"], mapped, min(clean, mapped), found["Pss"])
    except (OSError, ValueError, IndexError, KeyError):
        return None


def _split(line: str) -> tuple[str, str, str]:
    return line.partition(":")


def main() -> None:
    """Load the model in ``argv[1]`` and decode a few tokens, which touches all weights."""
    # The first model loads what Python and the runtime need for any model.
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
