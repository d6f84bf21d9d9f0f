"""The shipped pair in CoreML, through the interpreter: the texts are ONNX's in fp32."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_bundles
from pair_texts import DEMO, PROMPT, prompts, texts

from edgedec.export import ExportOptions

REFERENCE = {"format": "coreml", "device": "reference"}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("coreml") / "bundle"
    options = ExportOptions(
        DEMO / "target", out, DEMO / "draft", formats=("onnx", "coreml"), parity=False,
        weights="onnx=fp32,coreml=fp16", max_context=256,
    )  # fmt: skip
    return tiny_bundles.kept(options)


def compare(bundle: Path, count: int, tokens: int) -> None:
    expected = texts(bundle, prompts(count), tokens, format="onnx", drafter="none")
    assert texts(bundle, prompts(count), tokens, drafter="none", **REFERENCE) == expected


def test_greedy_texts_are_onnxs(bundle: Path) -> None:
    compare(bundle, 2, 24)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_many_greedy_texts_are_onnxs(bundle: Path) -> None:
    compare(bundle, 20, 64)


def test_a_draft_that_works_ahead_changes_no_text(bundle: Path) -> None:
    ahead = {"drafter": "model", "schedule": "overlapped"}
    plain = texts(bundle, [PROMPT], 48, drafter="none", **REFERENCE)
    assert texts(bundle, [PROMPT], 48, **ahead, **REFERENCE) == plain
