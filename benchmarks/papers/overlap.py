"""PEARL, Mirror-SD and LLMCad: the draft works while the target computes, or while it loads.

Times are in units of the target's pass if the papers give ratios. None of the three states how
often single drafted tokens are right, so that is a range, on which their figures mostly depend.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from benchmarks.papers.pairs import TimedPair
from benchmarks.papers.reproduction import Claim
from edgedec.records.trace import Trace
from edgedec.simulation import cards
from edgedec.simulation.figures import Figure
from edgedec.simulation.roofline import Roofline, contention, parse
from edgedec.simulation.synthetic import persistent, text

_TOKENS = 600
# A ratio of two speeds differs from another by a few percent, so its texts are longer.
_MANY = 3000
_CONTEXT = 256
# Draft lengths of the sequential baseline, which uses the best one at each corner.
_LENGTHS = (2, 3, 4, 5, 6, 8, 10, 13, 16)

PEARL, MIRROR, LLMCAD = "PEARL (2408.11850)", "Mirror-SD (2510.13161)", "LLMCad (2309.04255)"
_PEARL_CODE = "https://github.com/smart-lty/ParallelSpeculativeDecoding"
_LLMCAD = "https://arxiv.org/abs/2309.04255"
_ACCEPTED = "drafted tokens that are right"
_RUNS = "correlation of neighbours"


def _guess(low: float, high: float, note: str) -> Figure:
    return Figure(low, high, "estimate", "this reproduction", "", note)


_CORRELATED = _guess(
    0.0, 0.4, "easy and difficult passages come in runs; how much so is not known to us"
)


@cache
def _text(acceptance: float, persistence: float, tokens: int) -> Trace:
    return text(persistent(acceptance, persistence, tokens))


# -- PEARL -------------------------------------------------------------------------------------

_PEARL_LENGTH = 5
_RATIO = "target pass / draft pass"
_WIDE = "pass over a draft / pass over one row"
_SYNC = "of a round beside passes, target passes"
_PEARL_INPUTS = {
    _RATIO: Figure(
        4.5, 5.5, "derived", "PEARL's scripts: draft length 5 for 7B and 70B", _PEARL_CODE,
        "their draft length is this ratio, rounded",
    ),
    _ACCEPTED: _guess(0.85, 0.95, "7B and 70B models of one family, greedy, on code"),
    _RUNS: _CORRELATED,
    _WIDE: _guess(1.0, 1.1, "6 rows on a data-centre GPU, whose reading of weights hides them"),
    _SYNC: _guess(0.0, 0.05, "two processes exchange tokens after each pass"),
}  # fmt: skip


def _pearl_pair(values: Mapping[str, float]) -> TimedPair:
    return TimedPair(1.0, 1 / values[_RATIO], verify_s=values[_WIDE], round_s=values[_SYNC])


def _pearl(values: Mapping[str, float]) -> float:
    """Return the speed-up over plain decoding, at PEARL's draft length, without branches."""
    return _pearl_at(_pearl_pair(values), values[_ACCEPTED], values[_RUNS])


@cache
def _pearl_at(pair: TimedPair, accepted: float, runs: float) -> float:
    metrics = pair.overlapped(_text(accepted, runs, _MANY), _PEARL_LENGTH, branching=False)
    return metrics.tokens_per_second / pair.plain()


def _pearl_over_sequential(values: Mapping[str, float]) -> float:
    """Return the speed-up over speculative decoding at its own best draft length."""
    pair = _pearl_pair(values)
    trace = _text(values[_ACCEPTED], values[_RUNS], _MANY)
    best = max(pair.sequential(trace, length).tokens_per_second for length in _LENGTHS)
    return _pearl(values) * pair.plain() / best


# -- Mirror-SD ---------------------------------------------------------------------------------

_MAC = cards.load("apple-m2-ultra")
_MAC_INPUTS = (
    "devices.gpu.bandwidth_share",
    "devices.npu.bandwidth",
    "devices.npu.bandwidth_share",
)
_STREAMED = "tokens of a draft pass"
_WINDOW = "drafted tokens verified at once"
_MIRROR_INPUTS = {
    **{name: _MAC.figures()[name] for name in _MAC_INPUTS},
    _ACCEPTED: _guess(0.65, 0.9, "over the groups of Spec-Bench, from writing to translation"),
    _STREAMED: _guess(1.0, 3.0, "its draft streams more than one token a pass"),
    _WINDOW: _guess(5, 9, "not known to us"),
}


def _mirror(values: Mapping[str, float]) -> float:
    figures = {name: value for name, value in values.items() if name in _MIRROR_CARD}
    return _mirror_at(
        tuple(sorted(figures.items())),
        values[_ACCEPTED],
        values[_STREAMED],
        round(values[_WINDOW]),
    )


@cache
def _mirror_at(
    figures: tuple[tuple[str, float], ...], accepted: float, streamed: float, window: int
) -> float:
    card = _MAC.fixed(dict(figures))
    target = Roofline(card, "gpu", parse("14B fp16")).seconds(1, _CONTEXT)
    draft = Roofline(card, "npu", parse("0.6B fp16")).seconds(1, _CONTEXT)
    slowed = contention(card, "gpu", "npu").target_factor
    pair = TimedPair(target, draft / streamed, slowed=slowed)
    metrics = pair.overlapped(_text(accepted, 0.0, _TOKENS), window)
    return metrics.tokens_per_second / pair.plain()


_MIRROR_CARD = set(_MAC.figures())

# -- LLMCad ------------------------------------------------------------------------------------

_LOADING = "share of a target pass that loads"
_EVERY = "drafted tokens a verification"
_SLOWED = "slowing of both while weights load"
_SMALL = "draft pass / target pass"
_LLMCAD_INPUTS = {
    _LOADING: Figure(0.96, 0.99, "measured", "LLMCad: loading is 96 to 99% of a pass", _LLMCAD),
    _EVERY: Figure(12, 15, "measured", "LLMCad: verification every 12 to 15 tokens", _LLMCAD),
    _SLOWED: Figure(1.05, 1.09, "measured", "LLMCad: drafting while weights load", _LLMCAD),
    _SMALL: _guess(0.01, 0.05, "a draft in memory against a target ten times as large on flash"),
    _ACCEPTED: _guess(0.8, 0.95, "of a draft up to a tenth of its target"),
}


def _llmcad(values: Mapping[str, float]) -> float:
    """Return the speed-up over the target alone, which loads and then computes."""
    pair = TimedPair(1.0, values[_SMALL], load_share=values[_LOADING], slowed=values[_SLOWED])
    metrics = pair.overlapped(
        _text(values[_ACCEPTED], 0.0, _TOKENS), round(values[_EVERY]), branching=False
    )
    return metrics.tokens_per_second / pair.plain()


def _llmcad_over_pipelined(values: Mapping[str, float]) -> float:
    """Return the speed-up over a target that computes one part while the next one loads."""
    return _llmcad(values) * max(values[_LOADING], 1 - values[_LOADING])


def claims() -> list[Claim]:
    """Return the figures that are compared with the papers."""
    spread_over_tasks = (
        "The paper's figures span tasks and models, and so do the inputs: this says that they are "
        "of the right size, not that one of them is reproduced."
    )
    return [
        Claim(
            PEARL,
            "speed-up over plain decoding, at most",
            3.79,
            _PEARL_INPUTS,
            _pearl,
            "How often the 7B model says what the 70B one says decides it, and is not known to us.",
        ),
        Claim(
            PEARL,
            "speed-up over speculative decoding, at most",
            1.52,
            _PEARL_INPUTS,
            _pearl_over_sequential,
            "At the upper edge: another drawn text moves it by two percent. Here the rival drafts "
            "at its best length for each rate of acceptance.",
        ),
        Claim(
            MIRROR, "speed-up, least of its tasks", 2.8, _MIRROR_INPUTS, _mirror, spread_over_tasks
        ),
        Claim(
            MIRROR, "speed-up, most of its tasks", 5.8, _MIRROR_INPUTS, _mirror, spread_over_tasks
        ),
        Claim(
            LLMCAD,
            "speed-up over a pipelined target at 4 GB",
            4.72,
            _LLMCAD_INPUTS,
            _llmcad_over_pipelined,
            "Almost all of the time is loading, so the figure is about how many tokens a "
            "verification brings, and that is an estimate.",
        ),
        Claim(
            LLMCAD,
            "speed-up over loading and computing, at most",
            9.3,
            _LLMCAD_INPUTS,
            _llmcad,
            "As above; the highest of the paper is of its best pair.",
        ),
    ]
