"""Compares overlapped with sequential drafting, on a second device and on shared cores.

Target and draft are grown so that a draft pass costs about a third of the target's. The baseline
uses all cores for both models in turn: the draft model at its best fixed length, and with prompt
lookup if the policy decides. The second device is simulated: the shipped draft, which computes
exactly the same function as its grown form, paced to a third of the target's time without using the
processor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.bundles import GROWN, Suite
from edgedec.compare.interleaved import Candidate, Comparison, compare
from edgedec.compare.records import Recorder, Row
from edgedec.decoding import policy
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.policy import CostCurve
from edgedec.decoding.sampling import SamplingParams
from edgedec.hardware.clock import WallClock
from edgedec.hardware.device import available_cores
from edgedec.loading.build import OpenOptions
from edgedec.loading.engine import build_engine
from edgedec.loading.sources import Models
from edgedec.pipeline import GenerateOptions, Generation, Pipeline, Prompt
from edgedec.records.load import LoadOptions
from edgedec.records.place import Place
from edgedec.records.plan import OVERLAPPED, Plan
from edgedec.runtimes import registry
from edgedec.testing.paced import PacedModel

DRAFT = "draft-150m"
_LENGTHS = (1, 2, 3, 4)
_DRAFTERS = (("model",), ("model", "hybrid", "adaptive"))
_TOKENS = 128
_SHARE, _MORE = 1 / 3, 0.15
_PACED = Place("onnx", device="paced")


@dataclass(frozen=True, slots=True)
class ModelAlone:
    """A pipeline that drafts with the draft model only; without a length its policy decides."""

    pipeline: Pipeline
    length: int | None

    def generate(self, prompt: Prompt, options: GenerateOptions | None = None) -> Generation:
        options = options or GenerateOptions()
        return self.pipeline.generate(
            prompt, replace(options, drafter="model", draft_length=self.length)
        )


def overlap(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare overlapped with sequential decoding: paced second device, two shared cores."""
    return _race(suite, recorder, SamplingParams())


def overlap_sampled(suite: Suite, recorder: Recorder) -> list[Row]:
    """Repeat ``overlap`` at temperature 0.8 with a seed, where the text repeats itself less."""
    return _race(suite, recorder, SamplingParams(temperature=0.8, seed=0))


def _race(suite: Suite, recorder: Recorder, sampling: SamplingParams) -> list[Row]:
    bundle = suite.bundles.bundle("int4", target=GROWN, draft=DRAFT)
    options = GenerateOptions(_TOKENS, sampling, ignore_eos=True)
    with ExitStack() as stack:

        def enter(**chosen: Any) -> Pipeline:
            chosen = {"threads": suite.threads, "drafter": "hybrid", "plan": "none", **chosen}
            return stack.enter_context(Pipeline.open(bundle, OpenOptions(**chosen)))

        plain = enter(drafter="none", batch_invariant=False)
        curve = policy.calibrate(plain.engine.target)
        worlds = {"sequential": enter()}
        worlds["paced"] = stack.enter_context(_beside(suite, bundle, curve))
        if available_cores() > 1:
            worlds["shared"] = enter(**_shared())
        entrants: dict[str, Candidate[Prompt]] = {"plain": plain}
        entrants["sequential adaptive auto"] = enter(drafter="adaptive")
        for world, pipeline in worlds.items():
            entrants[f"{world} hybrid auto"] = pipeline
            for length in (None, *_LENGTHS):
                entrants[f"{world} model {length or 'auto'}"] = ModelAlone(pipeline, length)
        found = compare(entrants, suite.code(), options, recorder)
    rows = found.rows()
    for world in worlds:
        if world != "sequential":
            rows += [_verdict(world, drafters, found) for drafters in _DRAFTERS]
    return recorder.table(rows, "row")


def _shared() -> dict[str, Any]:
    """Return options with which the last core drafts and the others verify."""
    last = available_cores() - 1
    return {
        "schedule": OVERLAPPED,
        "threads": last,
        "cores": tuple(range(last)),
        "draft_load": LoadOptions(threads=1, cores=(last,)),
    }


def _paced_s(curve: CostCurve, rows: int) -> float:
    return _SHARE * curve.at(1) * (1 + _MORE * (rows - 1))


@contextmanager
def _beside(suite: Suite, bundle: Path, curve: CostCurve) -> Iterator[Pipeline]:
    """Open the target on all cores, and a draft that uses none of them."""
    small = suite.bundles.bundle("int4", target=GROWN)
    clock = WallClock()
    with ExitStack() as stack:
        pipeline = stack.enter_context(
            Pipeline.open(bundle, OpenOptions(plan="none", drafter="none", threads=suite.threads))
        )
        (source,) = Models.find(small, None).sources["draft"]
        load = Place(source.format, threads=1).load_options(batch_invariant=False)
        own = registry.load(source.format, source.path, load)
        stack.callback(own.close)
        draft = PacedModel(own, lambda rows, context: _paced_s(curve, rows), clock)
        vocab_size, target = pipeline.target.info.vocab_size, pipeline.engine.target
        pipeline.engine = build_engine(
            Plan(Place(pipeline.pair.target.format), _PACED, "hybrid", None, schedule=OVERLAPPED),
            target,
            DrafterParts(vocab_size, draft.open(target.capacity)),
            clock,
            policy=policy.MeasuredCost(policy.calibrate(target)),
        )
        stack.callback(pipeline.engine.drafter.close)
        paced_s = _paced_s(curve, 1)
        pipeline.plan |= {"drafter": "hybrid", "schedule": OVERLAPPED, "paced_s": paced_s}
        yield pipeline


def _verdict(world: str, drafters: Sequence[str], found: Comparison) -> Row:
    """Return best overlapped over best sequential of these drafters."""

    def best(kind: str) -> tuple[float, str]:
        names = (name for name in found.tpot_s if name.split()[0] == kind)
        of_these = [name for name in names if name.split()[1] in drafters]
        return max((found.speedup(name), name) for name in of_these)

    sequential, overlapped = max((1.0, "plain"), best("sequential")), best(world)
    return {
        "world": world,
        "drafters": " or ".join(drafters),
        "sequential": sequential[1],
        "overlapped": overlapped[1],
        "ratio": overlapped[0] / sequential[0],
    }
