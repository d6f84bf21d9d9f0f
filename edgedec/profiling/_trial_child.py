"""Decodes texts with several plans in turns, in the child process of ``trial``."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Any

from edgedec._support import _sandbox_child
from edgedec._support.fields import from_json, one_line, to_json
from edgedec.decoding import drafting
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.engine import Engine
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import DraftPolicy, RoundRecord
from edgedec.decoding.request import Request
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.decoding.session import HeadModel, Model
from edgedec.decoding.stopping import NoText, StopRule
from edgedec.decoding.translation import Translation
from edgedec.errors import EdgedecError, ProfileError
from edgedec.hardware.clock import Clock, WallClock
from edgedec.loading.engine import build_engine
from edgedec.loading.sources import Models, Source
from edgedec.profiling.children import DRAFT, HEAD, TARGET
from edgedec.profiling.trial import Began, Outcome, TrialJob, Turn, limit_s, results, whole
from edgedec.records.place import Place
from edgedec.records.plan import Plan
from edgedec.records.rounds import DrafterRounds, Drafts, SurvivalEstimate
from edgedec.text.vocabulary_map import translate

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
        head: of the head, or of the draft model.

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
    models = Models.find(job.bundle, job.draft_model)
    return to_json(decode(job, models.sources, WallClock()))


def decode(job: TrialJob, sources: Mapping[str, Sequence[Source]], clock: Clock) -> Outcome:
    """Decode every text with every plan in turns; see ``TrialJob``."""
    stage = _Stage(job, sources, clock)
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


@dataclass(slots=True)
class _Engines:
    """The engines of one repetition, by their plans' numbers; the stack closes their sessions."""

    stack: ExitStack
    by_plan: dict[int, tuple[Engine, Model]] = field(default_factory=dict)


class _Stage:
    """The models of all plans, and the engines that decode with them.

    Attributes:
        failed: why each plan failed, by its number.
        texts: the texts that each plan decoded.
        late: the first turn for which no time was left.

    """

    def __init__(
        self, job: TrialJob, sources: Mapping[str, Sequence[Source]], clock: Clock
    ) -> None:
        self.failed = dict(job.failed)
        self.texts: dict[int, list[Recorded]] = defaultdict(list)
        self.late: Began | None = None
        self._job, self._sources, self._clock = job, sources, clock
        self._ends_s = clock.now() + _ENDS * limit_s(job)
        self._models: dict[tuple[str, Place, bool | None], Model] = {}
        # Policies that have measured passes and learned nothing yet, by what determines those.
        self._policies: dict[tuple[object, ...], DraftPolicy] = {}
        self._translations: dict[tuple[str, str], Translation | None] = {}
        self._capacity = max(map(len, job.prompts)) + job.new_tokens + _SLACK
        self._stack = ExitStack()

    def repeat(self, plans: Sequence[int], repetition: int) -> Iterator[Turn]:
        """Decode all texts once with every plan that has not failed, until the time is up."""
        texts = range(len(self._job.prompts))
        if self._job.together:
            with ExitStack() as stack:
                engines = _Engines(stack)
                for text in texts:
                    # Every other text runs in reverse: no plan always follows the same one.
                    for plan in plans if (text + repetition) % 2 == 0 else plans[::-1]:
                        yield from self._turn(Began(plan, text, repetition), engines)
            return
        for plan in plans:
            try:
                with ExitStack() as stack:
                    engines = _Engines(stack)
                    for text in texts:
                        yield from self._turn(Began(plan, text, repetition), engines)
            finally:
                self.close()

    def _turn(self, turn: Began, engines: _Engines) -> Iterator[Turn]:
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
            if plan not in engines.by_plan:
                engines.by_plan[plan] = self._engine(self._job.plans[plan], engines.stack)
                self._decode(*engines.by_plan[plan], prompt, _WARM)
            found = self._decode(*engines.by_plan[plan], prompt, self._job.new_tokens)
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
        """Close all models."""
        self._stack.close()
        self._models.clear()

    def _engine(self, plan: Plan, stack: ExitStack) -> tuple[Engine, Model]:
        """Return a new engine over new sessions, which the stack closes, and its target."""
        info = drafting.info(plan.drafter)
        target = self._model(TARGET, plan.target, False if info.needs_branches else None)
        session = target.open(min(self._capacity, target.info.max_context))
        stack.callback(session.close)
        draft = own = translation = mask = None
        if plan.draft is not None:
            mask = self._source(DRAFT, plan.draft).mask
            draft = self._model(DRAFT, plan.draft, False)
            # A text may have more tokens in another vocabulary.
            own = draft.open(min(2 * self._capacity, draft.info.max_context))
            stack.callback(own.close)
            translation = self._translation(plan, target, draft)
        parts = DrafterParts(
            target.info.vocab_size,
            own,
            branches=target.capabilities.drafted_branches,
            translation=translation,
            draft_branches=draft.capabilities.branches if draft else None,
            mask=mask,
        )
        if info.needs_head:
            parts = self._with_head(parts, plan, session.capacity, stack)
        # Plans that run the same models draft by the same pass times, which are measured once.
        costs = (
            plan.target,
            info.needs_branches,
            plan.draft,
            plan.draft_length,
            plan.depth,
            plan.plain,
        )
        known = copy.deepcopy(self._policies.get(costs))
        engine = build_engine(plan, session, parts, self._clock, policy=known)
        stack.callback(engine.drafter.close)
        self._policies.setdefault(costs, copy.deepcopy(engine.policy))
        return engine, target

    def _decode(
        self, engine: Engine, target: Model, prompt: Sequence[int], new_tokens: int
    ) -> Recorded:
        info = target.info
        params = SamplingParams(temperature=self._job.temperature, seed=_SEED)
        sampler = Sampler(params, info.vocab_size, prompt, coupled=engine.rule.coupled)
        limit = min(new_tokens, engine.room(prompt))
        stop = StopRule(eos_ids=info.eos_ids, max_new_tokens=limit, stream=NoText())
        metrics = Recorded()
        for _ in engine.run(Request(prompt, sampler, stop), metrics):
            pass
        return metrics

    def _model(self, role: str, place: Place, batch_invariant: bool | None) -> Model:
        """Return a loaded model; plans at one place share it."""
        key = role, place, batch_invariant
        if key not in self._models:
            options = place.load_options(batch_invariant=batch_invariant)
            self._models[key] = self._source(role, place).load(options)
            self._stack.callback(self._models[key].close)
        return self._models[key]

    def _with_head(
        self, parts: DrafterParts, plan: Plan, capacity: int, stack: ExitStack
    ) -> DrafterParts:
        """Return the parts with the target's head and a session of it."""
        head = self._model(HEAD, plan.target, None)
        assert isinstance(head, HeadModel), "its role is a head's"
        own = head.open(min(capacity, head.info.max_context))
        stack.callback(own.close)
        return replace(parts, head=head, head_session=own)

    def _source(self, role: str, place: Place) -> Source:
        return next(one for one in self._sources[role] if one.format == place.format)

    def _translation(self, plan: Plan, target: Model, draft: Model) -> Translation | None:
        """Return the translation between the vocabularies; None if they are identical."""
        assert plan.draft is not None
        key = plan.target.format, plan.draft.format
        if key not in self._translations:
            found = translate(
                self._source(TARGET, plan.target).read_tokenizer(),
                self._source(DRAFT, plan.draft).read_tokenizer(),
                target_columns=target.info.vocab_size,
                draft_columns=draft.info.vocab_size,
            )
            self._translations[key] = None if found.untouched else found
        return self._translations[key]


if __name__ == "__main__":
    _sandbox_child.serve(main)
