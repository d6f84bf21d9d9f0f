"""Stages of drafting in one text: what is read, what is refused, and who drafts how much."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from installed import installer
from kinds import in_full
from test_drafting_composite import NOTHING, Arm

from edgedec import GenerateOptions, OpenOptions, Pipeline
from edgedec.decoding import drafting
from edgedec.decoding.acceptance import Verdict
from edgedec.decoding.drafting._composite import CompositeDrafter
from edgedec.decoding.drafting._spec import Stage
from edgedec.decoding.drafting.base import DrafterParts, DraftLimits, RoundFeedback
from edgedec.decoding.drafting.lookup import LONGEST, LookupDrafter
from edgedec.decoding.randomness import Streams
from edgedec.errors import InputError

PROMPT = "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):"


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        ("lookup", [("lookup", {})]),
        ("lookup:n=8,head:k=4", [("lookup", {"n": 8}), ("head", {"k": 4})]),
        (" lookup : n = 8 , k=2, recycle", [("lookup", {"n": 8, "k": 2}), ("recycle", {})]),
        ("hybrid:k=3", [("hybrid", {"k": 3})]),
        ("none", [("none", {})]),
    ],
)
def test_stages_are_read_in_order(text: str, stages: list[tuple[str, dict[str, int]]]) -> None:
    found = drafting.stages(text)
    assert found == tuple(Stage(*stage) for stage in stages)
    assert drafting.stages(drafting.of_spec(text)) == found


REFUSED = {
    "": "expected stages such as lookup:n=8,head:k=4",
    "lookup,": "no drafter ''",
    ",": "no drafter ''",
    ":k=4": "no drafter ''",
    "lokup:n=8": "did you mean lookup?",
    "head_tree": "was removed",
    "n=8,lookup": "is before any stage",
    "lookup:n": "expected KEY=NUMBER",
    "lookup:": "expected KEY=NUMBER",
    "lookup:z=1": "has no key 'z': it has k: ",
    "recycle:n=8": "has no key 'n'",
    "lookup:n=1": "expected a whole number, 2 to 64",
    "lookup:n=65": "expected a whole number, 2 to 64",
    "lookup:k=0": "expected a whole number, 1 to 64",
    "lookup:n=eight": "expected a whole number",
    "lookup:n=-3": "expected a whole number",
    "lookup:n=" + "9" * 300: "expected a whole number",
    "lookup:n=8,n=9": "n is given twice",
    "lookup,recycle,lookup": "lookup is there twice",
    "hybrid,lookup": "hybrid is made of suffix, lookup, model",
    "lookup,none": "none drafts nothing",
    "model,head": "each take a draft model or a head",
    "lookup:k=4;head": "expected a whole number",
    "auto:k=4": "no drafter 'auto'",
    "a" * 1000: "expected stages such as",
}


@pytest.mark.parametrize("text", REFUSED)
def test_each_mistake_has_one_line(text: str) -> None:
    with pytest.raises(InputError) as caught:
        drafting.stages(text)
    (line,) = str(caught.value).splitlines()
    assert REFUSED[text] in line
    assert len(line) < 400


def test_every_drafter_is_a_stage() -> None:
    for name in drafting.names():
        assert drafting.info(f"{name}:k=2").parts == (name,)
        assert drafting.known(f"{name}:k=2")


def test_the_facts_are_those_of_the_stages_together() -> None:
    found = drafting.info("lookup:n=4,recycle,head")
    assert (found.needs_head, found.needs_model, found.branches) == (True, False, True)
    assert found.parts == ("lookup", "recycle", "head")
    assert not drafting.info("lookup:n=4,recycle").needs_weights
    assert drafting.info("lookup,mistake").parts == ()


def test_a_package_adds_a_stage_by_adding_a_drafter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
        from edgedec.decoding.drafting.base import DrafterInfo, Key
        from edgedec.decoding.drafting.lookup import LookupDrafter

        INFO = DrafterInfo(keys=(Key("least", "shortest n-gram", 1, 8),))

        class Echo(LookupDrafter):
            name = "echo"

        def build(parts):
            return Echo(parts.vocab_size, shortest=parts.keys["least"], rivals=parts.rivals)
    """
    install: Callable[..., None] = installer(tmp_path / "s", monkeypatch, drafting.forget)
    install(
        "echo", {"echo_stage.py": textwrap.dedent(code)}, edgedec_drafters={"echo": "echo_stage"}
    )
    try:
        with Pipeline.open("demo", spec="echo:least=1,k=2,recycle", plan="none") as pipeline:
            found = pipeline.generate("a a a a", max_new_tokens=12)
            assert found.plan["drafter"] == "echo:least=1,k=2,recycle"
        with pytest.raises(InputError, match="echo: least is '9': expected a whole number, 1 to 8"):
            drafting.stages("echo:least=9")
    finally:
        monkeypatch.undo()
        drafting.forget()


@pytest.fixture
def parts() -> DrafterParts:
    return DrafterParts(vocab_size=16)


def test_keys_reach_the_drafter(parts: DrafterParts) -> None:
    made = drafting.create("lookup:n=5,recycle", parts)
    assert isinstance(made, CompositeDrafter)
    assert made.arms == ("lookup", "recycle")
    lookup, recycle = made._arms
    assert isinstance(lookup, LookupDrafter)
    assert (lookup._index._longest, lookup.rivals) == (5, ["recycle"])
    assert made._learner is recycle
    plain = drafting.create("lookup", parts)
    assert isinstance(plain, LookupDrafter)
    assert plain._index._longest == LONGEST


@pytest.mark.parametrize(("most", "asked"), [({}, 6), ({"first": 2}, 2), ({"first": 9}, 6)])
def test_a_stage_drafts_no_more_than_its_key_says(most: dict[str, int], asked: int) -> None:
    """The control: without a key, or with a larger one, it drafts what the policy allows."""
    seen: list[DraftLimits] = []

    class Limited(Arm):
        def propose(self, root: int, limits: object, go_on: object, streams: object):  # type: ignore[no-untyped-def]
            assert isinstance(limits, DraftLimits)
            seen.append(limits)
            return super().propose(root, limits, go_on, streams)

    drafter = CompositeDrafter("x", [Limited("first", 0), Limited("second", 1)], None, most)
    draft = drafter.propose(3, DraftLimits(6, 6), lambda step: True, Streams(0))
    drafter.observe(RoundFeedback(draft, Verdict([0], 5), NOTHING, [5]))
    assert seen == [DraftLimits(asked, asked), DraftLimits(6, 6)]


@pytest.fixture(scope="module")
def plain() -> str:
    with Pipeline.open("demo", drafter="none", plan="none", batch_invariant=True) as pipeline:
        return pipeline.generate(PROMPT, max_new_tokens=32, temperature=0.8, seed=3).text


@pytest.mark.parametrize(
    "spec",
    in_full(["lookup:n=3,model:k=2", "recycle:k=4,lookup", "lookup:n=3", "model", "hybrid:k=2"], 2),
)
def test_the_text_is_that_of_plain_decoding(plain: str, spec: str) -> None:
    options = {"draft_length": 3, "plan": "none", "batch_invariant": True}
    with Pipeline.open("demo", spec=spec, **options) as pipeline:  # type: ignore[arg-type]
        found = pipeline.generate(PROMPT, max_new_tokens=32, temperature=0.8, seed=3)
        assert found.text == plain
        assert found.metrics.drafted_tokens > 0
        assert pipeline.plan["drafter"] == spec


def test_spec_becomes_the_drafter_of_a_pipeline() -> None:
    options = OpenOptions(spec="lookup:n=4,recycle")
    assert (options.drafter, options.spec) == ("lookup:n=4,recycle", None)
    assert options.changed(drafter="text").drafter == "text"
    assert options.changed(spec="recycle").drafter == "recycle"
    assert OpenOptions(spec="auto").drafter == "auto"
    with pytest.raises(InputError, match="give one, spec"):
        OpenOptions(spec="lookup", drafter="recycle")
    with pytest.raises(InputError, match="did you mean lookup"):
        OpenOptions(spec="lokup")


def test_a_text_takes_one_stage_of_them() -> None:
    with Pipeline.open("demo", spec="lookup:n=3,recycle:k=4", plan="none") as pipeline:
        alone = pipeline.generate(PROMPT, max_new_tokens=24, spec="recycle:k=2")
        assert {*alone.metrics.sources} == {"recycle"}
        assert alone.plan["draft_length"] == 2
        assert pipeline.generate(PROMPT, max_new_tokens=4, spec="none").metrics.drafted_tokens == 0


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"spec": "lookup:n=4"}, "a text takes one stage and its k"),
        ({"spec": "lookup,recycle"}, "a text takes one stage and its k"),
        ({"spec": "lookup", "draft_length": 2}, "leave drafter and draft_length out"),
        ({"spec": "lookup", "drafter": "recycle"}, "leave drafter and draft_length out"),
        ({"drafter": "lookup,recycle"}, "a text takes one stage and its k"),
        ({"spec": "lokup"}, "did you mean lookup?"),
    ],
)
def test_what_a_text_cannot_take(given: dict[str, object], line: str) -> None:
    with pytest.raises(InputError, match=line.replace("?", r"\?")):
        GenerateOptions(**given)  # type: ignore[arg-type]


def test_a_text_may_name_its_stage_as_drafter() -> None:
    options = GenerateOptions(drafter="lookup:k=3")
    assert (options.drafter, options.draft_length, options.spec) == ("lookup", 3, None)
