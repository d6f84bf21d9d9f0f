"""The certificate and the matrix compare a head's drafters, and each sees one that is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import demo_head
import kinds
import pytest

from benchmarks.certificate.job import Job
from benchmarks.certificate.matrix import verify_matrix
from benchmarks.certificate.texts import TURN, compare_chunk, ways
from benchmarks.certificate.ways import drafters
from edgedec import GenerateOptions, Pipeline, SamplingParams
from edgedec.compare.interleaved import Progress
from edgedec.decoding import drafting
from edgedec.decoding.drafting import PLAIN
from edgedec.loading.build import OpenOptions
from edgedec.verify.results import Verification, VerificationRow

PROMPTS = [("sum", "def add("), ("reader", "class Reader:\n    def __init__(self, path):")]
OPTIONS = OpenOptions(plan="none", threads=1)


@pytest.fixture(scope="module")
def pipelines() -> Iterator[Mapping[str, Pipeline]]:
    """The target with a head; with a draft as well, which is asked for; and the demo pair."""
    head, both = demo_head.bundle(), OPTIONS.changed(draft="demo")
    found = {
        "head": Pipeline.open(head, OPTIONS.changed(drafter=PLAIN)),
        "both": Pipeline.open(head, both.changed(drafter=PLAIN)),
        "pair": Pipeline.open("demo", OPTIONS.changed(drafter=PLAIN)),
    }
    yield found
    for pipeline in found.values():
        pipeline.close()


def test_what_auto_stands_for_is_the_only_drafter_left_out(
    pipelines: Mapping[str, Pipeline],
) -> None:
    """Another one was left out, and that of ``auto`` compared twice, where there is a head."""
    with_head = drafters(pipelines["head"].pair, OPTIONS)
    assert {"head", "text", "lookup"} <= set(with_head)
    assert not {"headed", "model", PLAIN} & set(with_head)
    asked = drafters(pipelines["both"].pair, OPTIONS.changed(draft="demo"))
    assert {"head", "headed", "model"} <= set(asked)
    assert "hybrid" not in asked
    # The controls: there is no head, and auto is not what is opened.
    assert not {"head", "headed", "hybrid"} & set(drafters(pipelines["pair"].pair, OPTIONS))
    named = drafters(pipelines["head"].pair, OPTIONS.changed(drafter="head"))
    assert "headed" in named
    assert "head" not in named


@pytest.mark.parametrize(("auto", "able"), [("headed", 2), ("hybrid", 3)])
def test_auto_overlaps_where_what_it_stands_for_does(auto: str, able: int) -> None:
    """Else its share of the prompts would be refused, and compared in no overlapped schedule."""
    names = ["auto", "head", "hybrid", "model"]
    dealt = [way for way in ways(OPTIONS, names, range(12), auto) if "overlapped" in way.name]
    assert len(dealt) == able
    places = sorted(place for way in dealt for _, place in way.texts or ())
    assert places == list(range(12))


def certified() -> Verification:
    job = Job(str(demo_head.bundle()), PROMPTS, "here", OPTIONS, tokens=24)
    return compare_chunk(job, OPTIONS, range(len(PROMPTS)), Progress(None))


def matrix() -> Verification:
    asked = GenerateOptions(24, SamplingParams(temperature=0.8, seed=0), ignore_eos=True)
    return verify_matrix(demo_head.bundle(), PROMPTS[:1], asked, options=OPTIONS)


def of(found: Verification, way: str) -> list[VerificationRow]:
    return [row for row in found.rows if row.way.split(TURN)[0] == way]


@pytest.mark.parametrize("run", kinds.in_full([certified, matrix]))
def test_texts_of_a_head_are_compared_and_a_wrong_one_is_flagged(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run()
    assert found.holds
    for way in ("auto", "head"):
        assert sum(row.accepted_tokens for row in of(found, way)) > 10
    # Broken twin: with the head, a text is drawn with numbers that are not its own.
    create = drafting.create

    def disturbing(name: str, parts: Any) -> Any:
        drafter = create(name, parts)
        if name == "head":
            propose = drafter.propose

            def disturbed(root: Any, limits: Any, go_on: Any, streams: Any) -> Any:
                streams.seed += 1
                streams._noise.clear()
                return propose(root, limits, go_on, streams)

            drafter.propose = disturbed
        return drafter

    monkeypatch.setattr(drafting, "create", disturbing)
    wrong = run()
    assert not wrong.holds
    flagged = {one.way.split(TURN)[-1] for one in wrong.divergences if not one.near_tie}
    assert flagged == {"head"}
