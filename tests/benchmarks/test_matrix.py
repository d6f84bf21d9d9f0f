"""The matrix: it holds for the real engine, and each column sees what it is for.

Every twin is wrong under speculation alone: plain decoding, which proposes nothing, stays right.
"""

import json
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import kinds
import numpy as np
import pytest

from benchmarks.certificate import matrix as matrix_module
from benchmarks.certificate.matrix import verify_matrix
from edgedec.decoding import drafting, engine
from edgedec.decoding.acceptance import (
    GumbelCoupling,
    SampleAndMatch,
    SpeculativeSampling,
    Verdict,
)
from edgedec.decoding.engine import Engine
from edgedec.decoding.randomness import Purpose
from edgedec.decoding.sampling import SamplingParams, filters
from edgedec.decoding.sampling.rows import Rows
from edgedec.decoding.sampling.state import Penalties
from edgedec.decoding.session import Want
from edgedec.decoding.stopping import StopRule
from edgedec.decoding.tree import Draft
from edgedec.generation.result import Generation
from edgedec.grammar.matching import GrammarConstraint
from edgedec.loading.build import OpenOptions
from edgedec.pipeline import GenerateOptions, Pipeline
from edgedec.runtimes.onnx.session import OnnxSession
from edgedec.verify.results import Verification
from edgedec.verify.same_texts import plainly

PROMPTS = [("sum", "def add("), ("fox", "The quick brown")]
ASKED = GenerateOptions(24, SamplingParams(temperature=0.8, seed=0), ignore_eos=True)
# Those of a pair without a head that ``auto`` does not stand for.
NAMED = {
    name
    for name in {*drafting.names()} - {"none", "hybrid", "parallel", "strings"}
    if not drafting.info(name).needs_head
}
Patch = pytest.MonkeyPatch
SAMPLED = {"sampled", "hot", "top-k", "top-p", "min-p", "presence penalty", "logit bias"}


def matrix(bundle: Path, **changes: Any) -> Verification:
    return verify_matrix(bundle, PROMPTS, ASKED, options=OpenOptions(**changes))


def failing(found: Verification) -> set[str]:
    """Cases, in whatever way, that differ by more than a near-tie."""
    assert not found.holds
    return {one.case for one in found.divergences if not one.near_tie}


@dataclass(frozen=True)
class Run:
    """A matrix of the real engine, and all the texts that were decoded for it."""

    found: Verification
    texts: list[tuple[GenerateOptions, Generation]]


@pytest.fixture(scope="module")
def honest(bundle) -> Run:
    texts = []
    real = Pipeline.generate

    def generate(self: Pipeline, prompt: Any, options: GenerateOptions) -> Generation:
        texts.append((options, real(self, prompt, options)))
        return texts[-1][1]

    with Patch.context() as patch:
        patch.setattr(Pipeline, "generate", generate)
        return Run(matrix(bundle), texts)


def test_the_real_engine_holds(honest: Run) -> None:
    found = honest.found
    assert found.holds
    assert found.total("identical") == found.total("texts") > 100
    ways = {row.way for row in found.rows}
    assert ways >= {"auto", "auto, lengths by cost", "auto, --accept match", *NAMED}
    first = [row for row in found.rows if row.way == "auto"]
    assert {row.case for row in first if not row.accepted_tokens} == {"one token"}
    assert {"JSON", "JSON schema", "regular expression"} <= {row.case for row in first}
    assert all("JSON schema" in {row.case for row in found.rows if row.way == way} for way in NAMED)


def test_what_ends_a_text_really_does(honest: Run) -> None:
    seen: dict[str, set[str]] = {}
    for options, result in honest.texts:
        if options.stop:
            seen.setdefault("stop", set()).add(result.finish_reason)
            assert not any(stop in result.text for stop in options.stop)
        elif not options.ignore_eos and options.constraint is None:
            seen.setdefault("eos", set()).add(result.finish_reason)
            assert 1 < len(result.events) < 24
    assert seen == {"stop": {"stop"}, "eos": {"eos"}}


def test_constrained_cases_follow_their_grammar(honest: Run) -> None:
    texts: dict[str, set[str]] = {}
    for options, result in honest.texts:
        if options.constraint is not None:
            texts.setdefault(options.constraint.kind, set()).add(result.text)
    assert all(text.startswith("{") for text in texts["JSON schema"])
    assert all(re.match("[a-z_]{2}", text) for text in texts["regular expression"])


def penalties_are_for_the_first_row(patch: Patch) -> None:
    real = Penalties.applied

    def applied(self: Penalties, row: Any, path: Any) -> Any:
        return row.copy() if len(path) else real(self, row, path)

    patch.setattr(Penalties, "applied", applied)


def penalties_forget_the_path(patch: Patch) -> None:
    """Drafted tokens do not count for the penalties of those after them."""
    real = Penalties.applied
    patch.setattr(Penalties, "applied", lambda self, row, path: real(self, row, []))


def bias_is_for_the_first_row(patch: Patch) -> None:
    real = Penalties.applied

    def applied(self: Penalties, row: Any, path: Any) -> Any:
        return row.copy() if len(path) and not self._active else real(self, row, path)

    patch.setattr(Penalties, "applied", applied)


def filter_is_for_the_first_row(**without: Any) -> Callable[[Patch], None]:
    """A filter that rows after drafted tokens go without."""

    def apply(patch: Patch) -> None:
        scores, survivors, after = Rows._scores, filters.survivors, [False]

        def marked(self: Rows, node: int) -> Any:
            after[0] = node > 0
            return scores(self, node)

        def weakened(row: Any, params: SamplingParams) -> Any:
            return survivors(row, replace(params, **without) if after[0] else params)

        patch.setattr(Rows, "_scores", marked)
        patch.setattr(filters, "survivors", weakened)

    return apply


def accepts_one_more(rule: type, *, cold: bool) -> Callable[[Patch], None]:
    """A token that the draft likes and the target did not choose."""

    def apply(patch: Patch) -> None:
        real = rule.accept  # type: ignore[attr-defined]

        def accept(self: Any, draft: Draft, rows: Rows, streams: Any) -> Verdict:
            verdict: Verdict = real(self, draft, rows, streams)
            children = draft.tree.children(verdict.path[-1])
            if not children or cold != rows._sampler.params.greedy:
                return verdict
            path = [*verdict.path, children[0]]
            return Verdict(path, rows.draw(path[-1]))

        patch.setattr(rule, "accept", accept)

    return apply


def ends_late(reason: str) -> Callable[[Patch], None]:
    """What ends a text is noticed when the round is over, with all its tokens in the text."""

    def apply(patch: Patch) -> None:
        real = StopRule.cut

        def cut(self: StopRule, tokens: Any) -> Any:
            kept, texts = real(self, tokens)
            late = list(tokens[len(kept) :]) if self.reason == reason else []
            return [*kept, *late], [*texts, *("" for _ in late)]

        def pushed(self: GrammarConstraint, tokens: Any) -> None:
            with suppress(ValueError):  # that a grammar would refuse what comes late
                push(self, tokens)

        push = GrammarConstraint.push
        patch.setattr(GrammarConstraint, "push", pushed)
        patch.setattr(StopRule, "cut", cut)

    return apply


def stops_late_in_the_text(patch: Patch) -> None:
    """The tokens are right; the stop string stays in the text after an accepted draft."""
    real = StopRule.cut

    def cut(self: StopRule, tokens: Any) -> Any:
        kept, texts = real(self, tokens)
        if self.reason == "stop" and len(tokens) > 1:
            texts[-1] += self._stops[0]
            self._pieces[-1] += self._stops[0]
        return kept, texts

    patch.setattr(StopRule, "cut", cut)


def always_ends_at_eos(patch: Patch) -> None:
    """An end-of-text token among several ends the text, also where it is to be ignored."""
    real, stream, eos = StopRule.cut, Pipeline.stream, set[int]()

    def opened(self: Pipeline, *args: Any, **named: Any) -> Any:
        eos.update(self.target.info.eos_ids)
        return stream(self, *args, **named)

    def cut(self: StopRule, tokens: Any) -> Any:
        first = next((i for i, token in enumerate(tokens) if token in eos), None)
        if len(tokens) == 1 or first is None:
            return real(self, tokens)
        found = real(self, tokens[: first + 1])
        self.reason = "eos"
        return found

    patch.setattr(Pipeline, "stream", opened)
    patch.setattr(StopRule, "cut", cut)


def drafts_past_the_limit(patch: Patch) -> None:
    """Tokens beyond max_new_tokens are drafted, accepted and kept."""
    patch.setattr(Engine, "_limits", lambda self, wanted, stop, ahead: wanted)
    for cold in (True, False):
        accepts_one_more(GumbelCoupling, cold=cold)(patch)
    ends_late("length")(patch)


def logprobs_of_another_row(patch: Patch) -> None:
    real = engine._emissions

    def emissions(kept: Any, texts: Any, verdict: Verdict, rows: Rows, logprobs: Any) -> Any:
        path = [verdict.path[0], *verdict.path[:-1]]
        return real(kept, texts, Verdict(path, verdict.next_token), rows, logprobs)

    patch.setattr(engine, "_emissions", emissions)


def likeliest_of_another_row(patch: Patch) -> None:
    """Each token's own log-probability is right, those of the likeliest tokens are not."""
    real = Rows.top_logprobs
    patch.setattr(Rows, "top_logprobs", lambda self, node, count: real(self, 0, count))


def forgets_the_reason(patch: Patch) -> None:
    """A text that ended in an accepted draft says that its length ended it."""
    real = StopRule.cut

    def cut(self: StopRule, tokens: Any) -> Any:
        found = real(self, tokens)
        if self.reason == "stop" and len(tokens) > 1:
            self.reason = "length"
        return found

    patch.setattr(StopRule, "cut", cut)


def rows_of_a_wide_pass_are_wrong(patch: Patch) -> None:
    """The runtime's fault, not the engine's: no tolerance must grow to excuse it."""
    real = OnnxSession.forward

    def forward(self: OnnxSession, tree: Any, start: int = 0, want: Want = Want.LOGITS) -> Any:
        scored = real(self, tree, start, want | Want.LOGITS)
        if len(scored.top_ids) > 2:
            assert scored.logits is not None
            scored.logits = np.roll(scored.logits, 1, axis=0)
            scored.top_ids = np.roll(scored.top_ids, 1, axis=0)
            scored.top_logits = np.roll(scored.top_logits, 1, axis=0)
        return scored

    patch.setattr(OnnxSession, "forward", forward)


def draws_by_place_in_the_round(patch: Patch) -> None:
    """Noise that is keyed by the node rather than by the position."""
    patch.setattr(Rows, "position", lambda self, node: self._position + max(0, node - 1))


def grammar_is_narrower_after_a_draft(patch: Patch) -> None:
    """After drafted tokens the likeliest token that the grammar allows is refused."""
    real = Rows._within

    def within(self: Rows, node: int, row: Any) -> Any:
        masked = real(self, node, row)
        constrained = self._sampler.constraint is not None and self._purpose is Purpose.TARGET
        if not node or not constrained or np.isfinite(masked).sum() < 2:
            return masked
        return np.where(np.arange(len(row)) == masked.argmax(), -np.inf, masked)

    patch.setattr(Rows, "_within", within)
    permits = Rows.permits
    patch.setattr(Rows, "permits", lambda self, node, token: not node and permits(self, 0, token))


def filters_come_before_the_grammar(patch: Patch) -> None:
    """After drafted tokens, filters act on the free distribution and the grammar on the rest."""
    real = Rows._scores

    def scores(self: Rows, node: int) -> Any:
        found = real(self, node)
        if not node or self._sampler.constraint is None or not self._sampler.params.filtered:
            return found
        row = self._penalised(node) * self._sampler.inverse_temperature
        ids = filters.survivors(row, self._sampler.params)
        left = self._within(node, row)[ids]
        return (ids, left) if left.max() > -np.inf else found

    patch.setattr(Rows, "_scores", scores)


TWINS: list[tuple[Callable[[Patch], None], set[str]]] = [
    (accepts_one_more(GumbelCoupling, cold=True), {"greedy"}),
    (accepts_one_more(GumbelCoupling, cold=False), SAMPLED),
    (draws_by_place_in_the_round, SAMPLED),
    (rows_of_a_wide_pass_are_wrong, {"greedy", "sampled", "logprobs 4"}),
    (filter_is_for_the_first_row(top_k=0), {"top-k"}),
    (filter_is_for_the_first_row(top_p=1.0), {"top-p"}),
    (filter_is_for_the_first_row(min_p=0.0), {"min-p"}),
    (penalties_forget_the_path, {"repetition penalty"}),
    (
        penalties_are_for_the_first_row,
        {"repetition penalty", "presence penalty", "frequency penalty"},
    ),
    (bias_is_for_the_first_row, {"logit bias", "end of text"}),
    (ends_late("stop"), {"stop strings", "all at once"}),
    (stops_late_in_the_text, {"stop strings", "all at once"}),
    (forgets_the_reason, {"stop strings", "all at once"}),
    (ends_late("eos"), {"end of text"}),
    (always_ends_at_eos, {"end of text ignored"}),
    (drafts_past_the_limit, {"few tokens", "one token"}),
    (logprobs_of_another_row, {"logprobs 0", "logprobs 4", "all at once"}),
    (likeliest_of_another_row, {"logprobs 4", "JSON schema"}),
    (grammar_is_narrower_after_a_draft, {"JSON", "JSON schema"}),
    (filters_come_before_the_grammar, {"regular expression"}),
]


@pytest.mark.parametrize(("twin", "columns"), kinds.nightly(TWINS, kept=6))
def test_a_broken_engine_fails_in_its_column(
    bundle, monkeypatch: Patch, twin: Callable[[Patch], None], columns: set[str]
) -> None:
    twin(monkeypatch)
    assert failing(matrix(bundle)) >= columns


def test_every_column_has_a_twin(honest: Run) -> None:
    cases = {row.case for row in honest.found.rows}
    assert cases == {column for _, columns in TWINS for column in columns}


def test_a_lossy_rule_fails(bundle) -> None:
    assert failing(matrix(bundle, accept="bild")) >= {"sampled", "hot"}


@pytest.mark.parametrize(
    ("rule", "cold"),
    kinds.in_full([(SampleAndMatch, True), (SampleAndMatch, False), (SpeculativeSampling, True)]),
)
def test_a_broken_rule_fails_in_its_way(
    bundle, monkeypatch: Patch, rule: type[SampleAndMatch], cold: bool
) -> None:
    accepts_one_more(rule, cold=cold)(monkeypatch)
    found = matrix(bundle)
    assert failing(found) >= {"greedy" if cold else "sampled"}
    assert {one.way for one in found.divergences} == {f"auto, --accept {rule.name}"}


@pytest.mark.parametrize(
    "name",
    kinds.nightly(sorted(NAMED)),
)
def test_a_drafter_that_disturbs_the_text_fails_in_its_way(
    bundle, monkeypatch: Patch, name: str
) -> None:
    real = drafting.create

    def create(chosen: str, parts: Any) -> Any:
        drafter = real(chosen, parts)
        if chosen == name:
            propose = drafter.propose

            def disturbing(root: Any, limits: Any, go_on: Any, streams: Any) -> Any:
                streams.seed += 1  # numbers used up, as by a generator that is drawn from
                streams._noise.clear()
                return propose(root, limits, go_on, streams)

            drafter.propose = disturbing
        return drafter

    monkeypatch.setattr(drafting, "create", create)
    found = matrix(bundle)
    assert failing(found) >= {"sampled"}
    assert {one.way for one in found.divergences} == {name}


@pytest.mark.slow
@pytest.mark.nightly
def test_stop_strings_that_nobody_finds_are_missed(bundle, monkeypatch: Patch) -> None:
    """Both sides agree here; the text itself shows that it should have ended."""
    monkeypatch.setattr(StopRule, "_first_match", lambda self, text: None)
    found = matrix(bundle)
    assert failing(found) == {"stop strings", "all at once"}
    assert {one.what for one in found.divergences} == {"ending"}


def test_without_llguidance_they_are_left_out(bundle, monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    found = matrix(bundle, drafter="lookup", accept="match")
    assert found.holds
    assert not {"JSON", "JSON schema"} & {row.case for row in found.rows}
    assert any("left out" in note and "llguidance" in note for note in found.notes)


@pytest.mark.slow
@pytest.mark.nightly
def test_int4_holds_up_to_near_ties(plain_bundle) -> None:
    found = matrix(plain_bundle)
    assert found.holds
    assert {row.way for row in found.rows} >= {"auto", "lookup", "recycle"}
    assert not {row.way for row in found.rows} & {"model", "tree"}


@pytest.mark.slow
@pytest.mark.nightly
def test_a_batch_invariant_bundle_is_compared_so_in_every_way(
    exact_bundle, monkeypatch: Patch
) -> None:
    real, exact = Pipeline.open, []

    def opened(*args: Any, **changes: Any) -> Pipeline:
        pipeline = real(*args, **changes)
        exact.append(pipeline.plan["batch_invariant"])
        return pipeline

    monkeypatch.setattr(Pipeline, "open", opened)
    found = matrix(exact_bundle)
    assert found.total("identical") == found.total("texts")
    assert {row.way for row in found.rows} >= {"auto", "recycle"}
    # A drafter that needs branches would open it without, and is left out.
    assert any("tree" in note for note in found.notes)
    assert len(exact) > 5
    assert all(exact)


def test_a_drafter_that_branches_is_held_against_passes_without_padding() -> None:
    assert plainly(OpenOptions(drafter="tree")).load.batch_invariant is False
    assert plainly(OpenOptions(drafter="lookup")).load.batch_invariant is None
    assert plainly(OpenOptions(drafter="recycle")).load.batch_invariant is None
    assert plainly(OpenOptions(drafter="tree", batch_invariant=True)).load.batch_invariant is True


def test_the_command(run, bundle, monkeypatch: Patch) -> None:
    made: list[Verification] = []

    def once(*args: Any, **more: Any) -> Verification:
        """The same texts again would be the same."""
        if not made:
            made.append(verify_matrix(*args, **more))
        return made[0]

    monkeypatch.setattr(matrix_module, "verify_matrix", once)
    result = run("matrix", bundle, "--count", 2, "--max-new-tokens", 16, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["holds"] is True
    assert found["identical"] == found["texts"] == sum(row["texts"] for row in found["rows"])
    assert found["prompts"].startswith("Python: 2 function heads")

    shown = run("matrix", bundle, "--count", 2, "--max-new-tokens", 16)
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert f"holds: all {found['texts']} texts are plain decoding's" in shown.stdout


@pytest.mark.slow
@pytest.mark.nightly
def test_the_command_fails_with_a_broken_engine(run, bundle, monkeypatch: Patch) -> None:
    ends_late("stop")(monkeypatch)
    result = run("matrix", bundle, "--count", 2, "--max-new-tokens", 32)
    assert result.exit_code == 1
    assert "DOES NOT HOLD" in result.stdout
    listed = result.stdout[result.stdout.index("DOES NOT HOLD") :].splitlines()[1:]
    assert max(map(len, listed)) <= 80
