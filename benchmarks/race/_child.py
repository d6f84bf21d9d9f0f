"""Runs one task of a peer, in the peer's own environment: the standard library and numpy only.

    python -I _child.py PEER.py REQUEST.json ANSWER.json

The answer has a file of its own, since libraries write to standard output.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

WINDOW = 512
# It imports the standard library alone, so that it loads in every environment.
_ENERGY = Path(__file__).parents[2] / "edgedec" / "hardware" / "energy.py"


class Used(NamedTuple):
    """What has been used; None is not measured here.

    Attributes:
        processor_s: user and system time of a process, its threads and its ended children.
        joules: of the whole machine.

    """

    processor_s: float | None
    joules: float | None

    def since(self, before: Used) -> Used:
        """Return what was used after another reading."""
        pairs = zip(self, before, strict=True)
        return Used(*(None if a is None or b is None else a - b for a, b in pairs))

    def per(self, tokens: float) -> dict[str, float | None]:
        """Return the fields of a run's ``times``."""
        return {
            f"{name}_per_token": None if value is None else value / tokens
            for name, value in self._asdict().items()
        }


class Meter:
    """Reads what this process has used since the meter was made."""

    def __init__(self) -> None:
        self._energy = load(_ENERGY).EnergyMeter()
        self._joules: float | None = 0.0

    def read(self) -> Used:
        """Return the total so far."""
        more = self._energy.used()
        self._joules = None if more is None or self._joules is None else self._joules + more
        return Used(_processor_s(), self._joules)


def _processor_s() -> float | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


class Tools:
    """Passed to a peer's functions with the request: a clock and a measure of quality.

    ``meter`` reads processor time and energy.
    """

    def __init__(self) -> None:
        self.meter = Meter()
        self._begin = 0.0
        self._seen: list[tuple[float, int]] = []
        self._first = self._last = Used(None, None)

    def start(self) -> None:
        """Start timing: the prompt is read from here on."""
        self._seen = []
        self._begin = time.perf_counter()

    def tokens(self, count: int = 1) -> None:
        """Note that ``count`` tokens have come."""
        self._seen.append((time.perf_counter() - self._begin, count))
        self._last = self.meter.read()
        if len(self._seen) == 1:
            self._first = self._last

    def times(self) -> dict[str, float | int | None]:
        """Return the seconds to the first token, those of the tokens after it and what they used.

        ``processor_s_per_token`` and ``joules_per_token`` are those of the ``decoded`` tokens.
        """
        if not self._seen:
            raise RuntimeError("no token came")
        first, last = self._seen[0][0], self._seen[-1][0]
        total = sum(count for _, count in self._seen)
        return {
            "prompt_s": first,
            "decode_s": last - first,
            "decoded": total - 1,
            **self._last.since(self._first).per(max(1, total - 1)),
        }

    def folder(self, checkpoint: str, scratch: str | Path) -> str:
        """Return a checkpoint's folder; of a GGUF file one that transformers unpacks to fp32."""
        if Path(checkpoint).is_dir():
            return checkpoint
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        file, out = Path(checkpoint), Path(scratch, "unpacked")
        found = {"gguf_file": file.name}
        AutoTokenizer.from_pretrained(file.parent, **found).save_pretrained(out)
        model = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **found)
        model.save_pretrained(out)
        return str(out)

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
        if isinstance(error, subprocess.CalledProcessError):  # whose text has this machine's paths
            words = [Path(word).name for word in map(str, error.cmd)]
            last = f"{' '.join(words[:4])} ended with {error.returncode}: see its log"
        sys.exit(f"{type(error).__name__}: {last}")
