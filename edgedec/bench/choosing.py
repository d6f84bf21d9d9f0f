"""Prompts whose texts are worth reading: those that repeat themselves least.

``python -m edgedec.bench.choosing`` lists one-line prompts for an example that is to be typed: how
much the greedy text repeats itself, and tokens a pass with drafts of four, which do not depend on
the machine's speed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgedec.bench.compare import OnProgress
from edgedec.bench.pair import repeated_share
from edgedec.bench.workloads import Prompt, heldout_prompts
from edgedec.pipeline import GenerateOptions, Generation, Pipeline

_LOOKED_AT = 200
_NGRAM = 4  # a reader notices what says itself again sooner than 8-grams do
_SHOWN = 12
_TOKENS = 64
_DRAFT_LENGTH = 4
_LONGEST_LINE = 48
# More of a text repeated than this bores a reader.
_BORING = 0.25

Decode = Callable[[str], Generation]


def least_repetitive(
    prompts: Sequence[Prompt],
    decode: Decode,
    count: int,
    max_new_tokens: int,
    on_progress: OnProgress | None = None,
) -> list[Prompt]:
    """The ``count`` prompts whose texts repeat the fewest 4-grams, in their own order.

    Texts that end early come last, however little of them is repeated.
    """
    found = []
    for place, prompt in enumerate(prompts):
        tokens = decode(prompt.text).token_ids
        found.append((len(tokens) < max_new_tokens, repeated_share(tokens, _NGRAM), place, prompt))
        if on_progress is not None:
            on_progress(len(found), len(prompts))
    best = sorted(found, key=lambda entry: entry[:3])[:count]
    return [prompt for *_, prompt in sorted(best, key=lambda entry: entry[2])]


@dataclass(frozen=True, slots=True)
class Example:
    """A one-line prompt and what came of it."""

    prompt: str
    repeated: float
    tokens_a_pass: float
    text: str


def examples(pipeline: Pipeline, looked_at: int) -> list[Example]:
    """One-line prompts whose texts run to their limit, hardly repeat themselves and are the same
    twice; those whose drafts gain most first.
    """
    options = GenerateOptions(max_new_tokens=_TOKENS, draft_length=_DRAFT_LENGTH)
    heads = dict.fromkeys(prompt.head.strip() for prompt in heldout_prompts(looked_at))
    found = []
    for head in heads:
        if "\n" in head or len(head) > _LONGEST_LINE or '"' in head:
            continue
        one, again = (pipeline.generate(head, options) for _ in range(2))
        share = repeated_share(one.token_ids, _NGRAM)
        if one.finish_reason != "length" or share > _BORING or one.token_ids != again.token_ids:
            continue
        found.append(Example(head, share, one.metrics.block_efficiency, one.text))
    return sorted(found, key=lambda example: -example.tokens_a_pass)


def main() -> None:
    """Print the best, a line each, and the first one's text."""
    with Pipeline.open("demo", plan="none") as pipeline:
        found = examples(pipeline, _LOOKED_AT)
    for one in found[:_SHOWN]:
        print(f"{one.tokens_a_pass:5.2f} tokens a pass  {one.repeated:4.0%} repeated  {one.prompt}")  # noqa: T201
    if found:
        print(found[0].text)  # noqa: T201


if __name__ == "__main__":
    main()
