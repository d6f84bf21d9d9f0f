"""Runs one task of a peer, in the peer's own environment: the standard library and numpy only.

    python -I _child.py PEER.py REQUEST.json ANSWER.json

The answer has a file of its own, since libraries write to standard output.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

WINDOW = 512


class Tools:
    """Passed to a peer's functions with the request: a clock and a measure of quality."""

    def __init__(self) -> None:
        self._begin = 0.0
        self._seen: list[tuple[float, int]] = []

    def start(self) -> None:
        """Start timing: the prompt is read from here on."""
        self._seen = []
        self._begin = time.perf_counter()

    def tokens(self, count: int = 1) -> None:
        """Note that ``count`` tokens have come."""
        self._seen.append((time.perf_counter() - self._begin, count))

    def times(self) -> dict[str, float | int]:
        """Return the seconds to the first token, and of the tokens after it."""
        if not self._seen:
            raise RuntimeError("no token came")
        first, last = self._seen[0][0], self._seen[-1][0]
        total = sum(count for _, count in self._seen)
        return {"prompt_s": first, "decode_s": last - first, "decoded": total - 1}

    def perplexity(self, ids: Sequence[int], logits: Callable[[list[int]], Any]) -> float:
        """Return exp of the mean negative log likelihood of every token but each window's first.

        ``logits`` reads a window from an empty cache and gives its rows, [tokens, vocab].
        """
        losses = [-float(logs[token]) for _, logs, token in _predictions(ids, logits)]
        return math.exp(sum(losses) / len(losses))

    def divergence(
        self, ids: Sequence[int], source: str | Path, logits: Callable[[list[int]], Any]
    ) -> dict[str, Any]:
        """Return how far a model's next-token distributions are from its source's.

        ``kl_nats`` is the mean KL(source || model), also for each window in ``kl_of_windows``;
        ``top1`` the share of positions where both have the same best token. ``perplexity`` is the
        model's. Ids and logits are as in ``perplexity``; logits beyond the source's columns count
        as impossible.

        Args:
            source: an ``.npy`` file with the source's log-probabilities after every token but
                each window's last, ``[predictions, tokens of the vocabulary]``.

        """
        import numpy as np

        expected = np.load(source, mmap_mode="r")
        windows: list[list[float]] = []
        losses, same = [], 0
        found = _predictions(ids, logits, expected.shape[1])
        for wide, (window, logs, token) in zip(expected, found, strict=True):
            if window == len(windows):
                windows.append([])
            own = wide.astype(np.float64)
            windows[-1].append(float((np.exp(own) * (own - logs)).sum()))
            losses.append(-float(logs[token]))
            same += int(own.argmax() == logs.argmax())
        return {
            "kl_nats": sum(map(sum, windows)) / len(losses),
            "top1": same / len(losses),
            "perplexity": math.exp(sum(losses) / len(losses)),
            "kl_of_windows": [sum(part) / len(part) for part in windows],
        }


def _predictions(
    ids: Sequence[int], logits: Callable[[list[int]], Any], columns: int | None = None
) -> Iterator[tuple[int, Any, int]]:
    """Yield each prediction's window, log-probabilities and the token that came."""
    import numpy as np

    for window, start in enumerate(range(0, len(ids) - 1, WINDOW)):
        part = list(ids[start : start + WINDOW])
        # Row by row: in double precision a window of a large vocabulary takes gigabytes.
        for row, token in zip(logits(part), part[1:], strict=False):
            wide = np.asarray(row, np.float64)[:columns]
            wide = wide - wide.max()
            yield window, wide - np.log(np.exp(wide).sum()), token


def versions() -> list[str]:
    """Return what is installed here; the answer of a task that has none of its own."""
    installed = importlib.metadata.distributions()
    return sorted({f"{one.metadata['Name']}=={one.version}" for one in installed})


def load(file: Path) -> ModuleType:
    """Load a peer's file; its folder is not searched, since a peer may be named as its library."""
    spec = importlib.util.spec_from_file_location(f"peer_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(peer: str, request: str, answer: str) -> None:
    """Answer one request."""
    asked = json.loads(Path(request).read_text("utf-8"))
    sys.path += asked.get("paths", [])
    own, name = load(Path(peer)), asked["task"]
    if name == "build" and not hasattr(own, name):
        found = None
    else:
        found = getattr(own, name)(asked, Tools())
    found = found or {"versions": versions()}
    Path(answer).write_text(json.dumps(found), "utf-8")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception as error:
        import traceback

        traceback.print_exc()
        last = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        sys.exit(f"{type(error).__name__}: {last}")
