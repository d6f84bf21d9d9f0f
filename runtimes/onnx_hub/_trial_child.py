"""Runs in the child process of ``trial``: compares rows of one pass with those of single ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgedec._support import _sandbox_child
from edgedec.bundle import ready_onnx
from edgedec.bundle.onnx_file import read_model_file
from edgedec.decoding.session import Session
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import BundleError, EdgedecError
from edgedec.runtimes._ort.agreement import agree
from edgedec.runtimes._ort.opening import default_threads, open_inference
from edgedec.runtimes.onnx_hub.graph import HubGraph, shares
from edgedec.runtimes.onnx_hub.model import HubModel
from edgedec.runtimes.onnx_hub.trial import MODES

_PROMPT, _MORE = 16, 4
_TOKENS, _CUT = _PROMPT + _MORE, 3
# Differences of two rows' logits relative to their spread. Kernels for several rows differ from
# those for one by 1e-6 in fp32, 4e-4 in fp16 and 2e-2 in int4 that is not padded; a scale that all
# rows share, by 7e-2 and more.
TOLERANCE = 5e-3


def main(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first mode in which a graph computes a decoder's rows, and why not in another."""
    file = Path(task["path"])
    stored = read_model_file(file)
    facts, threads = ready_onnx.read(file), default_threads(stored.weight_bytes)
    assert facts is not None
    inference = open_inference(file, stored, threads)
    able = shares(file, inference, facts)
    whys: list[str] = []
    for number, mode in enumerate(MODES):
        if mode.shared and not able:
            continue
        graph = HubGraph.of(inference, facts, str(file), mode)
        try:
            check(HubModel(file, graph, stored.weight_bytes, threads))
        except EdgedecError as error:
            whys.append(str(error))
        else:
            return {"mode": number, "why": "".join(whys[:1])}
    # Without its folder, since an error from a child is cut at its end.
    raise BundleError(
        f"{file.name}: refused: it computes something else than a decoder: {whys[-1]}"
    )


def check(model: HubModel) -> None:
    """Compare a model's rows; BundleError if they are not those of a decoder."""
    used = model.graph.facts.vocab_used
    tokens = [(7 * n + 3) % used for n in range(_TOKENS)]
    if model.graph.last_only and not model.graph.mode.alone:
        raise BundleError("a pass returns the logits of its last row alone")
    if model.info.max_context <= _TOKENS:
        raise BundleError(f"a context of {model.info.max_context} tokens is too short to try it")
    alone = model.open(_TOKENS + 1)
    expected = np.concatenate([_rows(alone, [token], 1)[:, :used] for token in tokens])
    alone.close()
    if not np.isfinite(expected).all():
        raise BundleError("its logits contain NaN or infinity")
    session = model.open(_TOKENS + 1)

    def compare(what: str, at: int, count: int, kept: int, given: Sequence[int] = ()) -> None:
        got = _rows(session, given or tokens[at : at + count], kept)[:, :used]
        rows = kept if given else count
        if not agree(got[:rows], expected[at : at + rows], TOLERANCE):
            raise BundleError(f"{what} differ from single ones")

    compare("rows of a prompt in one pass", 0, _PROMPT, _PROMPT)
    wrong = [tokens[_PROMPT], *((token + 1) % used for token in tokens[_PROMPT + 1 :])]
    compare("rows after a prompt", _PROMPT, _MORE, 1, wrong)  # the wrong ones are rejected
    compare("rows after rejected ones", _PROMPT + 1, _MORE - 1, _MORE - 1)
    session.rollback(_PROMPT - _CUT)
    compare("rows after a cut", _PROMPT - _CUT, _CUT + _MORE, _CUT + _MORE)
    session.close()


def _rows(session: Session, tokens: Sequence[int], kept: int) -> FloatArray:
    """Return the logits of a chain, of which the first ``kept`` tokens are committed."""
    logits = session.forward(TokenTree.chain(tokens)).logits
    assert logits is not None
    found: FloatArray = logits.copy()
    session.commit(range(kept))
    return found


if __name__ == "__main__":
    _sandbox_child.serve(main)
