"""Measures how often the speed on another text is within a plan's interval."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pydoc_data import topics
from statistics import fmean, median

from benchmarks.bundles import Suite
from edgedec.compare.records import Recorder, Row
from edgedec.loading.build import OpenOptions
from edgedec.loading.opening import placed
from edgedec.loading.sources import every_format
from edgedec.models.demo.heldout import heldout_prompts
from edgedec.pipeline import GenerateOptions, Pipeline
from edgedec.planning.choose import decide
from edgedec.planning.predict import predict
from edgedec.planning.spread import LEVEL, WeighedCandidate, between_texts
from edgedec.profiling import run
from edgedec.profiling.places import Wanted
from edgedec.profiling.prompts import CalibrationPrompt
from edgedec.profiling.recording import record
from edgedec.profiling.run import ProfileOptions
from edgedec.profiling.traces import TEMPERATURES
from edgedec.records.plan import Decision, Plan
from edgedec.records.profile import Profile
from edgedec.records.workload import Workload

CODE, PROSE, HOPELESS = "code", "prose", "hopeless"
_OTHER_KINDS = 8
_FEW, _DRAWS = 6, 6
_WORKLOAD = Workload(prompt_tokens=120, new_tokens=128, max_context=512)
_REPEATS, _AT_ONCE = 3, 4
# The interval printed before spread between texts was included, for comparison.
_NARROW = 0.07


@dataclass(frozen=True, slots=True)
class Held:
    """A text's speed compared with a plan's interval, in tokens per second.

    Attributes:
        found: measured speed.
        interval, predicted: the plan's interval and predicted speed.
        texts_alone: the interval without measurement error, which a replay does not have.

    """

    found: float
    interval: tuple[float, float]
    predicted: float
    texts_alone: tuple[float, float] | None = None

    @property
    def inside(self) -> bool:
        """True if it is in the interval."""
        return self.interval[0] <= self.found <= self.interval[1]

    @property
    def inside_texts_alone(self) -> bool | None:
        """True if it is in the interval without measurement error."""
        if self.texts_alone is None:
            return None
        return self.texts_alone[0] <= self.found <= self.texts_alone[1]

    @property
    def near(self) -> bool:
        """True if it is in the narrow interval around the prediction."""
        return abs(self.found / self.predicted - 1) <= _NARROW


def other_texts(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare other texts' speeds with the plan's interval, for the shipped pair."""
    prompts = [*_code(suite.prompts), *_prose(), *_hopeless()]
    profile = _profile(prompts)
    rows = []
    for temperature in TEMPERATURES:
        workload = replace(_WORKLOAD, temperature=temperature)
        rows += [
            _row(name, temperature, held, recorder) for name, held in _replayed(profile, workload)
        ]
    rows += [_row(*found, recorder) for found in _measured(profile, prompts)]
    return rows


def _profile(prompts: Sequence[CalibrationPrompt]) -> Profile:
    """Return a profile of the shipped pair with all the prompts' texts.

    They are recorded in parts, since a profile records as many texts as half a minute allows.
    """
    # One place and a quarter of the plans are enough, since only the texts vary here.
    place = Wanted(formats=("onnx",), threads=(1,))
    first = ProfileOptions(None, place, tuple(prompts[:_AT_ONCE]), refresh=True)
    profile = run.profile("demo", first)
    sources, traces = every_format("demo", None), list(profile.traces)
    for start in range(_AT_ONCE, len(prompts), _AT_ONCE):
        some = prompts[start : start + _AT_ONCE]
        traces += record(sources, profile.measured, some).traces
    return replace(profile, traces=tuple(traces))


def _code(count: int) -> list[CalibrationPrompt]:
    return [CalibrationPrompt(f"{CODE} {p.name}", p.text) for p in heldout_prompts(count)]


def _prose() -> list[CalibrationPrompt]:
    """Return the longest topics of the running interpreter's own help."""
    longest = sorted(topics.topics, key=lambda name: -len(topics.topics[name]))[:_OTHER_KINDS]
    return [CalibrationPrompt(f"{PROSE} {name}", topics.topics[name][:600]) for name in longest]


def _hopeless() -> list[CalibrationPrompt]:
    """Return that prose's words in random order, which cannot be predicted."""
    words = [word for prompt in _prose() for word in prompt.text.split()]
    draw = random.Random(0)
    texts = (" ".join(draw.choices(words, k=60)) for _ in range(_OTHER_KINDS))
    return [CalibrationPrompt(f"{HOPELESS} {number}", text) for number, text in enumerate(texts)]


def _replayed(profile: Profile, workload: Workload) -> Iterator[tuple[str, list[Held]]]:
    """Replay texts in virtual time; yield results by the texts that the plan was made on."""
    code = _names(profile, CODE)
    left_out = []
    for name in code:
        decision = _decide(profile, [one for one in code if one != name], workload)
        left_out.append(_hold(profile, decision, name, workload))
    yield f"code, from the plan of the {len(code) - 1} others", left_out
    draw, few = random.Random(1), []
    for _ in range(_DRAWS):
        own = draw.sample(code, min(_FEW, len(code) - 1))
        decision = _decide(profile, own, workload)
        few += [_hold(profile, decision, name, workload) for name in code if name not in own]
    yield f"code, from plans of {_FEW} others", few
    decision = _decide(profile, code, workload)
    for kind in (PROSE, HOPELESS):
        held = [_hold(profile, decision, name, workload) for name in _names(profile, kind)]
        yield f"{kind}, from the plan of {len(code)} texts of code", held


def _names(profile: Profile, kind: str) -> list[str]:
    names = dict.fromkeys(trace.name for trace in profile.traces)
    return [name for name in names if name.startswith(kind)]


def _only(profile: Profile, names: Sequence[str]) -> Profile:
    return replace(profile, traces=tuple(t for t in profile.traces if t.name in names))


def _decide(profile: Profile, names: Sequence[str], workload: Workload) -> Decision:
    return decide(_only(profile, names), workload, None, predict)


def _hold(profile: Profile, decision: Decision, name: str, workload: Workload) -> Held:
    chosen = decision.chosen
    found = predict(_only(profile, [name]), chosen.plan, workload).tokens_per_second
    rate = chosen.prediction.tokens_per_second
    return Held(found, decision.interval, rate, _texts_alone(decision))


def _texts_alone(decision: Decision) -> tuple[float, float]:
    replayed = [one for one in decision.candidates if one.replayed and not one.refused]
    looked = [WeighedCandidate(one, decision.max_context) for one in replayed]
    (chosen,) = (one for one in looked if one.candidate == decision.chosen)
    return between_texts(chosen, looked).interval(chosen.rate, 0.0)


def _measured(
    profile: Profile, prompts: Sequence[CalibrationPrompt]
) -> Iterator[tuple[str, float, list[Held]]]:
    """Decode texts in real time, alternating with plain decoding, since machines drift.

    A speed is the measured speed-up over plain decoding times plain decoding's predicted speed.
    """
    code = _names(profile, CODE)
    own, others = code[::2], code[1::2]
    decision = _decide(profile, own, _WORKLOAD)
    chosen = decision.chosen
    plain_rate = predict(profile, Plan(chosen.plan.target), _WORKLOAD).tokens_per_second
    kinds = {CODE: others, PROSE: _names(profile, PROSE), HOPELESS: _names(profile, HOPELESS)}
    texts = {prompt.name: prompt.text for prompt in prompts}
    with _open(chosen.plan) as drafting, _open(Plan(chosen.plan.target)) as plain:
        for pipeline in (drafting, plain):
            _tpot_s(pipeline, texts[own[0]])  # warms caches
        for kind, names in kinds.items():
            held = []
            for name in names:
                pairs = [
                    (_tpot_s(plain, texts[name]), _tpot_s(drafting, texts[name]))
                    for _ in range(_REPEATS)
                ]
                gain = median(plain_s / drafted_s for plain_s, drafted_s in pairs)
                rate = chosen.prediction.tokens_per_second
                held.append(Held(plain_rate * gain, decision.interval, rate))
            yield f"measured: {kind}, from the plan of {len(own)} texts of code", 0.0, held


def _open(plan: Plan) -> Pipeline:
    options = placed(OpenOptions(plan="none"), plan, _WORKLOAD.max_context)
    return Pipeline.open("demo", options)


def _tpot_s(pipeline: Pipeline, text: str) -> float:
    options = GenerateOptions(_WORKLOAD.new_tokens, ignore_eos=True)
    return pipeline.generate(text, options).metrics.tpot_s or float("nan")


def _row(name: str, temperature: float, held: Sequence[Held], recorder: Recorder) -> Row:
    for one in held:
        recorder.add(
            kind="text", texts=name, temperature=temperature, found=one.found,
            interval=one.interval, texts_alone=one.texts_alone, predicted=one.predicted,
            inside=one.inside, inside_texts_alone=one.inside_texts_alone,
        )  # fmt: skip
    row: Row = {
        "texts": name,
        "temperature": temperature,
        "level": LEVEL,
        "inside": fmean(one.inside for one in held),
        "inside_texts_alone": None
        if held[0].texts_alone is None
        else fmean(bool(one.inside_texts_alone) for one in held),
        f"within_{_NARROW:.0%}": fmean(one.near for one in held),
        "high_of_low": median(one.interval[1] / one.interval[0] for one in held),
        "count": len(held),
    }
    recorder.add(kind="summary", **row)
    return row
