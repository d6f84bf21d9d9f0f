"""Cases of ``python -m benchmarks matrix``: the sampling options that it compares texts under.

Events that must occur in a text (a stop string, an end-of-text token, a bias that has an effect)
are chosen from plain decoding's texts.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgedec.decoding.emission import Emission
from edgedec.decoding.sampling import SamplingParams
from edgedec.decoding.tree import FloatArray
from edgedec.pipeline import GenerateOptions, Generation
from edgedec.verify.results import GREEDY, Case, alike

# Hot enough for filters to have an effect on a confident model.
HOT = 1.5
FILTERS: dict[str, dict[str, Any]] = {
    "top-k": {"top_k": 4},
    "top-p": {"top_p": 0.7},
    "min-p": {"min_p": 0.15},
}
# Long enough to span tokens, short enough to occur.
_STOP_LENGTHS = (5, 4, 6, 3, 7, 8, 2)
# A stop string whose beginning occurs in the text but never the whole.
_NEVER = "\N{BLACK CHESS KNIGHT}"
# Forced tokens and free ones in turn, and no end before some dozens of tokens.
_SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["function", "method", "class"]},
        "lines": {"type": "array", "items": {"type": "integer"}, "minItems": 4, "maxItems": 12},
        "summary": {"type": "string", "maxLength": 80},
    },
    "required": ["kind", "lines", "summary"],
    "additionalProperties": False,
}
_EXPRESSION = r"([a-z_]{2,12} = [0-9]{1,4}(\.[0-9]{2})?\n){2,20}return [a-z]+"


def sampled(asked: GenerateOptions, **changes: Any) -> GenerateOptions:
    """Return ``asked`` with only these sampling parameters, its temperature and its seed."""
    params = SamplingParams(temperature=asked.sampling.temperature, seed=asked.sampling.seed)
    return replace(asked, sampling=replace(params, **changes))


def by_options(asked: GenerateOptions, count: int) -> list[Case]:
    """Return cases that need no existing text: sampling, filters, penalties, limits, logprobs.

    Of ``asked`` only length, temperature and seed count.
    """
    greedy = replace(asked, sampling=SamplingParams())
    hot = sampled(asked, temperature=HOT)

    def case(name: str, options: GenerateOptions, base: str | None = None) -> Case:
        return alike(name, options, count, base)

    def greedily(**changes: Any) -> GenerateOptions:
        return replace(greedy, sampling=SamplingParams(**changes))

    return [
        case(GREEDY, greedy),
        case("sampled", sampled(asked)),
        case("hot", hot),
        *(case(name, sampled(hot, **filters), "hot") for name, filters in FILTERS.items()),
        case("repetition penalty", greedily(repetition_penalty=1.3), GREEDY),
        case("presence penalty", sampled(asked, presence_penalty=1.5), "sampled"),
        case("frequency penalty", greedily(frequency_penalty=0.7), GREEDY),
        case("logprobs 0", replace(greedy, logprobs=0)),
        case("logprobs 4", replace(sampled(asked), logprobs=4)),
        case("one token", replace(greedy, max_new_tokens=1)),
        case("few tokens", replace(sampled(asked), max_new_tokens=6)),
    ]


def biased(asked: GenerateOptions, plain: Sequence[Generation]) -> Case:
    """Return a case that makes the sampled texts' commonest tokens less likely, others more."""
    options = []
    for text in plain:
        often = [token for token, _ in Counter(text.token_ids).most_common(4)]
        bias = {token: -4.0 if index % 2 == 0 else 1.5 for index, token in enumerate(often)}
        options.append(sampled(asked, logit_bias=bias))
    return Case("logit bias", tuple(options), base="sampled")


def everything(asked: GenerateOptions, count: int) -> Case:
    """Return a hot case with filters, penalties and logprobs; stop strings come from its text."""
    filters = {name: value for one in FILTERS.values() for name, value in one.items()}
    penalties = {"repetition_penalty": 1.1, "presence_penalty": 0.3, "frequency_penalty": 0.2}
    params = {**filters, **penalties}
    options = replace(sampled(asked, temperature=HOT, **params), logprobs=2)
    return alike("all at once", options, count)


def stopped(name: str, case: Case, plain: Sequence[Generation]) -> Case:
    """Return a case with stop strings that occur in its texts, across token boundaries.

    Each comes with one of which only the beginning occurs, so that text is held back and released.
    """
    options, ends = [], []
    for asked, text in zip(case.options, plain, strict=True):
        stop = _across_tokens(text.events)
        strings = (stop, text.text[1:4] + _NEVER) if stop else ()
        options.append(replace(asked, stop=strings))
        ends.append("stop" if stop else None)
    return Case(name, tuple(options), tuple(ends))


def ended(
    greedy: Case, plain: Sequence[Generation], logits: Sequence[FloatArray], eos: int
) -> list[Case]:
    """Return cases in which a bias makes the end-of-text token chosen once, respected and ignored.

    ``logits`` are the rows by which plain decoding chose each greedy text, ``[tokens, vocab]``.
    """
    respected, ignored, ends = [], [], []
    for options, text, rows in zip(greedy.options, plain, logits, strict=True):
        bias = _bias_that_ends(rows, eos)
        # A text that ends by itself needs no bias.
        params = options.sampling if bias is None else SamplingParams(logit_bias={eos: bias})
        respected.append(replace(options, sampling=params, ignore_eos=False))
        ignored.append(replace(options, sampling=params, ignore_eos=True))
        ends.append("eos" if bias is not None or eos in text.token_ids else None)
    limits = tuple("length" for _ in ignored)
    return [
        Case("end of text", tuple(respected), tuple(ends)),
        Case("end of text ignored", tuple(ignored), limits),
    ]


def constrained(asked: GenerateOptions, count: int) -> list[Case]:
    """Return cases whose texts must follow JSON mode, a JSON schema or a regular expression.

    They have to end where their grammar does, so an end of text is never ignored.
    """
    ending = replace(asked, ignore_eos=False)
    hot = sampled(ending, temperature=HOT, **FILTERS["top-p"])
    cold = replace(ending, sampling=SamplingParams())
    return [
        alike("JSON", replace(cold, json_mode=True), count),
        alike("JSON schema", replace(sampled(ending), json_schema=_SCHEMA, logprobs=2), count),
        alike("regular expression", replace(hot, regex=_EXPRESSION), count),
    ]


def _across_tokens(events: Sequence[Emission]) -> str | None:
    """Return a string that first occurs by the middle of the text and spans a token boundary."""
    text = "".join(event.text for event in events)
    edges = set(itertools.accumulate(len(event.text) for event in events))
    half = len(text) // 2
    indices = [*range(half, len(text)), *range(half - 1, 0, -1)]
    # Preferably one that begins and ends inside tokens; single-character tokens have none.
    for inside in (True, False):
        for start, length in itertools.product(indices, _STOP_LENGTHS):
            end = start + length
            if end >= len(text) or edges.isdisjoint(range(start + 1, end)):
                continue
            if inside and not edges.isdisjoint((start, end)):
                continue
            if text.find(text[start:end]) == start:
                return text[start:end]
    return None


def _bias_that_ends(rows: FloatArray, eos: int) -> float | None:
    """Return a bias by which a token is first chosen near the middle of a text.

    None if it is chosen without one. The bias is half-way between what suffices there and what
    would have sufficed before, so that rounding does not decide.
    """
    missing = (rows.max(axis=1) - rows[:, eos]).astype(np.float64)
    if missing.min() <= 0 or not np.isfinite(missing).all():
        return None
    lows = [0]
    for index in range(1, len(missing)):
        if missing[index] < missing[lows[-1]]:
            lows.append(index)
    chosen = min(range(len(lows)), key=lambda i: abs(lows[i] - len(missing) // 2))
    enough = missing[lows[chosen]]
    before = missing[lows[chosen - 1]] if chosen else enough + 2.0
    return float(enough + before) / 2
