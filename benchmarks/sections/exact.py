"""Measures the cost of exact text: passes padded so that a seed's text ignores the drafts.

Without padding, quantised rows round differently in passes of different widths, and a drafted text
may diverge from the plain one where two tokens are nearly tied. Padding prevents that and costs
most for single rows: in plain decoding, and in rounds that draft nothing. Each workload is decoded
plainly and with drafts, padded and not, in turn in one process; losses are of processor time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks.bundles import GROWN, Suite
from benchmarks.sections.never_slower import AUTO, PromptSet, in_turn, loss, unpredictable
from edgedec.compare.drafters import PLAIN
from edgedec.compare.records import Recorder, Row
from edgedec.decoding.sampling import SamplingParams
from edgedec.decoding.session import Session, Want
from edgedec.decoding.tree import TokenTree
from edgedec.models.demo.heldout import heldout_files
from edgedec.pipeline import Prompt
from edgedec.runtimes.onnx.model import OnnxModel

_MIDDLE = (
    "draft-150m"  # of ``benchmarks.models.grow``: 86 MB in int4, below what is exact by default
)
EXACT, EXACT_PLAIN, EXACT_FILLED = "exact auto", "exact plain", "exact filled"
_REPEATS = 2
_LONG_CHARACTERS = 3000
_CONTEXTS, _PASSES = (32, 128, 256, 1024), 40
# Pairs of a configuration and the one that it would replace.
_INSTEAD_OF = ((EXACT_PLAIN, PLAIN), (EXACT, AUTO), (EXACT_FILLED, AUTO), (AUTO, PLAIN))


def exact(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure the cost of batch-invariant passes, and how many texts are identical without them."""
    ways = {
        PLAIN: suite.plain(),
        EXACT_PLAIN: suite.options(drafter="none", batch_invariant=True),
        AUTO: suite.options(batch_invariant=False),
        EXACT: suite.options(batch_invariant=True),
        # If nothing else is worth drafting, the most likely successor fills the padding.
        EXACT_FILLED: suite.options(drafter="adaptive", batch_invariant=True),
    }
    rows: list[Row] = []
    for pair, bundle in _bundles(suite):
        for work in _workloads(suite):
            found = in_turn(bundle, ways, work, recorder, pair, _REPEATS)
            row: Row = {"pair": pair, "workload": work.name, "prompts": len(work.prompts)}
            for name, baseline in _INSTEAD_OF:
                lost, upper = loss(found.spent[baseline], found.spent[name])
                row[f"{name} for {baseline}"] = lost
                row[f"{name} for {baseline}, upper_95"] = upper
            for reference, *others in ((PLAIN, AUTO), (EXACT_PLAIN, EXACT, EXACT_FILLED)):
                for name in others:
                    row[f"{name} same as {reference}"] = _same(found.texts, reference, name)
            recorder.add(kind="summary", **row)
            rows.append(row)
    return rows


def lone_rows(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare a single row's pass: not padded, with padded attention only, and fully padded."""
    bundles = suite.bundles
    bundle = bundles.bundle("int4", target=GROWN)
    exported_for_it = bundles.bundle("int4", target=GROWN, batch_invariant=True)
    ways = {
        "unpadded": (bundle, False),
        "unpadded, exported for it": (exported_for_it, False),
        "attention padded": (exported_for_it, True),
        "pass padded": (bundle, True),
    }
    with ExitStack() as stack:
        sessions = {}
        for name, (where, invariant) in ways.items():
            model = OnnxModel.load(
                where / "target", threads=suite.threads, batch_invariant=invariant
            )
            stack.callback(model.close)
            session = sessions[name] = model.open(max(_CONTEXTS) + 1)
            stack.callback(session.close)
        return [_lone(sessions, tokens, recorder) for tokens in _CONTEXTS]


def _lone(sessions: Mapping[str, Session], tokens: int, recorder: Recorder) -> Row:
    """Measure a single row's processor time after ``tokens`` tokens, absolute and relative."""
    spent: dict[str, list[float]] = {name: [] for name in sessions}
    for session in sessions.values():
        session.prefill([7 + index % 90 for index in range(session.length, tokens)])
    for turn in range(_PASSES):
        for name in list(sessions)[:: 1 if turn % 2 else -1]:
            begin = time.process_time()
            sessions[name].forward(TokenTree(9), want=Want.TOP)
            spent[name].append(time.process_time() - begin)
            sessions[name].rollback(tokens)
    medians = {name: median(times) for name, times in spent.items()}
    first = next(iter(medians.values()))
    recorder.add(kind="passes", tokens=tokens, seconds=spent)
    return {"tokens": tokens, **{name: value / first for name, value in medians.items()}}


def _bundles(suite: Suite) -> list[tuple[str, Path]]:
    """Return the shipped pair, also exported with ``batch_invariant`` (pads attention only), and
    grown ones.
    """
    bundles = suite.bundles
    found = [
        ("shipped, blocks of 32", bundles.bundle("int4", block_size=32)),
        ("shipped, blocks of 32, exported for it", bundles.bundle("int4", batch_invariant=True)),
    ]
    for name, target in (("shipped", None), ("86 MB", _MIDDLE), ("grown", GROWN)):
        bundle = bundles.bundle("int4", target=target, block_size=128)
        found.append((f"{name}, blocks of 128", bundle))
    return found


def _workloads(suite: Suite) -> list[PromptSet]:
    """Return text that drafts predict, after short and long prompts, and unpredictable text."""
    hot = [work for work in unpredictable(suite.prompts) if "1.6" in work.name]
    return [
        PromptSet("held-out code, greedy", suite.code(), SamplingParams()),
        PromptSet("long held-out code, greedy", _long(suite.prompts), SamplingParams()),
        *hot[:2],
    ]


def _long(count: int) -> list[tuple[str, Prompt]]:
    """Return the beginnings of held-out files."""
    texts: list[tuple[str, Prompt]] = []
    for path in heldout_files():
        text = path.read_text(encoding="utf-8")
        if len(text) > _LONG_CHARACTERS:
            texts.append((path.name, text[:_LONG_CHARACTERS]))
    return texts[:count]


def _same(texts: dict[str, list[Sequence[int]]], one: str, other: str) -> int:
    return sum(list(a) == list(b) for a, b in zip(texts[one], texts[other], strict=True))
