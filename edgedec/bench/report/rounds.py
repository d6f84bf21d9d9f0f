"""Records one generation by rounds: the draft and the tokens that were accepted."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

from edgedec.decoding.acceptance import AcceptanceRule, Verdict
from edgedec.decoding.randomness import Streams
from edgedec.decoding.sampling import Rows
from edgedec.decoding.tree import Draft
from edgedec.hardware.resident import resident_bytes
from edgedec.pipeline import GenerateOptions, Pipeline, Prompt
from edgedec.text.tokenizer import Tokenizer


class Watched:
    """An acceptance rule that also notes each round's draft and verdict.

    Attributes:
        rounds: seconds since the start, bytes that the process held, the draft and the verdict
            of each.

    """

    def __init__(self, rule: AcceptanceRule) -> None:
        self._rule = rule
        self.name, self.lossless = rule.name, rule.lossless
        self.coupled, self.want = rule.coupled, rule.want
        self._began = perf_counter()
        self.rounds: list[tuple[float, int, Draft, Verdict]] = []

    def accept(self, draft: Draft, rows: Rows, streams: Streams) -> Verdict:
        verdict = self._rule.accept(draft, rows, streams)
        self.rounds.append((perf_counter() - self._began, resident_bytes(), draft, verdict))
        return verdict


def watch(pipeline: Pipeline, prompt: Prompt, options: GenerateOptions) -> dict[str, Any]:
    """Decode a prompt and return its rounds, as JSON.

    A round has the seconds at which the target had scored it, the bytes that the process then held,
    the drafter, and texts: those of accepted tokens, of the target's own token, and of drafted
    tokens that were not kept.
    """
    engine, honest = pipeline.engine, pipeline.engine.rule
    watched = Watched(honest)
    engine.rule = watched
    try:
        result = pipeline.generate(prompt, options)
    finally:
        pipeline.engine.rule = honest
    tokens = pipeline.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
    rounds, at = [], 0
    for seconds, held, draft, verdict in watched.rounds:
        # The last round may have been cut where the text ended.
        kept = result.events[at : at + verdict.accepted + 1]
        accepted = [event.text for event in kept[: verdict.accepted]]
        own = [event.text for event in kept[verdict.accepted :]]
        before = [*tokens, *result.token_ids[: at + len(accepted)]]
        rejected = [
            draft.tree.tokens[node]
            for node in range(1, len(draft.tree))
            if node not in verdict.path[: len(accepted) + 1]
        ]
        rounds.append(
            {
                "seconds": seconds,
                "memory_bytes": held,
                "source": draft.source,
                "accepted": accepted,
                "own": "".join(own),
                "rejected": _texts(pipeline.tokenizer, before, rejected),
                "emitted": len(kept),
            }
        )
        at += len(kept)
    return {"tokens": len(result.events), "rounds": rounds}


def _texts(tokenizer: Tokenizer, before: Sequence[int], tokens: Sequence[int]) -> list[str]:
    """Return each token's text after those before it; of a token inside a character, none."""
    stream = tokenizer.stream(before)
    return [stream.push(token) for token in tokens]
