"""Reads or derives the merges of a byte-pair tokenizer, best first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edgedec.gguf.vocabulary import wrong

if TYPE_CHECKING:
    from edgedec.gguf.header import GgufHeader

# Limit on the work for a vocabulary: the sum of its tokens' squared lengths. Gemma's has 1e7.
MAX_WORK = 1 << 29


def listed_merges(header: GgufHeader, tokens: list[str]) -> list[tuple[str, str]]:
    """Return the merges that a file lists, without those that give no token.

    Raises:
        BundleError: it lists none.

    """
    listed = header.metadata.get("tokenizer.ggml.merges")
    if not isinstance(listed, list):
        raise wrong(header, "it lists no merges: the file is damaged, convert it again")
    known = set(tokens)
    found: dict[tuple[str, str], None] = {}
    for merge in listed:
        left, _, right = merge.partition(" ")
        # a split is never after the first character, since a token may begin with a space
        if not left:
            left, _, right = merge[1:].partition(" ")
            left = " " + left
        if left in known and right in known and left + right in known:
            found[left, right] = None
    return list(found)


def merges_from_scores(header: GgufHeader, tokens: list[str]) -> list[tuple[str, str]]:
    """Return the merges that SentencePiece's scores imply.

    llama.cpp merges the neighbours that together form the token with the highest score
    (``llm_tokenizer_spm_session``). So every way to make a token of two others is a merge, ranked
    by that token's score.

    Raises:
        BundleError: there is no score for every token, or the tokens are too long.

    """
    scores = header.metadata.get("tokenizer.ggml.scores")
    if (
        not isinstance(scores, np.ndarray)
        or scores.dtype not in (np.float32, np.int32)
        or len(scores) < len(tokens)
        or np.isnan(scores).any()
    ):
        raise wrong(header, f"expected {len(tokens)} scores: the file is damaged")
    if sum(len(token) ** 2 for token in tokens) > MAX_WORK:
        raise wrong(header, "its tokens are too long: the file is damaged")
    known = set(tokens)
    found: list[tuple[str, str]] = []
    for id in np.argsort(-scores[: len(tokens)].astype(np.float64), kind="stable").tolist():
        token = tokens[id]
        # If two ways overlap in a run of one character, the one with the longer left part comes
        # first.
        for cut in range(len(token) - 1, 0, -1):
            if token[:cut] in known and token[cut:] in known:
                found.append((token[:cut], token[cut:]))
    return found
