"""The shipped pair as graphs of static shape: the texts are those of the dynamic graph in fp32."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_bundles
from pair_texts import DEMO, PROMPT, prompts, texts

from edgedec.export import ExportOptions

STATIC = {"format": "onnx-static"}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("static") / "bundle"
    options = ExportOptions(
        DEMO / "target", out, DEMO / "draft", formats=("onnx", "onnx-static"), parity=False,
        weights="onnx=fp32,onnx-static=fp32", static_rows=(1, 4, 8), static_context=512,
    )  # fmt: skip
    return tiny_bundles.kept(options)


def test_greedy_texts_are_those_of_the_dynamic_graph(bundle: Path) -> None:
    expected = texts(bundle, prompts(20), 64, format="onnx", drafter="none")
    assert texts(bundle, prompts(20), 64, drafter="none", **STATIC) == expected
    assert texts(bundle, prompts(20), 64, **STATIC) == expected


def test_a_draft_that_works_ahead_changes_no_text(bundle: Path) -> None:
    ahead = {"drafter": "model", "schedule": "overlapped"}
    plain = texts(bundle, [PROMPT], 48, drafter="none", **STATIC)
    assert texts(bundle, [PROMPT], 48, **ahead, **STATIC) == plain
