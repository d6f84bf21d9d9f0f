"""Pads passes so that a row's bits do not depend on the other rows of its pass.

Matrix kernels have a variant for a single remaining row that adds in another order, so the same
token gets other low bits (and, if activations are quantised, other digits) in a pass of 1 row than
in one of 5. A padded pass never leaves a single row. Which padding suffices depends on this
machine's kernels and the weights' format, so it is tested, not assumed.

The guarantee is for chains. In a branching tree a token's ancestors have other slots than they will
have in the text, and the softmax over them adds in another order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from edgedec._support.vetted import Vetted
from edgedec._version import __version__
from edgedec.bundle.onnx_file import ModelFile
from edgedec.decoding.tree import FloatArray
from edgedec.hardware.machine import cpu_fields, cpu_name
from edgedec.runtimes._ort.devices import CPU
from edgedec.runtimes._ort.saved import fingerprint

_PROMPT_TOKENS = 11
# Parts of a text of this many tokens, ``(start, width)``, that are compared with the whole. Where
# each of them agrees, so does every text that is cut into such parts. A part overwrites the cache
# from its start on, so they come from the end; a lone row, the likeliest failure, comes first.
_TEXT_TOKENS = 9
_PARTS = ((8, 1), (6, 3), (5, 1), (4, 1), (4, 5), (3, 1), (2, 1), (2, 7), (1, 1), (0, 1), (0, 2),
          (0, 4), (0, 8))  # fmt: skip
PROBE_SLOTS = 32

Rows = tuple[FloatArray, npt.NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class Padding:
    """A rule for the number of rows.

    Attributes:
        name: for reports.
        multiple: rows are a multiple of this.
        never_one_over: and never one more than a multiple of this (0: no such rule). Kernels work
            on blocks of rows; one more leaves a single row.
        attention_only: rows are added for attention, and for nothing else.

    """

    name: str
    multiple: int = 1
    never_one_over: int = 0
    attention_only: bool = False

    @property
    def slack(self) -> int:
        """Most rows added."""
        return max(self.multiple - 1, 1 if self.never_one_over else 0)

    def rows(self, count: int) -> int:
        """Return the rows of a pass over ``count`` nodes, including padding."""
        if self.never_one_over and count % self.never_one_over == 1:
            return count + 1
        return -(-count // self.multiple) * self.multiple

    def pad(self, tokens: Sequence[int]) -> Sequence[int]:
        """Return the tokens, with the last one repeated as padding."""
        if self.attention_only:
            return tokens
        more = self.rows(len(tokens)) - len(tokens)
        return [*tokens, *[tokens[-1]] * more] if more else tokens


NO_PADDING = Padding("none")
# Cheapest first.
PADDINGS = (
    NO_PADDING,
    Padding("no lone row in attention", never_one_over=16, attention_only=True),
    Padding("no lone row", never_one_over=16),
    Padding("even", multiple=2),
    Padding("multiple of 4", multiple=4),
)
# Those that are used without being asked for on a model of fewer bytes than this. On a larger one a
# padded row takes about 1.1 times as long, and the draft that fills the padding gains as much.
CHEAP_PADDINGS = PADDINGS[:2]
LARGE_BYTES = 200_000_000

Run = Callable[[Padding, Sequence[int], int], Rows]


def find_padding(
    run: Run, vocab_size: int, paddings: Sequence[Padding] = PADDINGS
) -> Padding | None:
    """Return the first padding under which the same tokens give the same bits, however cut.

    Args:
        run: ``run(padding, tokens, past)`` is a padded pass over one cache; it returns the
            logits and what was written to the cache, a row a token.
        vocab_size: of the model.
        paddings: to try, cheapest first.

    """
    rng = np.random.default_rng(0)
    prompt = [int(t) for t in rng.integers(0, vocab_size, _PROMPT_TOKENS)]
    text = [int(t) for t in rng.integers(0, vocab_size, _TEXT_TOKENS)]
    run(NO_PADDING, prompt, 0)
    for padding in paddings:
        whole = run(padding, text, _PROMPT_TOKENS)
        if all(_agrees(run, padding, text, whole, part) for part in _PARTS):
            return padding
    return None


def _agrees(
    run: Run, padding: Padding, text: Sequence[int], whole: Rows, part: tuple[int, int]
) -> bool:
    start, end = part[0], sum(part)
    rows = run(padding, text[start:end], _PROMPT_TOKENS + start)
    return all(
        np.array_equal(got, expected[start:end]) for got, expected in zip(rows, whole, strict=True)
    )


# -- which padding is known to suffice on this machine ------------------------------------------
#
# The search takes some twenty passes of a large model, more than its loading. Its outcome is kept
# for one graph, its files as they are on the disk, these kernels, this number of threads and this
# search, that is this version of edgedec; when any of them changes it is searched again. Where
# nothing can be kept it is searched at every load.

_KIND = "paddings"
_NONE = "nothing holds"


class KnownPaddings:
    """The remembered outcomes for one graph.

    Args:
        file: the graph's.
        stored: what ``read_model_file`` found in it.
        threads: for one pass.
        providers: of the session.

    """

    def __init__(
        self, file: Path, stored: ModelFile, threads: int, providers: Sequence[str]
    ) -> None:
        # Another provider's kernels change with its driver, which is not known here.
        self._facts = _facts(file, stored, threads) if set(providers) == {CPU} else None

    def get(
        self, paddings: Sequence[Padding], search: Callable[[], Padding | None]
    ) -> Padding | None:
        """Return the first of these paddings that holds, searched for unless it is known."""
        if self._facts is None:
            return search()
        vetted = Vetted(_KIND, ort.__version__)
        asked = f"{self._facts}|{'|'.join(padding.name for padding in paddings)}"
        for outcome in (*paddings, None):
            if vetted.opened(_digest(asked, outcome)):
                return outcome
        found = search()
        vetted.remember(_digest(asked, found))
        vetted.save()
        return found


def _digest(asked: str, outcome: Padding | None) -> str:
    name = outcome.name if outcome else _NONE
    return hashlib.sha256(f"{asked}||{name}".encode()).hexdigest()


def _facts(file: Path, stored: ModelFile, threads: int) -> str | None:
    fields = cpu_fields()
    try:
        locations = sorted({location for location, _, _ in stored.stored})
        states = [path.stat() for path in (file, *(file.parent / name for name in locations))]
        return json.dumps([
            fingerprint(file, stored),
            [(one.st_size, one.st_mtime_ns, one.st_ctime_ns, one.st_ino) for one in states],
            __version__, threads, ort.get_build_info(), cpu_name(),
            fields.get("flags") or fields.get("features"),
        ])  # fmt: skip
    except OSError:
        return None
