"""Emits the logits of a model that drafts some tokens of a vocabulary only."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from edgedec.export.facts import TOP_K
from edgedec.export.graph import GraphWriter
from edgedec.export.tensors import ChosenRows, TensorReader
from edgedec.models.decoder import DecoderSpec

# The logits of the drafted tokens alone, ``[r, len(ids)]``.
OWN_LOGITS = "own.logits"


def drafted_logits(graph: GraphWriter, own: str, ids: Sequence[int], vocab: int) -> None:
    """Emit a graph's outputs ``logits``, ``top_logits`` and ``top_ids`` over a whole vocabulary.

    Tokens that are not drafted have the logit -inf, so that a softmax gives them no probability.

    Args:
        graph: gets the nodes.
        own: the value with the drafted tokens' logits, ``[r, len(ids)]``.
        ids: the drafted tokens, ascending.
        vocab: columns of the logits.

    """
    g, count = graph, min(TOP_K, len(ids))
    columns = np.array(ids, np.int64)
    k = g.constant("top_k", np.array([count], np.int64))
    g.nodes("TopK", [own, k], ["top_logits", "own.ids"], axis=-1, largest=1, sorted=1)
    g.node("Gather", [g.constant("drafted", columns), "own.ids"], "top_ids")
    # A scatter writes what is drafted; a gather, which looks up every column, takes ten times as
    # long.
    rows = g.node("Shape", [own], "own.rows", start=0, end=1)
    wide = g.constant("vocabulary", np.array([vocab], np.int64))
    shape = g.node("Concat", [rows, wide], "wide.shape", axis=0)
    never = g.node("Expand", [g.constant("never", np.array(-np.inf, np.float32)), shape], "wide")
    narrow = g.node("Shape", [own], "own.shape")
    at = g.node("Expand", [g.constant("drafted", columns), narrow], "own.columns")
    g.node("ScatterElements", [never, at, own], "logits", axis=1)
    g.output("logits", np.float32, ("r", vocab))
    g.output("top_logits", np.float32, ("r", count))
    g.output("top_ids", np.int64, ("r", count))


def with_rows(
    spec: DecoderSpec, tensors: TensorReader, ids: Sequence[int]
) -> tuple[DecoderSpec, TensorReader]:
    """Return a decoder whose head has these rows only; its embedding stays whole.

    A head that is tied to the embedding becomes a matrix of its own. Without ids it stays as it is.
    """
    if not ids:
        return spec, tensors
    own = dataclasses.replace(spec, tied=False)
    return own, ChosenRows(tensors, own.name("head"), spec.name("head"), ids)
