"""A bundle exported for exact text: by default a text does not depend on what was drafted.

Tokens and their log probabilities are compared, the latter to the last bit: a near-tie would show
once in thousands of tokens, another rounding shows at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kinds
import pytest
import tiny_bundles
from tiny_models import tiny_checkpoint

from benchmarks.certificate.ways import alike_for_all
from edgedec.decoding.acceptance import RULES
from edgedec.errors import InputError, MemoryBudgetError
from edgedec.export import ExportOptions, export_bundle
from edgedec.loading.options import OpenOptions
from edgedec.models.demo import heldout
from edgedec.pipeline import GenerateOptions, Pipeline
from edgedec.profiling._child import measure
from edgedec.profiling.children import MeasurementJob
from edgedec.records.place import Place
from edgedec.runtimes.onnx import model as onnx_model
from edgedec.runtimes.onnx.padding import NO_PADDING
from edgedec.verify.same_texts import plainly

DEMO = Path(heldout.__file__).parent
DRAFTERS = ("auto", "model", "lookup", "recycle", "text", "adaptive")
OTHER_RULES = sorted(RULES.keys() - {"coupling", "match"})
SAMPLINGS = {"greedy": {}, "seeded": {"temperature": 0.8, "seed": 3}}
EACH = [("seeded", DRAFTERS[:2]), ("seeded", DRAFTERS[2:]), ("greedy", DRAFTERS)]
PROMPT = "import os\n\n\ndef read_lines(path):"

Text = list[tuple[int, float | None]]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("exact") / "bundle"
    options = ExportOptions(
        DEMO / "target", out, DEMO / "draft", weights="int4", batch_invariant=True, parity=False,
        calibration="none",
    )  # fmt: skip
    return tiny_bundles.kept(options)


def text(bundle: Path, draft: str, sampling: str, **opened: Any) -> tuple[Text, dict[str, object]]:
    with Pipeline.open(bundle, drafter=draft, plan="none", **opened) as pipeline:
        options = GenerateOptions(40, ignore_eos=True, logprobs=1)
        stream = pipeline.stream(PROMPT, options, **SAMPLINGS[sampling])
        found = [(event.token, event.logprob) for event in stream]
        assert stream.result is not None
        return found, stream.result.plan


@pytest.mark.parametrize(("sampling", "drafters"), kinds.in_full(EACH))
def test_the_text_is_plain_decodings_by_default(
    bundle: Path, sampling: str, drafters: Sequence[str]
) -> None:
    check(bundle, sampling, drafters)


def check(bundle: Path, sampling: str, drafters: Sequence[str] = DRAFTERS) -> None:
    plain, plan = text(bundle, "none", sampling)
    assert plan["batch_invariant"] is True
    for drafter in drafters:
        drafted, plan = text(bundle, drafter, sampling)
        assert plan["batch_invariant"] is True
        assert drafted == plain, drafter


def test_trees_are_drafted_where_they_are_asked_for(bundle: Path, large: None) -> None:
    for each in (bundle, DEMO / "bundle"):
        _, plan = text(each, "tree", "greedy")
        assert plan["drafter"] == "tree"
        assert plan["batch_invariant"] is False


def test_its_profile_says_that_it_verifies_chains(bundle: Path) -> None:
    # So no plan drafts a tree, which would not be exact.
    place = Place("onnx", threads=1)
    demo = DEMO / "bundle" / "target" / "model.onnx"
    found = [
        measure(MeasurementJob("target", str(file), place, (1, 2, 3), (32,), (1, 2), 0.05))[
            0
        ].branches
        for file in (bundle / "target" / "model.onnx", demo)
    ]
    assert found == [1, None]


@pytest.mark.parametrize(("weights", "kv"), [("fp32", "fp32"), ("int8", "fp32"), ("int8", "int8")])
def test_its_graph_computes_what_the_other_does(weights: str, kv: str, tmp_path: Path) -> None:
    source = tiny_checkpoint(tmp_path / "checkpoint")
    options = ExportOptions(source, tmp_path / "one", weights=weights, kv=kv)
    own_rows = dataclasses.replace(options, out=tmp_path / "other", batch_invariant=True)
    (one,), (other,) = (export_bundle(chosen).models for chosen in (options, own_rows))
    assert one.parity == other.parity


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every target counts as a large one whose padding costs little."""
    monkeypatch.setattr(onnx_model, "LARGE_BYTES", 0)
    monkeypatch.setattr(onnx_model, "MIDDLE_BYTES", 0)
    monkeypatch.setattr(onnx_model, "_cost", lambda graph, padding: 1.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.parametrize(("sampling", "drafters"), kinds.in_full(EACH))
def test_a_large_target_writes_plain_decodings_text_by_default(
    sampling: str, drafters: Sequence[str], large: None
) -> None:
    check(DEMO / "bundle", sampling, drafters)


@pytest.mark.parametrize("exported", [True, False])
def test_a_claim_of_exactness_that_does_not_hold_is_noticed(
    exported: bool, bundle: Path, large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The control: passes are not padded, although that is claimed.
    monkeypatch.setattr(onnx_model, "find_padding", lambda *_: NO_PADDING)
    with pytest.raises(AssertionError, match="|".join(DRAFTERS)):
        check(bundle if exported else DEMO / "bundle", "greedy")


# Those that are padded and those that are not: one of each by default.
@pytest.mark.parametrize("rule", kinds.in_full(["coupling", "match", *OTHER_RULES], kept=2))
def test_a_large_targets_passes_are_padded_for_rules_that_ask_for_it(
    rule: str, large: None
) -> None:
    for draft in ("none", "model"):
        for asked, expected in ((None, rule == "coupling"), (True, True), (False, False)):
            opened = {"accept": rule, "batch_invariant": asked}
            with Pipeline.open("demo", drafter=draft, plan="none", **opened) as pipeline:
                assert pipeline.plan["batch_invariant"] is expected
                assert (pipeline.target.padding is NO_PADDING) is not expected


@pytest.mark.parametrize("rule", ["match", "speculative"])
def test_padding_whatever_the_rule_is_noticed(
    rule: str, large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OpenOptions, "of_target", lambda options, *_: options.load)
    with pytest.raises(AssertionError):
        test_a_large_targets_passes_are_padded_for_rules_that_ask_for_it(rule, large)


def test_a_bundle_exported_for_it_is_exact_with_match_too(bundle: Path, large: None) -> None:
    # Padding of attention alone costs little.
    plain, plan = text(bundle, "none", "seeded", accept="match")
    assert plan["batch_invariant"] is True
    drafted, plan = text(bundle, "model", "seeded", accept="match", draft_length=3)
    assert plan["batch_invariant"] is True
    assert drafted == plain


def test_match_that_gives_up_what_costs_nothing_is_noticed(
    bundle: Path, large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        OpenOptions, "of_target", lambda options, *_: options.load.changed(batch_invariant=False)
    )
    with pytest.raises(AssertionError):
        test_a_bundle_exported_for_it_is_exact_with_match_too(bundle, large)


def test_plain_rounds_of_match_have_the_bits_of_plain_decoding(large: None) -> None:
    opened = {"drafter": "model", "draft_length": 0, "plan": "none"}
    with Pipeline.open("demo", accept="match", **opened) as pipeline:
        assert pipeline.target.padding is NO_PADDING
    plain, _ = text(DEMO / "bundle", "none", "seeded", batch_invariant=False)
    found, _ = text(DEMO / "bundle", "model", "seeded", accept="match", draft_length=0)
    assert found == plain
    # The control: padded passes round otherwise.
    padded, _ = text(DEMO / "bundle", "model", "seeded", draft_length=0)
    assert padded != plain


def test_a_draft_with_noise_of_its_own_gives_a_seeds_text_if_passes_are_padded(large: None) -> None:
    plain, _ = text(DEMO / "bundle", "none", "seeded")
    for drafter in ("model", "recycle"):
        # Rounds of measured lengths may draft nothing, and so compare nothing.
        opened = {"accept": "match", "batch_invariant": True, "draft_length": 3}
        drafted, _ = text(DEMO / "bundle", drafter, "seeded", **opened)
        assert drafted == plain, drafter


def test_it_would_not_without_padding(large: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_model, "find_padding", lambda *_: NO_PADDING)
    with pytest.raises(AssertionError, match="model"):
        test_a_draft_with_noise_of_its_own_gives_a_seeds_text_if_passes_are_padded(large)


@pytest.mark.parametrize(("rule", "padded"), [("match", False), ("coupling", True)])
def test_what_is_compared_is_opened_as_plain_decoding_was(
    rule: str, padded: bool, large: None
) -> None:
    options = OpenOptions(plan="none", accept=rule)
    with Pipeline.open("demo", plainly(options)) as pipeline:
        assert (pipeline.target.padding is not NO_PADDING) is padded
        alike = alike_for_all(pipeline, options)
    for other in ("match", "coupling"):
        with Pipeline.open("demo", alike, drafter="lookup", accept=other) as pipeline:
            assert (pipeline.target.padding is not NO_PADDING) is padded


def test_rules_open_a_large_target_differently_by_themselves(
    large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "alike_for_all", lambda _, options: options)
    with pytest.raises(AssertionError):
        test_what_is_compared_is_opened_as_plain_decoding_was("match", False, large)


def test_it_is_refused_where_no_onnx_is_written(tmp_path: Path) -> None:
    options = ExportOptions(DEMO / "target", tmp_path / "out", formats=("gguf",))
    with pytest.raises(InputError, match="--batch-invariant is for onnx"):
        export_bundle(dataclasses.replace(options, batch_invariant=True))


def test_a_bundle_that_was_not_exported_for_it_says_so() -> None:
    with Pipeline.open("demo", drafter="none", plan="none") as pipeline:
        found = pipeline.generate("def f(x):", GenerateOptions(2))
    assert found.plan["batch_invariant"] is False


def test_the_whole_context_of_a_large_target_may_be_stated(large: None) -> None:
    with Pipeline.open("demo", drafter="none", plan="none", max_context=8192) as pipeline:
        found = pipeline.generate("def f(x):", GenerateOptions(2))
        added = pipeline.target.padding.slack
    assert found.plan["batch_invariant"] is True
    assert added > 0
    assert found.plan["max_context"] == 8192 - added  # padded passes end within the rotary tables
    with pytest.raises(MemoryBudgetError, match="expected 1 to 8192"):
        Pipeline.open("demo", drafter="none", plan="none", max_context=8193)
