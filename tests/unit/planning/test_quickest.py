"""Where neither a plan nor the user places a target, it computes on the device that is faster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgedec import GenerateOptions, Pipeline
from edgedec.errors import PassFailed, RuntimeUnavailable
from edgedec.loading.build import OpenOptions

pytest.importorskip("openvino", reason="needs the extra openvino")

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


@pytest.mark.parametrize("options", [{}, {"draft": "none"}, {"draft_length": 3}])
def test_plain_decoding_and_every_drafter_take_the_same_device(options: dict[str, Any]) -> None:
    with opened(**options) as pipeline:
        assert on_openvino(pipeline)
        assert pipeline.generate(PROMPT, OPTIONS).plan["device"] == DEVICE


@pytest.mark.parametrize(
    "options", [{"plan": "none"}, {"device": "cpu"}, {"providers": ("CPUExecutionProvider",)}]
)
def test_what_the_user_places_stays(options: dict[str, Any]) -> None:
    with opened(**options) as pipeline:
        assert not on_openvino(pipeline)


def test_its_text_is_its_own_plain_decodings() -> None:
    with opened(draft="none") as pipeline:
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


def test_a_pass_that_fails_is_computed_by_what_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise PassFailed("the device is gone")

    with opened() as pipeline:
        monkeypatch.setattr(OpenVinoSession, "forward", fail)
        assert len(pipeline.generate(PROMPT, OPTIONS).token_ids) == 24
        assert not on_openvino(pipeline)
