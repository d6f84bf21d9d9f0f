"""Compares the simulation with measurements: paced devices, and disjoint cores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from statistics import mean, median
from typing import Any

from benchmarks.bundles import Suite
from edgedec.compare.records import Recorder, Row
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.engine import Engine
from edgedec.decoding.session import Model, Session
from edgedec.loading.build import OpenOptions
from edgedec.loading.engine import build_engine, planned_policy
from edgedec.loading.opening import placed
from edgedec.loading.sources import every_format
from edgedec.overlap.clock import WallClock
from edgedec.pipeline import GenerateOptions, Pipeline
from edgedec.planning.predict import contention, tokens_per_second
from edgedec.profiling import run
from edgedec.profiling.opened import opened
from edgedec.profiling.prompts import CalibrationPrompt
from edgedec.profiling.rounds import overheads
from edgedec.profiling.traces import TraceRecorder
from edgedec.records.place import Place
from edgedec.records.plan import OVERLAPPED, Plan
from edgedec.records.profile import Measured, Parity, PassTimes, Profile
from edgedec.records.trace import Trace
from edgedec.replay.run import ReplaySetting, decode, replay
from edgedec.testing.paced import PacedModel

_TOKENS, _CAPACITY = 64, 1024
# A target whose passes take 20 ms, plus 2 ms per row, and drafts at shares of that.
_TARGET_S, _ROW_S = 20e-3, 2e-3
_SHARES = (1 / 8, 1 / 3, 1.0)
_WIDTHS = tuple(range(1, 18))
_TARGET, _DRAFT = Place("paced", "target"), Place("paced", "draft")
_PLANS = (
    Plan(_TARGET),
    Plan(_TARGET, _DRAFT, "model", 3),
    Plan(_TARGET, _DRAFT, "model", None),
    Plan(_TARGET, _DRAFT, "model", 3, schedule=OVERLAPPED),
    Plan(_TARGET, _DRAFT, "model", None, schedule=OVERLAPPED),
)


def simulation_trust(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare simulated with measured tokens per second on the same texts."""
    rows = [*_paced(suite, recorder), *_cores(suite, recorder)]
    return [*rows, *_summaries(rows)]


def _summaries(rows: Sequence[Row]) -> Iterator[Row]:
    for world in dict.fromkeys(row["world"] for row in rows):
        errors = [abs(row["error"]) for row in rows if row["world"] == world]
        yield {
            "world": world,
            "plan": f"all {len(errors)}",
            "median_error": median(errors),
            "largest_error": max(errors),
        }


# -- paced devices: the second device's time does not depend on the cores ----------------------


def _paced(suite: Suite, recorder: Recorder) -> list[Row]:
    rows = []
    with _models() as (target, draft, prompts):
        texts = prompts(suite)
        traces = [_trace(target, draft, name, tokens) for name, tokens in texts]
        costs = _overheads(target, draft, texts[0][1])
        for share in _SHARES:
            pair = _like("target", 1.0, target), _like("draft", share, draft)
            setting = ReplaySetting(*pair, *costs)
            for plan in _PLANS:
                simulated = tokens_per_second(replay(setting, plan, traces, _TOKENS))
                found = _Paced(setting, target, draft).speed(plan, traces)
                row = _row("paced", f"{plan.label}, draft at {share:.2f}", simulated, found)
                recorder.add(kind="trust", share=share, **row)
                rows.append(row)
    return rows


@contextmanager
def _models() -> Iterator[tuple[Model, Model, Any]]:
    """Open the shipped pair, each on one core; yield target, draft and the prompt encoder."""
    sources = every_format("demo", None)
    tokenizer = sources["target"][0].read_tokenizer()

    def prompts(suite: Suite) -> list[tuple[str, list[int]]]:
        return [(name, tokenizer.encode(str(text))) for name, text in suite.code()]

    with ExitStack() as stack:
        models = [
            stack.enter_context(
                opened(sources[role][0].path, Place("onnx", threads=1), 1, batch_invariant=False)
            ).model
            for role in ("target", "draft")
        ]
        yield models[0], models[1], prompts


def _trace(target: Model, draft: Model, name: str, tokens: list[int]) -> Trace:
    with ExitStack() as stack:
        first, second = (_open(stack, model) for model in (target, draft))
        # Measured texts continue past an end token as well.
        tracer = TraceRecorder(first, second, target.info.vocab_size, ())
        return tracer.record(name, tokens, 0.0, _TOKENS)


def _overheads(target: Model, draft: Model, prompt: list[int]) -> tuple[float, float]:
    """Return the time of the Python code, which a second device does not take over."""
    with ExitStack() as stack:
        first, second = (_open(stack, model) for model in (target, draft))
        return overheads(first, second, None, prompt, target.info.vocab_size)


def _open(stack: ExitStack, model: Model) -> Session:
    session = model.open(_CAPACITY)
    stack.callback(session.close)
    return session


def _seconds(share: float, rows: int) -> float:
    return share * (_TARGET_S + _ROW_S * (rows - 1))


def _like(role: str, share: float, model: Model) -> Measured:
    """Return the paced model's measurements as in a profile."""
    info = model.info
    seconds = tuple(_seconds(share, rows) for rows in _WIDTHS)
    return Measured(
        role=role,
        name=info.name,
        place=_TARGET if role == "target" else _DRAFT,
        times=(PassTimes(0, _WIDTHS, seconds, (0.0,) * len(_WIDTHS)),),
        prefill_s=share * _ROW_S,
        launch_s=0.0,
        transfer_s=0.0,
        load_s=0.0,
        rss_bytes=0,
        weight_bytes=info.weight_bytes,
        kv_bytes_per_token=info.kv_bytes_per_token,
        max_context=info.max_context,
        vocab_size=info.vocab_size,
        row_widths=None,
        branches=model.capabilities.branches,
        parity=Parity(1.0, 0.0, usable=True),
        steady=True,
    )


@dataclass(slots=True)
class _Paced:
    """The real loop in real time, over models paced to the setting."""

    setting: ReplaySetting
    target: Model
    draft: Model

    def speed(self, plan: Plan, traces: Sequence[Trace]) -> float:
        """Return tokens per second of texts decoded one after the other, as in a pipeline."""
        with ExitStack() as stack:
            engine = self._engine(plan, stack)
            vocab_size = self.target.info.vocab_size
            return tokens_per_second(
                [decode(engine, trace, vocab_size, _TOKENS)[1] for trace in traces]
            )

    def _engine(self, plan: Plan, stack: ExitStack) -> Engine:
        clock, share = WallClock(), _share(self.setting)
        # Not closed with their sessions: the models belong to the caller.
        target = PacedModel(self.target, lambda rows, context: _seconds(1.0, rows), clock)
        draft = PacedModel(self.draft, lambda rows, context: _seconds(share, rows), clock)
        session = _open(stack, target)
        drafts = None if plan.plain else draft.open(_CAPACITY)
        parts = DrafterParts(self.target.info.vocab_size, drafts)
        policy = planned_policy(plan, self.setting.target.times[0].curve, _seconds(share, 1))
        engine = build_engine(plan, session, parts, clock, policy=policy)
        stack.callback(engine.drafter.close)
        return engine


def _share(setting: ReplaySetting) -> float:
    assert setting.draft is not None, "every paced setting has one"
    return setting.draft.times[0].seconds[0] / _TARGET_S


# -- disjoint cores: two workers that share memory and caches -----------------------------------


def _cores(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare plans of the shipped pair with a core set for each model."""
    texts = [text for _, text in suite.code()]
    found = tuple(CalibrationPrompt(name, str(text)) for name, text in suite.code())
    options = run.ProfileOptions(prompts=found, refresh=True)
    profile = run.profile("demo", options)
    rows = []
    for plan in _apart(profile):
        setting = ReplaySetting(
            profile.at("target", plan.target),
            None if plan.draft is None else profile.at("draft", plan.draft),
            profile.overhead_s,
            profile.draft_overhead_s,
            contention(profile, plan),
        )
        greedy = [trace for trace in profile.traces if trace.temperature == 0]
        simulated = tokens_per_second(replay(setting, plan, greedy, _TOKENS))
        row = _row("cores", plan.label, simulated, _measure(plan, [str(text) for text in texts]))
        recorder.add(kind="trust", **row)
        rows.append(row)
    return rows


def _apart(profile: Profile) -> Iterator[Plan]:
    for target in profile.of("target"):
        for draft in profile.of("draft"):
            if target.place.device == "cpu" and target.place.apart_from(draft.place):
                plan = Plan(target.place, draft.place, "model", None)
                yield Plan(target.place)
                for one in (plan, replace(plan, draft_length=3)):
                    yield one
                    yield replace(one, schedule=OVERLAPPED)


def _measure(plan: Plan, texts: Sequence[str]) -> float:
    options = GenerateOptions(_TOKENS, ignore_eos=True)
    opening = placed(OpenOptions(batch_invariant=False, plan="none"), plan, _CAPACITY)
    with Pipeline.open("demo", opening) as pipeline:
        pipeline.generate(texts[-1], GenerateOptions(16, ignore_eos=True))  # warms caches
        return 1 / mean(pipeline.generate(text, options).metrics.tpot_s for text in texts)


def _row(world: str, plan: str, predicted: float, measured: float) -> Row:
    return {
        "world": world,
        "plan": plan,
        "predicted": predicted,
        "measured": measured,
        "error": predicted / measured - 1,
    }
