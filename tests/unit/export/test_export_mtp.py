"""MTP layers inside a target's checkpoint: found, left out, lacking, wired otherwise."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import ModuleType
from typing import Any

import mimo_case
import onnx
import pytest
import qwen_mtp_case
from kinds import in_full
from mimo_case import PROMPT, SCRIPT

from edgedec import Pipeline
from edgedec.bundle import Bundle
from edgedec.decoding.acceptance import GumbelCoupling, Verdict
from edgedec.decoding.tree import Draft, FloatArray
from edgedec.errors import CheckpointError, InputError
from edgedec.export import ExportOptions, draft_vocab, export_bundle
from edgedec.export.options import FULL
from edgedec.runtimes.onnx.recurrent import RecurrentRows

STATE, CARRY, TOKEN = (
    f"edgedec_mtp_{name}" for name in ("state_norm", "carry_norm", "token_first")
)


@pytest.fixture(scope="module", params=in_full([mimo_case, qwen_mtp_case]), ids=["mimo", "qwen3_5"])
def case(request: pytest.FixtureRequest) -> ModuleType:
    found: ModuleType = request.param
    return found


def exported(target: Path, out: Path, **options: Any) -> Bundle:
    plain = {"weights": "fp32", "calibration": "none"}
    export_bundle(ExportOptions(target, out, **{**plain, **options}))
    return Bundle.open(out, verify=True)


def agreement(bundle: Bundle) -> list[float]:
    manifest = json.loads((bundle.path / "manifest.json").read_text("utf-8"))
    figures = manifest["roles"]["head"]["variants"]["onnx"]["parity"]
    return [figures[f"agreement_{depth}"] for depth in (1, 2, 3)]


@pytest.fixture(scope="module")
def random(case: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of a random model, whose drafts are hardly ever right."""
    folder = tmp_path_factory.mktemp("random")
    return exported(case.checkpoint(folder / "model"), folder / "b", parity=False).path


@pytest.fixture(scope="module")
def script(case: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A bundle of a model that repeats a text, which its MTP layer drafts without a mistake."""
    folder = tmp_path_factory.mktemp("script")
    target, text = case.agreeing(folder / "model")
    return exported(target, folder / "b", parity_text=text)


def test_it_is_found_by_itself(case: ModuleType, script: Bundle) -> None:
    assert script.head is not None
    assert script.head.architecture == case.KIND
    assert agreement(script) == [1.0, 1.0, 1.0]
    taps = json.loads((script.path / "manifest.json").read_text("utf-8"))["roles"]["head"]["taps"]
    assert taps == [case.config()["num_hidden_layers"]]
    with Pipeline.open(script.path) as pipeline:
        assert pipeline.engine.drafter.name == "headed"


OPTIONS = [
    {},
    {"temperature": 0.8, "seed": 5},
    {"temperature": 1.2, "top_p": 0.9, "repetition_penalty": 1.1, "seed": 6},
    {"regex": r"(<[0-9]+>)+[a-z]{4,9}", "ignore_eos": False},
]


def differing(bundle: Path, prompt: str, drafter: str = "head", **how: bool) -> int:
    """How many texts are not those without drafts; the second of each goes on from the first."""
    wrong = 0
    with (
        Pipeline.open(bundle, drafter="none", **how) as plain,
        Pipeline.open(bundle, drafter=drafter, draft_length=3, **how) as headed,
    ):
        for options in OPTIONS:
            given = prompt
            for _ in range(2):
                more = {"max_new_tokens": 16, "ignore_eos": True, **options}
                expected = plain.generate(given, **more)
                result = headed.generate(given, **more)
                wrong += result.token_ids != expected.token_ids
                given += expected.text
    return wrong


@pytest.mark.parametrize("drafter", in_full(["head", "auto"]))
def test_texts_are_the_targets(random: Path, script: Bundle, drafter: str) -> None:
    assert differing(random, PROMPT, drafter) == 0
    assert differing(script.path, "".join(SCRIPT[:9]), drafter) == 0


def test_texts_of_a_rule_that_takes_every_draft_differ(
    random: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: drafts are there, and would be seen."""

    def takes_all(self: object, draft: Draft, rows: Any, streams: object) -> Verdict:
        path = list(range(len(draft.tree)))
        return Verdict(path, rows.draw(path[-1]))

    monkeypatch.setattr(GumbelCoupling, "accept", takes_all)
    assert differing(random, PROMPT) > 0


def test_texts_in_int4_are_the_targets(case: ModuleType, tmp_path: Path) -> None:
    """With rows that have the bits of a row alone."""
    target = case.checkpoint(tmp_path / "model")
    bundle = exported(target, tmp_path / "b", weights="int4", parity=False)
    assert differing(bundle.path, PROMPT, batch_invariant=True) == 0


def test_a_state_with_a_rejected_token_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of a hybrid's texts: what was not kept of a pass stays in its recurrences."""
    bundle = exported(qwen_mtp_case.checkpoint(tmp_path / "m"), tmp_path / "b", parity=False)

    class Ahead(RecurrentRows):
        def before(self, at: int) -> FloatArray:
            return super().before(at + 1 if self.holds(at + 1) else at)

    assert differing(bundle.path, PROMPT) == 0
    monkeypatch.setattr("edgedec.runtimes.onnx.graph.RecurrentRows", Ahead)
    assert differing(bundle.path, PROMPT) > 0


def test_drafts_are_accepted(script: Bundle) -> None:
    with Pipeline.open(script.path, drafter="head", draft_length=3) as pipeline:
        done = pipeline.generate("".join(SCRIPT[:5]), max_new_tokens=32, ignore_eos=True).metrics
    assert done.accepted_tokens == done.drafted_tokens > 20


def test_int4_shares_the_targets_lm_head(tmp_path: Path) -> None:
    target, text = mimo_case.agreeing(tmp_path / "model")
    bundle = exported(target, tmp_path / "b", weights="int4", parity_text=text)
    assert agreement(bundle)[0] > 0.9
    graph = onnx.load(bundle.path / "target" / "head.onnx", load_external_data=False).graph
    places = {
        tensor.name.split(".")[0]: tensor.external_data[0].value
        for tensor in graph.initializer
        if tensor.data_location == onnx.TensorProto.EXTERNAL
    }
    assert places["lm_head"] == places["embedding"] == "model.onnx.data"
    assert places["layers"] == places["model"] == "head.onnx.data"


def test_a_trimmed_vocabulary(case: ModuleType, tmp_path: Path) -> None:
    """The rows that it keeps are its own; with those of the script no draft is lost."""
    target, text = case.agreeing(tmp_path / "model")
    long = tmp_path / "long.txt"
    long.write_text("".join(SCRIPT * 40), "utf-8")
    options = {"parity_text": text, "calibration": "self", "calibration_text": long}
    bundle = exported(target, tmp_path / "b", draft_vocab=320, **options)
    assert bundle.head is not None
    assert bundle.head.dims["vocab_used"] == 320
    assert agreement(bundle) == [1.0, 1.0, 1.0]
    assert differing(bundle.path, "".join(SCRIPT[:9])) == 0
    with Pipeline.open(bundle.path, drafter="head", draft_length=3) as pipeline:
        done = pipeline.generate("".join(SCRIPT[:5]), max_new_tokens=32, ignore_eos=True).metrics
        assert done.accepted_tokens == done.drafted_tokens > 20
    # The control: without the text, those of the script are among the last.
    other = exported(target, tmp_path / "c", draft_vocab=320, parity=False)
    with Pipeline.open(other.path, drafter="head", draft_length=3) as pipeline:
        done = pipeline.generate("".join(SCRIPT[:5]), max_new_tokens=32, ignore_eos=True).metrics
        assert done.accepted_tokens < done.drafted_tokens
    with pytest.raises(InputError, match="--draft-vocab 9: expected"):
        exported(target, tmp_path / "d", draft_vocab=9)
    with pytest.raises(InputError, match="is for a draft: add --draft"):
        exported(target, tmp_path / "d", draft_vocab=320, mtp=False)


def test_the_rule_trims_as_for_a_draft(
    case: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But only an LM head that is large, which none of the tiny ones is, unless told to."""
    target, _ = case.agreeing(tmp_path / "model")
    options = {"weights": "int4", "calibration": "self", "parity": False}
    drafted: list[int] = []
    for least, more in ((None, {}), (0, {}), (0, {"draft_vocab": FULL})):
        if least is not None:
            monkeypatch.setattr(draft_vocab, "_LEAST_NUMBERS", least)
            monkeypatch.setattr(draft_vocab, "_LARGE", 0)
        head = exported(target, tmp_path / f"b{len(drafted)}", **options, **more).head
        assert head is not None
        drafted.append(head.dims["vocab_used"])
    assert drafted == [drafted[0], int(0.75 * drafted[0]), drafted[0]]


def test_left_out(case: ModuleType, random: Path, tmp_path: Path) -> None:
    """The target is then the one of a checkpoint without such a layer."""
    target = case.checkpoint(tmp_path / "model")
    without = exported(target, tmp_path / "b", mtp=False, parity=False)
    bare = case.checkpoint(tmp_path / "bare" / "model", **{case.COUNT: 0})
    theirs = exported(bare, tmp_path / "c", parity=False)
    assert without.head is theirs.head is None
    graphs = [folder / "target" / "model.onnx" for folder in (without.path, theirs.path, random)]
    mine, other, headed = (file.read_bytes() for file in graphs)
    assert mine == other != headed


def test_tensors_that_are_missing(
    case: ModuleType, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tensors = case.weights(case.config())
    del tensors[case.PRODUCT]
    with pytest.raises(CheckpointError, match=rf"no tensor {case.PRODUCT}; --no-mtp"):
        exported(case.checkpoint(tmp_path / "some", tensors), tmp_path / "b")
    assert not (tmp_path / "b").exists()
    none = {name: values for name, values in tensors.items() if "mtp" not in name}
    with caplog.at_level(logging.WARNING, "edgedec"):
        bundle = exported(case.checkpoint(tmp_path / "none", none), tmp_path / "c", parity=False)
    assert bundle.head is None
    assert "exported without a head" in caplog.text


def test_a_tensor_of_another_size(case: ModuleType, tmp_path: Path) -> None:
    tensors = case.weights(case.config())
    tensors[case.PRODUCT] = tensors[case.PRODUCT][:, :64].copy()
    with pytest.raises(CheckpointError, match=r"expected \[64, 128\].*--no-mtp"):
        exported(case.checkpoint(tmp_path / "model", tensors), tmp_path / "b")


def test_of_several_layers_the_first_drafts(case: ModuleType, random: Path, tmp_path: Path) -> None:
    stated = case.config(**{case.COUNT: 2})
    tensors = case.mtp_tensors(stated, seed=9, layer=1) | case.weights(stated)
    target = case.checkpoint(tmp_path / "model", tensors, **{case.COUNT: 2})
    options = ExportOptions(
        target, tmp_path / "b", weights="fp32", calibration="none", parity=False
    )
    report = export_bundle(options)
    assert report.models[-1].notes == ("the first of 2 MTP layers, which drafts alone",)
    data = [folder / "target" / "head.onnx.data" for folder in (tmp_path / "b", random)]
    assert data[0].read_bytes() == data[1].read_bytes()


@pytest.mark.parametrize(
    ("key", "words"),
    [(STATE, ""), (TOKEN, ""), (CARRY, "at depth 2, and in 100% if ")],
    ids=["norm", "order", "carry"],
)
def test_wrong_wiring_is_named(case: ModuleType, key: str, words: str, tmp_path: Path) -> None:
    usual = case is qwen_mtp_case
    target, text = case.agreeing(tmp_path / "model", **{key: not usual})
    with pytest.raises(CheckpointError, match=f"{words}{key} is {str(usual).lower()}"):
        exported(target, tmp_path / "b", parity_text=text)
    assert not (tmp_path / "b").exists()


def test_a_layer_that_was_trained_otherwise(case: ModuleType, tmp_path: Path) -> None:
    """It is named, and then told by its configuration."""
    other = case is not qwen_mtp_case
    target, text = case.agreeing(tmp_path / "model", token_first=other)
    with pytest.raises(CheckpointError, match=f"{TOKEN} is {str(other).lower()}"):
        exported(target, tmp_path / "b", parity_text=text)
    file = target / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), TOKEN: other}), "utf-8")
    assert agreement(exported(target, tmp_path / "b", parity_text=text)) == [1.0, 1.0, 1.0]


def test_a_field_that_is_no_number(case: ModuleType, tmp_path: Path) -> None:
    target = case.checkpoint(tmp_path / "m", case.weights(case.config()), **{case.COUNT: "one"})
    with pytest.raises(CheckpointError, match=f"{case.COUNT} is 'one'"):
        exported(target, tmp_path / "b")
