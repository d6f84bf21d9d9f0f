"""Checks that a place computes correctly, by comparing logits on one text with another place's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from edgedec.decoding.session import Session
from edgedec.decoding.tree import TokenTree
from edgedec.errors import ProfileError
from edgedec.records.profile import Parity

Rows = npt.NDArray[np.float32]

READ = 16
# Widths of the passes after the text that are compared: a device may be right for one row and wrong
# for several.
PASSES = (1, 4, 1, 8, 2, 5, 3, 8)
# A tree verified after them: siblings must not attend to each other.
_PARENTS = (0, 0, 1, 2, 2)
# Minimal agreement and maximal divergence in nats. For one file on two devices only the arithmetic
# differs; for two files the weights differ as well, and nearly flat distributions differ at ties.
SAME_FILE = (0.5, 0.05)
OTHER_FILE = (0.0, 0.5)


def rows(session: Session, sample: Sequence[int], *, tree: bool = False) -> Rows:
    """Return logits after the tokens of a text, ``[32, vocab]``.

    Args:
        session: empty before and after, with room for the text.
        sample: tokens of the text.
        tree: also return those of a branching tree, 6 more rows.

    Raises:
        ProfileError: this runtime returns no logits.

    """
    found: list[Rows] = []
    session.rollback(0)
    session.prefill(sample[:READ])
    at = READ
    for width in PASSES:
        width = min(width, session.capacity - at, len(sample) - at)
        if width < 1:
            break
        found.append(_scored(session, TokenTree.chain(sample[at : at + width])))
        session.commit(list(range(width)))
        at += width
    if tree and session.capacity - at >= len(_PARENTS) + 1:
        found.append(_scored(session, _branching(sample)))
    session.rollback(0)
    return np.concatenate(found)


def _scored(session: Session, tree: TokenTree) -> Rows:
    logits = session.forward(tree).logits
    if logits is None:
        raise ProfileError("its passes return no logits, so its results cannot be checked")
    own: Rows = logits.copy()
    return own


def _branching(sample: Sequence[int]) -> TokenTree:
    tree = TokenTree(sample[0])
    for token, parent in zip(sample[1:], _PARENTS, strict=False):
        tree.add(token, parent)
    return tree


def compare(reference: Rows, own: Rows, where: str, *, same_file: bool) -> Parity:
    """Compare rows with those of a reference.

    Args:
        reference, own: logits, ``[rows, vocab]``.
        where: label of the reference's place, for the message.
        same_file: whether both were computed from the same weights.

    """
    if reference.shape[1] != own.shape[1]:
        reason = f"its rows have {own.shape[1]} columns, {reference.shape[1]} expected"
        return Parity(0.0, 0.0, usable=False, reason=reason)
    # Not every runtime supports trees.
    both = min(len(reference), len(own))
    reference, own = reference[:both], own[:both]
    if not np.isfinite(own.max(axis=1)).all() or np.isnan(own).any():
        return Parity(0.0, 0.0, usable=False, reason="its logits contain NaN or infinity")
    # A few wrong rows of a tree must not be averaged away among the others.
    parts = [part for part in (slice(0, sum(PASSES)), slice(sum(PASSES), None)) if len(own[part])]
    same = reference.argmax(axis=1) == own.argmax(axis=1)
    agreement = min(float(np.mean(same[part])) for part in parts)
    divergence = max(_divergence(reference[part], own[part]) for part in parts)
    least, most = SAME_FILE if same_file else OTHER_FILE
    if agreement >= least and divergence <= most:
        return Parity(agreement, divergence, usable=True)
    reason = (
        f"wrong results: {agreement:.0%} of its most likely tokens are those of {where}, and it"
        f" diverges by {divergence:.2g} nats; expected {least:.0%} and at most {most:g}"
    )
    return Parity(agreement, divergence, usable=False, reason=reason)


def _divergence(reference: Rows, own: Rows) -> float:
    """Return the mean Kullback-Leibler divergence in nats."""
    p, q = _log_softmax(reference), _log_softmax(own)
    there = np.exp(p) > 0
    # A token that one of the two excludes counts as very unlikely.
    terms = np.where(there, np.exp(p) * (np.maximum(p, -80) - np.maximum(q, -80)), 0)
    return max(0.0, float(terms.sum(axis=1).mean()))


def _log_softmax(logits: Rows) -> npt.NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    found: npt.NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return found
