"""Measures on GGUF files which rows have the bits of a row alone, and what that costs.

For each way to open a file, a text is computed token by token and in passes of several rows, after
contexts of several lengths; the share of identical rows is counted, and the processor time of a
pass compared with that of the usual settings, in turn (of weights in the file's order with that of
reordered ones, which are loaded before). ``--gguf`` names files; the default is the
shipped target in usual types.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.bundles import GROWN, Suite
from edgedec._support.model_path import is_gguf
from edgedec.compare.records import Recorder, Row
from edgedec.decoding.tree import FloatArray
from edgedec.records.load import LoadOptions

if TYPE_CHECKING:
    from edgedec.runtimes.llamacpp.context import Context

_CHUNK = 128  # tokens of a pass that reads a prompt
_WEIGHTS = ("q4_0", "q8_0", "q4_k_m")
_CONTEXTS = (100, 1000, 4000)
_TEXT, _WIDTHS, _TIMED, _REPEATS = 32, (2, 3, 4, 7, 8, 16, 32), (1, 2, 4, 8, _CHUNK), 9
_USUAL = "usual"


def rows_by_width(suite: Suite, recorder: Recorder) -> list[Row]:
    """Count rows of GGUF files with the bits of a row alone, by width; measure what that costs."""
    given = suite.bundles.folders.get("target")
    if given is not None and is_gguf(given):
        files = [given]
    else:
        files = [suite.bundles.gguf("target", kind, GROWN) for kind in _WEIGHTS]
    return [row for file in files for row in _of_file(suite, file, recorder)]


def _of_file(suite: Suite, file: Path, recorder: Recorder) -> list[Row]:
    from edgedec.runtimes.llamacpp.context import Context
    from edgedec.runtimes.llamacpp.library import api, version
    from edgedec.runtimes.llamacpp.model import usual_settings
    from edgedec.runtimes.llamacpp.opening import open_weights
    from edgedec.runtimes.llamacpp.rows import pairs, ways

    found: list[Row] = []
    usually: dict[int, dict[int, float]] = {}
    options = LoadOptions(threads=suite.threads)
    for repack in (True, False):
        weights = open_weights(file, options.changed(repack=repack))
        usual = usual_settings(options, int(api.llama_model_size(weights.pointer)))
        tried = [way for way in (*ways(options), *pairs(options)) if way.repack is repack]
        longest = int(api.llama_model_n_ctx_train(weights.pointer))
        for past in (past for past in _CONTEXTS if past + _CHUNK < longest):
            kinds = {_USUAL: usual, **{way.name: way.applied(usual) for way in tried}}
            contexts = {name: Context(weights, kind, past + _CHUNK) for name, kind in kinds.items()}
            facts: Row = {
                "file": file.name, "repacked": repack, "context": past, "threads": usual.threads,
            }  # fmt: skip
            build = {"build": api.llama_print_system_info().decode(), "version": version()}
            found += _at_context(contexts, usually.setdefault(past, {}), facts, build, recorder)
            del contexts
        del weights
    return found


def _at_context(
    contexts: Mapping[str, Context],
    usually: dict[int, float],
    facts: Row,
    build: Row,
    recorder: Recorder,
) -> list[Row]:
    """Return a row a way; ``usually`` are seconds of the usual settings by width, set if empty."""
    past: int = facts["context"]
    rng = np.random.default_rng(past)
    size = next(iter(contexts.values())).vocab_size
    prompt, text = (rng.integers(0, size, n).tolist() for n in (past, _CHUNK))
    for context in contexts.values():
        for at in range(0, past, _CHUNK):
            context.run(prompt[at : at + _CHUNK], at, head=False)
    spent = _times(contexts, text, past)
    if not usually:
        usually.update({width: median(spent[_USUAL, width]) for width in _TIMED})
    rows = []
    for name, context in contexts.items():
        same = _same(context, text[:_TEXT], past)
        costs = {width: median(spent[name, width]) / usually[width] for width in _TIMED}
        seconds = {width: spent[name, width] for width in _TIMED}
        recorder.add(kind="rows", **facts, **build, way=name, same=same, seconds=seconds)
        row: Row = {**facts, "way": name}
        row |= {f"same_{width}": share for width, share in same.items()}
        row |= {f"cost_{width}": cost for width, cost in costs.items()}
        recorder.add(kind="summary", **row)
        rows.append(row)
    return rows


def _same(context: Context, text: list[int], past: int) -> dict[int, float]:
    """Return the share of rows with the bits of a row alone, by width of pass."""

    def rows(width: int) -> FloatArray:
        context.remove(0, past)
        found = []
        for at in range(0, len(text), width):
            part = text[at : at + width]
            context.run(part, past + at, head=True)
            found.append(context.logits(len(part)).copy())
        return np.concatenate(found)

    alone = rows(1)
    return {width: float((rows(width) == alone).all(axis=1).mean()) for width in _WIDTHS}


def _times(
    contexts: Mapping[str, Context], text: list[int], past: int
) -> dict[tuple[str, int], list[float]]:
    """Return processor seconds of passes after the prompt, each way in turn."""
    spent: dict[tuple[str, int], list[float]] = {}
    for turn in range(_REPEATS):
        for name in list(contexts)[:: 1 if turn % 2 else -1]:
            context: Any = contexts[name]
            for width in _TIMED:
                context.remove(0, past)
                begin = time.process_time()
                context.run(text[:width], past, head=width < _CHUNK)
                if width < _CHUNK:
                    context.logits(width)
                spent.setdefault((name, width), []).append(time.process_time() - begin)
            context.remove(0, past)
    return spent
