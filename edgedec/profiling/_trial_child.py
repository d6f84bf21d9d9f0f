"""Decodes texts with several plans in turns, in the child process of ``trial``."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from statistics import fmean, median
from typing import Any, TypeVar

from edgedec._support import _sandbox_child
from edgedec._support.fields import from_json, one_line, to_json
from edgedec.decoding import drafting
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import DraftPolicy, RoundRecord
from edgedec.decoding.request import Request
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.decoding.session import Model
from edgedec.decoding.stopping import NoText, StopRule
from edgedec.errors import EdgedecError, ProfileError
from edgedec.hardware.clock import Clock, WallClock
from edgedec.loading.build import Loader, OpenPair, assemble
from edgedec.loading.opening import placed
from edgedec.loading.options import OpenOptions
from edgedec.loading.sources import Models, Source
from edgedec.profiling.trial import Outcome, TrialJob, Turn, TurnKey, limit_s, results, whole
from edgedec.records.load import LoadOptions
from edgedec.records.plan import Plan
from edgedec.records.rounds import DrafterRounds, Drafts, SurvivalEstimate

T = TypeVar("T")
_PAUSED = 2.0


class Recorded(Metrics):
    """Metrics of one text that keep the record of every round and its seconds."""

    __slots__ = ("rounds",)

    def __init__(self) -> None:
        super().__init__()
        self.rounds: list[tuple[RoundRecord, float]] = []

    def observe(self, record: RoundRecord, total_s: float, lone_row_s: float | None = None) -> None:
        super().observe(record, total_s, lone_row_s)
        self.rounds.append((record, total_s))

    def calm_tpot_s(self) -> float:
        """Return the seconds per token after the first round, without pauses of the machine.

        A round that took more than twice the median of the rounds of its width was interrupted,
        and counts with that median.
        """
        after = self.emitted - self.first_round
        seconds = 0.0
        for times in self.round_times.by_rows.values():
            usual = median(times)
            seconds += sum(usual if time > _PAUSED * usual else time for time in times)
        return seconds / after if after else 0.0


def averages(plan: Plan, temperature: float, texts: Sequence[Recorded]) -> DrafterRounds | None:
    """Return averages of a plan's rounds; None if it had none."""
    records = [record for text in texts for record, _ in text.rounds]
    if not records:
        return None
    # A text's first round includes prefill.
    outside = [_outside(*one) for text in texts for one in text.rounds[1:]]
    return DrafterRounds(
        drafter=plan.drafter,
        draft_length=plan.draft_length,
        temperature=temperature,
        rounds=len(records),
        tokens=fmean(record.emitted for record in records),
        rows=fmean(record.rows for record in records),
        draft_passes=fmean(record.depth * _by_weights(record) for record in records),
        overhead_s=max(0.0, median(outside)) if outside else 0.0,
        drafts=_by_source(records, plan.draft_length or 0),
    )


def _by_source(records: Sequence[RoundRecord], length: int) -> tuple[Drafts, ...]:
    found = []
    for source in sorted({record.source for record in records if record.drafted and length}):
        estimate = SurvivalEstimate(source, length)
        for record in records:
            own = record.source == source
            estimate.observe(record.drafted * own, record.depth * own, record.accepted * own)
        found.append(estimate.drafts)
    return tuple(found)


def _by_weights(record: RoundRecord) -> bool:
    return record.drafted > 0 and drafting.info(record.source).needs_weights


def _outside(record: RoundRecord, total_s: float) -> float:
    """Return a round's seconds outside both models."""
    return total_s - record.target_s - (record.draft_s if _by_weights(record) else 0.0)


def draft_token_s(texts: Iterable[Recorded], *, head: bool) -> float:
    """Return the median seconds that a draft model or a head took for a token; 0 if none drafted.

    Args:
        texts: as they were decoded.

    """
    rounds = (record for text in texts for record, _ in text.rounds[1:] if _by_weights(record))
    own = (record for record in rounds if drafting.info(record.source).needs_head == head)
    found = [record.draft_s / record.depth for record in own]
    return median(found) if found else 0.0


# Room for drafted tokens after the end of a text, and tokens of the text that warms caches.
_SLACK, _WARM = 64, 8
_SEED = 20260101
# Share of a trial's time after which no turn begins; the rest is left for the running turn.
_ENDS = 0.75


def main(task: Mapping[str, Any]) -> Any:
    """Run a ``TrialJob`` and return an ``Outcome``."""
    job = from_json(TrialJob, task, "job", ProfileError)
    return to_json(decode(job, Models.find(job.bundle, job.draft_model), WallClock()))


def decode(job: TrialJob, models: Models, clock: Clock) -> Outcome:
    """Decode every text with every plan in turns; see ``TrialJob``."""
    stage = _Stage(job, models, clock)
    started = clock.now()
    turns: list[Turn] = []
    going = list(range(len(job.plans)))
    try:
        for repetition in range(job.most):
            if repetition >= job.fewest and clock.now() - started > job.budget_s:
                break
            turns += stage.repeat(going, repetition)
            turns = [turn for turn in turns if str(turn.plan) not in stage.failed]
            if stage.late is not None:
                turns = whole(job, turns, stage.late)
                break
            going = _going_on(job, turns)
            if not going:
                turns = []
                break
    finally:
        stage.close()
    every = [text for texts in stage.texts.values() for text in texts]
    return Outcome(
        tuple(turns),
        tuple(
            averages(plan, job.temperature, stage.texts[number])
            for number, plan in enumerate(job.plans)
        ),
        draft_token_s(every, head=False),
        stage.failed,
        draft_token_s(every, head=True),
    )


def _going_on(job: TrialJob, turns: Sequence[Turn]) -> list[int]:
    """Return the numbers of the first plain plan and the best others; none without a plain one."""
    plain = min((turn.plan for turn in turns if job.plans[turn.plan].plain), default=None)
    if plain is None:
        return []
    found = results(job.plans, turns)
    others = sorted((one for one in found if one != plain), key=lambda one: -found[one].speedup)
    return sorted([plain, *others[: job.finalists - 1]])


class _Shared(Loader):
    """Loads each model, tokenizer and translation once, for all plans that use it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._found: dict[tuple[Any, ...], Any] = {}
        self._stack = ExitStack()
        # Policies that have measured passes and learned nothing yet, by what determines those.
        self._policies: dict[tuple[object, ...], DraftPolicy] = {}

    def once(self, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        if key not in self._found:
            self._found[key] = make()
        found: T = self._found[key]
        return found

    def load(self, source: Source, options: LoadOptions, for_draft: Sequence[str] = ()) -> Model:
        key = source.role, source.path, source.format, options
        return self.once(key, lambda: self._loaded(source, options, for_draft))

    def _loaded(self, source: Source, options: LoadOptions, for_draft: Sequence[str]) -> Model:
        model = super().load(source, options, for_draft)
        self._stack.callback(model.close)
        return model

    def close(self, model: Model) -> None:
        """Keep it for the other plans."""

    def policy(self, plan: Plan) -> DraftPolicy | None:
        return copy.deepcopy(self._policies.get(_costs(plan)))

    def measured(self, plan: Plan, policy: DraftPolicy) -> None:
        """Keep what the policy of a new engine has measured."""
        self._policies.setdefault(_costs(plan), copy.deepcopy(policy))

    def close_all(self) -> None:
        self._stack.close()
        self._found.clear()


def _costs(plan: Plan) -> tuple[object, ...]:
    """Return what determines the pass times by which a plan drafts."""
    branches = drafting.info(plan.drafter).needs_branches
    return plan.target, branches, plan.draft, plan.draft_length, plan.depth, plan.plain


class _Stage:
    """The models of all plans, and the engines that decode with them.

    Attributes:
        failed: why each plan failed, by its number.
        texts: the texts that each plan decoded.
        late: the first turn for which no time was left.

    """

    def __init__(self, job: TrialJob, models: Models, clock: Clock) -> None:
        self.failed = dict(job.failed)
        self.texts: dict[int, list[Recorded]] = defaultdict(list)
        self.late: TurnKey | None = None
        self._job, self._models, self._clock = job, models, clock
        self._ends_s = clock.now() + _ENDS * limit_s(job)
        self._shared = _Shared(clock)
        self._capacity = max(map(len, job.prompts)) + job.new_tokens + _SLACK

    def repeat(self, plans: Sequence[int], repetition: int) -> Iterator[Turn]:
        """Decode all texts once with every plan that has not failed, until the time is up."""
        texts = range(len(self._job.prompts))
        if self._job.together:
            with ExitStack() as stack:
                opened: dict[int, OpenPair] = {}
                for text in texts:
                    # Every other text runs in reverse: no plan always follows the same one.
                    for plan in plans if (text + repetition) % 2 == 0 else plans[::-1]:
                        yield from self._turn(TurnKey(plan, text, repetition), opened, stack)
            return
        for plan in plans:
            try:
                with ExitStack() as stack:
                    opened = {}
                    for text in texts:
                        yield from self._turn(TurnKey(plan, text, repetition), opened, stack)
            finally:
                self.close()

    def _turn(self, turn: TurnKey, opened: dict[int, OpenPair], stack: ExitStack) -> Iterator[Turn]:
        """Decode one text with one plan, unless that plan failed or the time is up."""
        plan, failed = turn.plan, str(turn.plan) in self.failed
        if failed or self.late is not None or not self._any_plain():
            return
        if self._clock.now() > self._ends_s:
            self.late = turn
            return
        _sandbox_child.report(to_json(turn))
        prompt = self._job.prompts[turn.text]
        try:
            if plan not in opened:
                opened[plan] = self._open(self._job.plans[plan])
                stack.callback(opened[plan].close)
                self._decode(opened[plan], prompt, _WARM)
            found = self._decode(opened[plan], prompt, self._job.new_tokens)
        except EdgedecError as error:
            self.failed[str(plan)] = one_line(str(error))
            _sandbox_child.report({"failed": self.failed})
            return
        self.texts[plan].append(found)
        ended = Turn(
            plan, turn.text, turn.repetition,
            found.calm_tpot_s(), found.emitted, found.target_passes,
        )  # fmt: skip
        _sandbox_child.report(to_json(ended))
        yield ended

    def _any_plain(self) -> bool:
        """Return whether a plain plan is left; nothing can be compared without one."""
        plans = enumerate(self._job.plans)
        return any(plan.plain and str(number) not in self.failed for number, plan in plans)

    def close(self) -> None:
        self._shared.close_all()

    def _open(self, plan: Plan) -> OpenPair:
        """Open new sessions for a plan, as ``Pipeline.open`` does, over models that are shared."""
        opened = assemble(self._models, placed(OpenOptions(), plan, self._capacity), self._shared)
        self._shared.measured(plan, opened.engine.policy)
        return opened

    def _decode(self, opened: OpenPair, prompt: Sequence[int], new_tokens: int) -> Recorded:
        info, engine = opened.target.info, opened.engine
        params = SamplingParams(temperature=self._job.temperature, seed=_SEED)
        sampler = Sampler(params, info.vocab_size, prompt, coupled=engine.rule.coupled)
        limit = min(new_tokens, engine.room(prompt))
        stop = StopRule(eos_ids=info.eos_ids, max_new_tokens=limit, stream=NoText())
        metrics = Recorded()
        for _ in engine.run(Request(prompt, sampler, stop), metrics):
            pass
        return metrics


if __name__ == "__main__":
    _sandbox_child.serve(main)
