"""The shipped pair in CoreML, through the interpreter: the texts are ONNX's in fp32."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from edgedec.export import ExportOptions, export_bundle
from edgedec.models.demo import heldout
from edgedec.pipeline import Pipeline
from edgedec.runtimes.coreml.slicing import SliceSession

DEMO = Path(heldout.__file__).parent
REFERENCE = {"format": "coreml", "device": "reference"}
PROMPT = "import os\n\n\ndef read_lines(path):"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("coreml") / "bundle"
    options = ExportOptions(
        DEMO / "target", out, DEMO / "draft", formats=("onnx", "coreml"), parity=False,
        weights="onnx=fp32,coreml=fp16", max_context=256,
    )  # fmt: skip
    export_bundle(options)
    return out


def texts(bundle: Path, prompts: Sequence[str], tokens: int, **options: object) -> list[str]:
    with Pipeline.open(bundle, plan="none", **options) as pipeline:
        return [
            pipeline.generate(prompt, max_new_tokens=tokens, ignore_eos=True).text
            for prompt in prompts
        ]


def compare(bundle: Path, count: int, tokens: int) -> None:
    prompts = [prompt.text[-400:] for prompt in heldout.heldout_prompts(count)]
    expected = texts(bundle, prompts, tokens, format="onnx", draft="none")
    assert texts(bundle, prompts, tokens, draft="none", **REFERENCE) == expected


def test_greedy_texts_are_onnxs(bundle: Path) -> None:
    compare(bundle, 2, 24)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_many_greedy_texts_are_onnxs(bundle: Path) -> None:
    compare(bundle, 20, 64)


def drafted(bundle: Path, drafter: str) -> list[str]:
    with Pipeline.open(bundle, plan="none", draft=drafter, draft_length=6, **REFERENCE) as pipeline:
        return [
            pipeline.generate(PROMPT, max_new_tokens=48, ignore_eos=True, **each).text
            for each in ({}, {"temperature": 0.8, "seed": 3})
        ]


@pytest.fixture(scope="module")
def plain(bundle: Path) -> list[str]:
    return drafted(bundle, "none")


@pytest.mark.parametrize("drafter", ["model", "tree", "lookup", "recycle", "text"])
def test_the_text_does_not_depend_on_what_is_drafted(
    bundle: Path, plain: list[str], drafter: str
) -> None:
    assert drafted(bundle, drafter) == plain


@pytest.mark.parametrize("drafter", ["tree", "recycle"])
def test_rows_that_are_left_where_they_are_change_the_text(
    bundle: Path, plain: list[str], drafter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SliceSession, "_move", lambda self, sources, to: None)
    assert drafted(bundle, drafter) != plain


def test_a_draft_that_works_ahead_changes_no_text(bundle: Path, plain: list[str]) -> None:
    with Pipeline.open(
        bundle, plan="none", draft="model", schedule="overlapped", **REFERENCE
    ) as pipeline:
        assert pipeline.generate(PROMPT, max_new_tokens=48, ignore_eos=True).text == plain[0]
