"""Papers' figures against the simulation: corners, verdicts, sources, and broken inputs."""

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.papers import claims, dovetail_figures, theory
from benchmarks.papers.pairs import TimedPair
from benchmarks.papers.reproduction import Claim, ClaimRow, evaluate
from edgedec.errors import InputError
from edgedec.simulation import cards
from edgedec.simulation.figures import Figure
from edgedec.simulation.synthetic import (
    emitting,
    independent,
    persistent,
    text,
    tokens_per_round,
)

NOTE = "made up for this test"


def known(low: float, high: float | None = None) -> Figure:
    return Figure(low, low if high is None else high, "estimate", "a test", "", NOTE)


def claim(published: float, **inputs: Figure) -> tuple[Claim, list[dict[str, float]]]:
    asked: list[dict[str, float]] = []

    def product_of(values: Mapping[str, float]) -> float:
        asked.append(dict(values))
        result = 1.0
        for value in values.values():
            result *= value
        return result

    return Claim("a paper", "a figure", published, inputs, product_of, ""), asked


def row(published: float, low: float, high: float) -> ClaimRow:
    return ClaimRow(Claim("a paper", "a figure", published, {}, lambda values: 0.0, ""), 1, low,
                    high, {})  # fmt: skip


def test_every_corner_is_simulated() -> None:
    what, asked = claim(10.0, a=known(1.0, 2.0), b=known(3.0, 5.0), c=known(7.0))
    found = evaluate(what)
    corners = [{"a": a, "b": b, "c": 7.0} for a in (1.0, 2.0) for b in (3.0, 5.0)]
    assert asked[:4] == corners
    # 10 is below what the smallest a gives with the others at their middles; 42 is not.
    assert found.implied is None
    within = evaluate(replace(what, published=42.0))
    assert within.widest == "a"
    assert within.implied == pytest.approx(1.5, abs=0.01)
    assert found.corners == 4
    assert (found.low, found.high) == (21.0, 70.0)
    # What one input spreads alone, the others at their middles.
    assert found.blame == {"a": pytest.approx(1 / 3), "b": pytest.approx(1 / 4)}


@pytest.mark.parametrize(
    ("published", "low", "high", "passed", "verdict"),
    [
        (1.0, 0.9, 1.1, True, "reproduced"),
        (1.2, 0.8, 1.2, True, "reproduced"),
        (1.21, 0.8, 1.2, False, "does not fit"),
        (0.85, 0.9, 1.1, False, "does not fit"),
        (1.0, 0.7, 1.3, False, "inside, but too wide to count"),
        (2.0, 0.7, 1.3, False, "does not fit"),
    ],
)
def test_verdicts(published: float, low: float, high: float, passed: bool, verdict: str) -> None:
    found = row(published, low, high)
    assert found.passed is passed
    assert found.verdict == verdict
    assert found.to_json()["verdict"] == verdict


def test_an_input_without_a_source_is_refused() -> None:
    for figure in (
        Figure(1.0, 2.0, "estimate", "", "https://example.org"),
        Figure(1.0, 2.0, "estimate", "somebody"),
    ):
        what, _ = claim(1.0, a=figure)
        with pytest.raises(InputError, match="expected its source"):
            evaluate(what)


@pytest.mark.parametrize("what", claims.claims(), ids=lambda what: what.figure)
def test_claims_name_their_sources_and_are_no_circles(what: Claim) -> None:
    assert what.remark
    for name, figure in what.inputs.items():
        assert figure.low <= figure.high, name
        assert figure.source, name
        assert figure.url or figure.note, name
        # What a paper measured of its own method is never an input.
        assert what.published not in figure.ends, name


def test_reproduced_figures_are_not_when_an_input_is_off_by_two() -> None:
    theorem = theory.claims()[1]
    assert evaluate(theorem).passed
    for name, figure in theorem.inputs.items():
        for factor in (0.5, 2.0):
            if name == "acceptance" and factor > 1:
                continue  # more than always
            off = {**theorem.inputs, name: scaled(figure, factor)}
            assert not evaluate(replace(theorem, inputs=off)).passed, (name, factor)


def scaled(figure: Figure, factor: float) -> Figure:
    return replace(figure, low=figure.low * factor, high=figure.high * factor)


def dovetail(figure: str, *matter: str) -> Claim:
    """A claim as the bench simulates it, but for inputs that hardly matter: at their middles."""
    (what,) = (c for c in dovetail_figures.claims() if c.figure.startswith(figure))
    inputs = {
        name: known if not matter or name in matter else known.fixed(known.middle)
        for name, known in what.inputs.items()
    }
    return replace(what, inputs=inputs)


def broken(what: Claim, name: str, factor: float) -> ClaimRow:
    return evaluate(replace(what, inputs={**what.inputs, name: scaled(what.inputs[name], factor)}))


def test_dovetail_s_sixth_block_brings_nothing_unless_it_were_twice_as_good() -> None:
    what = dovetail("six extra blocks", "accepted length", *dovetail_figures._GPU)
    assert evaluate(what).passed
    assert not broken(what, "more with six", 2.0).inside


def test_dovetail_s_offloaded_layers_take_their_share_of_the_verification() -> None:
    matter = ("devices.cpu.flops.fp32", "devices.cpu.flops_share", "devices.gpu.launch_s")
    what = dovetail("speed with 7 GB", *matter)
    assert evaluate(what).narrow
    high = evaluate(what).high
    for factor in (0.5, 2.0):
        assert not broken(what, "target layers on the GPU", factor).inside
    # Ten of 32 layers for nothing would give this at most.
    assert 1.25 < high < 32 / 22


def test_dovetail_s_memory() -> None:
    what = dovetail("GPU memory of the draft")
    assert evaluate(what).passed
    for factor in (0.5, 2.0):
        assert not broken(what, "draft layers", factor).inside
    both = dovetail("GPU memory with ten layers")
    assert evaluate(both).passed
    for name in ("draft layers", "target layers on the GPU"):
        for factor in (0.5, 2.0):
            assert not broken(both, name, factor).inside


def test_dovetail_s_speed_moves_as_it_must() -> None:
    (what,) = (c for c in dovetail_figures.claims() if c.figure.startswith("tokens/s, five"))
    middles = {name: figure.middle for name, figure in what.inputs.items()}
    before = what.model(middles)

    def changed(name: str, factor: float) -> float:
        return what.model({**middles, name: middles[name] * factor}) / before

    assert changed("accepted length", 0.5) < 0.55
    assert changed("plain, tokens/s", 0.5) < 1
    assert changed("devices.cpu.flops.fp32", 0.5) < 0.8
    assert changed("devices.gpu.bandwidth_share", 0.5) < 1
    assert changed("draft layers", 2) < 1


def test_texts_are_right_as_often_as_was_asked() -> None:
    for length, per_round in ((8, 5.9), (5, 3.0), (3, 1.0), (4, 5.0)):
        right = emitting(per_round, length, 2000)
        assert tokens_per_round(right, length) == pytest.approx(per_round, rel=0.01)
    assert sum(persistent(0.8, 0.5, 20000)) / 20000 == pytest.approx(0.8, abs=0.02)
    runs = persistent(0.8, 0.5, 20000)
    after_wrong = [b for a, b in pairwise(runs) if not a]
    assert sum(after_wrong) / len(after_wrong) == pytest.approx(0.4, abs=0.03)
    for refused in ((1.2, 0.0), (0.5, 1.0), (-0.1, 0.0)):
        with pytest.raises(InputError, match=r"expected 0\.\.1"):
            persistent(*refused, 10)
    with pytest.raises(InputError, match="tokens a round"):
        emitting(7.0, 5, 100)


def test_the_engine_emits_what_the_text_was_made_for() -> None:
    right = emitting(4.0, 6, 1000)
    told = TimedPair(1.0, 0.1).sequential(text(right), 6)
    assert told.block_efficiency == pytest.approx(4.0, rel=0.02)
    assert told.tokens_per_second == pytest.approx(4.0 / 1.6, rel=0.02)


def test_overlapped_a_draft_that_is_always_right_hides_in_the_target() -> None:
    always = text(independent(1.0, 300))
    pair = TimedPair(1.0, 0.2)
    hidden = pair.overlapped(always, 5, branching=False)
    assert hidden.tokens_per_second == pytest.approx(5.0, rel=0.03)
    assert pair.sequential(always, 5).tokens_per_second == pytest.approx(3.0, rel=0.03)


def test_a_streamed_target_is_drafted_for_while_it_loads_only() -> None:
    always = text(independent(1.0, 300))
    told = TimedPair(1.0, 0.1, load_share=0.5).overlapped(always, 20, branching=False)
    # Five draft passes fit the part that loads; one that has begun is let finish.
    assert 0.45 < told.overlapped_s / told.target_passes < 0.62
    free = TimedPair(1.0, 0.1).overlapped(always, 20, branching=False)
    assert free.overlapped_s / free.target_passes > 0.95


def test_the_page_quotes_the_records(repository: Path) -> None:
    page = (repository / "docs" / "simulation.md").read_text("utf-8")
    lines = (repository / "docs" / "measurements" / "papers.jsonl").read_text("utf-8").splitlines()
    records = [json.loads(line) for line in lines if '"claim"' in line]
    assert [record["figure"] for record in records] == [c.figure for c in claims.claims()]
    for record in records:
        (line,) = (line for line in page.splitlines() if f"| {record['figure']} |" in line)
        produced = f"{record['low']:.3g}..{record['high']:.3g} (±{record['spread']:.0%})"
        for quoted in (record["paper"], f"{record['published']:.3g}", produced, record["verdict"]):
            assert f"| {quoted} |" in line


def test_the_page_names_every_card(repository: Path) -> None:
    page = (repository / "docs" / "simulation.md").read_text("utf-8")
    assert all(f"`{name}`" in page for name in cards.names())
