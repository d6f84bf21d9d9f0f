"""Where neither a plan nor the user places a target, it computes on the device that is faster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kinds import in_full

from edgedec import GenerateOptions, Pipeline
from edgedec.errors import BundleError, PassFailed, RuntimeUnavailable
from edgedec.loading.build import OpenOptions, find_pair
from edgedec.loading.opening import on_quickest
from edgedec.planning import remembered
from edgedec.records.load import LoadOptions
from edgedec.records.place import Place
from edgedec.records.plan import Plan

pytest.importorskip("openvino", reason="needs the extra openvino")

from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.runtimes.onnx.openvino import choice
from edgedec.runtimes.onnx.openvino.model import OpenVinoModel, OpenVinoSession
from edgedec.runtimes.onnx.openvino.places import DEVICE

OPTIONS = GenerateOptions(max_new_tokens=24)
PROMPT = "def fibonacci(n):\n"


@pytest.fixture(autouse=True)
def faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(choice, "LARGE_BYTES", 0)
    monkeypatch.setattr(choice, "_faster", lambda *_: DEVICE)


def opened(**options: Any) -> Pipeline:
    return Pipeline.open("demo", OpenOptions(threads=1, **options))


def on_openvino(pipeline: Pipeline) -> bool:
    return isinstance(pipeline.target, OpenVinoModel)


@pytest.mark.parametrize("options", in_full([{}, {"drafter": "none"}, {"draft_length": 3}]))
def test_plain_decoding_and_every_drafter_take_the_same_device(options: dict[str, Any]) -> None:
    with opened(**options) as pipeline:
        assert on_openvino(pipeline)
        assert pipeline.generate(PROMPT, OPTIONS).plan["device"] == DEVICE


@pytest.mark.parametrize(
    "options",
    in_full([{"plan": "none"}, {"device": "cpu"}, {"providers": ("CPUExecutionProvider",)}]),
)
def test_what_the_user_places_stays(options: dict[str, Any]) -> None:
    with opened(**options) as pipeline:
        assert not on_openvino(pipeline)


def test_its_text_is_its_own_plain_decodings() -> None:
    with opened(drafter="none") as pipeline:
        expected = pipeline.generate(PROMPT, OPTIONS).token_ids
    with opened() as pipeline:
        assert pipeline.generate(PROMPT, OPTIONS).token_ids == expected


def test_where_it_does_not_load_what_was_asked_for_takes_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any, **__: Any) -> OpenVinoModel:
        raise RuntimeUnavailable("its library is gone")

    monkeypatch.setattr(OpenVinoModel, "compile", refuse)
    with opened() as pipeline:
        assert not on_openvino(pipeline)
        (note,) = pipeline.notes
        assert "the target on openvino failed (its library is gone)" in note
    with pytest.raises(RuntimeUnavailable, match="its library is gone"):
        opened(device=DEVICE)


def test_a_draft_that_does_not_load_is_still_an_error() -> None:
    with pytest.raises(RuntimeUnavailable, match="no device 'nowhere'"):
        opened(drafter="model", draft_load=LoadOptions(device="nowhere"))


@pytest.mark.parametrize(
    "placed",
    [{"gpu_layers": 1}, {"cores": (0,)}, {"weight_memory": 1 << 20}, {"memory": 1 << 30}],
)
def test_an_option_that_places_the_target_decides(placed: dict[str, Any]) -> None:
    options = OpenOptions(**placed)
    pair = find_pair("demo", options)
    assert on_quickest(pair, options, None) is options
    assert on_quickest(pair, OpenOptions(), None).load.device == DEVICE


def refuse_draft() -> None:
    raise BundleError("the draft is damaged")


@pytest.mark.parametrize("drafter", ["auto", "none"])
@pytest.mark.parametrize(
    ("changes", "beside"),
    [
        ({}, True),
        (None, False),
        ({"format": "gguf"}, False),
        ({"admit": refuse_draft}, False),
    ],
)
def test_kernels_are_compared_with_the_draft_model_of_the_pair_whatever_drafts(
    drafter: str, changes: dict[str, Any] | None, beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []
    monkeypatch.setattr(choice, "_faster", lambda *given: compared.append(given[2]) or DEVICE)
    options = OpenOptions(drafter=drafter)
    pair = find_pair("demo", options)
    assert pair.draft is not None
    draft = None if changes is None else replace(pair.draft, **changes)
    assert on_quickest(replace(pair, draft=draft), options, None).load.device == DEVICE
    assert compared == [pair.draft.path if beside else None]


@pytest.mark.parametrize(("device", "found"), in_full([("openvino", DEVICE), ("cpu", None)]))
def test_where_a_plan_is_not_followed_its_kernels_are(
    device: str, found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "onnxruntime" if found else DEVICE
    monkeypatch.setattr(choice, "_faster", lambda *_: other)
    plan = SimpleNamespace(plan=Plan(Place("onnx", device)))
    monkeypatch.setattr(remembered, "recall", lambda *_: SimpleNamespace(chosen=plan))
    with opened(draft_length=3) as pipeline:
        assert pipeline.generate(PROMPT, OPTIONS).plan["device"] == found


def test_a_pass_that_fails_is_computed_by_what_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise PassFailed("the device is gone")

    with opened() as pipeline:
        monkeypatch.setattr(OpenVinoSession, "forward", fail)
        assert len(pipeline.generate(PROMPT, OPTIONS).token_ids) == 24
        assert not on_openvino(pipeline)


def test_in_mid_text_even_what_was_asked_for_may_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    honest, refusals = OnnxModel.load, ["no memory"]

    def load(*args: Any, **named: Any) -> OnnxModel:
        if refusals:
            raise RuntimeUnavailable(refusals.pop())
        return honest(*args, **named)

    def fail(*_: Any, **__: Any) -> None:
        raise PassFailed("the device is gone")

    with opened(drafter="model") as pipeline:
        monkeypatch.setattr(OpenVinoSession, "forward", fail)
        monkeypatch.setattr(OnnxModel, "load", load)
        result = pipeline.generate(PROMPT, OPTIONS)
        assert len(result.token_ids) == 24
        assert result.plan["drafter"] == "text"
        assert len(pipeline.notes) == 2
