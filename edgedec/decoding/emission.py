"""Emitted tokens, with their text, source and log probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from edgedec.decoding.acceptance import Verdict
from edgedec.decoding.sampling import Rows

TopLogprobs = list[tuple[int, float]]


class Emission(NamedTuple):
    """One emitted token.

    Attributes:
        token: its id.
        text: the text that this token completes; may be empty, never part of a character.
        source: ``"draft"`` when a drafted token was accepted, ``"forced"`` when a constraint left
            no choice and no pass was needed, else ``"target"``.
        logprob: log p of the token under the target's own distribution (temperature 1,
            before bias and penalties); None unless requested.
        top_logprobs: the most likely tokens of the same row with their log p, best first; None
            unless requested.
        thinking: the text that this token adds to the thinking before an answer; None if it is not
            part of it.
    """

    token: int
    text: str
    source: str
    logprob: float | None = None
    top_logprobs: TopLogprobs | None = None
    thinking: str | None = None


def emissions_of(
    kept: Sequence[int], texts: Sequence[str], verdict: Verdict, rows: Rows, logprobs: int | None
) -> list[Emission]:
    """Return a round's emissions: token i comes from the row of path node i.

    The one after the accepted draft is the target's own, and those after it were forced.

    Args:
        kept: tokens that belong to the text.
        texts: the text that each of them completes.
        verdict: of the round.
        rows: the target's.
        logprobs: as ``Request.logprobs``; None if tokens were forced, since those have no row yet.

    """
    accepted = verdict.accepted
    if logprobs is None:
        sources = ["draft"] * accepted + ["target"] + ["forced"] * len(kept)
        return [Emission(*one) for one in zip(kept, texts, sources[: len(kept)], strict=True)]
    emissions = []
    for i, (token, text) in enumerate(zip(kept, texts, strict=True)):
        source = "draft" if i < accepted else "target"
        node = verdict.path[i]
        best = rows.top_logprobs(node, logprobs)
        emissions.append(Emission(token, text, source, rows.logprob(node, token), best))
    return emissions
