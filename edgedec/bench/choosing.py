"""Finds prompts whose texts are worth reading: those that repeat themselves least.

``python -m edgedec.bench.choosing`` lists one-line prompts for an example to be typed: how much
faster than plainly each is decoded by default, and how much its greedy text repeats itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgedec.bench.compare import OnProgress
from edgedec.bench.pair import repeated_share
from edgedec.bench.workloads import Prompt, heldout_prompts
from edgedec.pipeline import GenerateOptions, Generation, Pipeline

_LOOKED_AT = 200
_NGRAM = 4  # readers notice shorter repetitions than 8-grams
_SHOWN = 12
_TOKENS = 96
_RUNS = 3
_LONGEST_LINE = 48
# A larger repeated share bores a reader.
_BORING = 0.25

Decode = Callable[[str], Generation]


def least_repetitive(
    prompts: Sequence[Prompt],
    decode: Decode,
    count: int,
    max_new_tokens: int,
    on_progress: OnProgress | None = None,
) -> list[Prompt]:
    """Return the ``count`` prompts whose texts repeat the fewest 4-grams, in their original order.

    Texts that end early come last, however little they repeat.
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
    """A one-line prompt and its greedy text.

    Attributes:
        prompt: the head of a function.
        repeated: share of the text's 4-grams that occurred in it before.
        speedup: over plain decoding, the worst of several runs.
        text: the same in every run.

    """

    prompt: str
    repeated: float
    speedup: float
    text: str


def examples(pipeline: Pipeline, plain: Pipeline, looked_at: int) -> list[Example]:
    """Return one-line prompts whose texts reach their limit and are the same in every run.

    The least repetitive come first, and among those the ones with the highest speed-up.
    """
    options = GenerateOptions(max_new_tokens=_TOKENS)
    heads = dict.fromkeys(prompt.head.strip() for prompt in heldout_prompts(looked_at))
    found = []
    for head in heads:
        if "\n" in head or len(head) > _LONGEST_LINE or '"' in head:
            continue
        runs = [
            (pipeline.generate(head, options), plain.generate(head, options)) for _ in range(_RUNS)
        ]
        texts = {run.text for run, _ in runs}
        gains = [
            slow.metrics.tpot_s / run.metrics.tpot_s
            for run, slow in runs
            if slow.metrics.tpot_s and run.metrics.tpot_s
        ]
        first = runs[0][0]
        if first.finish_reason == "length" and len(texts) == 1 and len(gains) == _RUNS:
            share = repeated_share(first.token_ids, _NGRAM)
            found.append(Example(head, share, min(gains), first.text))
    return sorted(found, key=lambda example: (example.repeated > _BORING, -example.speedup))


def main() -> None:
    """Print the best, a line each, and the first one's text."""
    with (
        Pipeline.open("demo", plan="none") as pipeline,
        Pipeline.open("demo", plan="none", draft="none") as plain,
    ):
        found = examples(pipeline, plain, _LOOKED_AT)
    for one in found[:_SHOWN]:
        print(f"{one.speedup:5.2f}x plain  {one.repeated:4.0%} repeated  {one.prompt}")  # noqa: T201
    if found:
        print(found[0].text)  # noqa: T201


if __name__ == "__main__":
    main()
