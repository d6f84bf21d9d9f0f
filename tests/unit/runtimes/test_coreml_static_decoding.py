"""The shipped pair in CoreML, by the interpreter, and in graphs of static shape: ONNX's texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny_bundles
from pair_texts import DEMO, PROMPT, prompts, texts

from edgedec.export import ExportOptions

# How it is exported, how it is opened, and how many texts of how many tokens are compared.
FORMATS: dict[str, tuple[dict[str, Any], dict[str, Any], int, int]] = {
    "coreml": ({"max_context": 256}, {"device": "reference"}, 2, 24),
    "onnx-static": ({"static_rows": (1, 4, 8), "static_context": 512}, {}, 20, 64),
}
WEIGHTS = {"coreml": "fp16", "onnx-static": "fp32"}


@pytest.fixture(scope="module", params=FORMATS)
def format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def bundle(format: str) -> Path:
    options = ExportOptions(
        DEMO / "target", Path("bundle"), DEMO / "draft", formats=("onnx", format), parity=False,
        weights=f"onnx=fp32,{format}={WEIGHTS[format]}", **FORMATS[format][0],
    )  # fmt: skip
    return tiny_bundles.kept(options)


def compare(bundle: Path, format: str, count: int, tokens: int) -> None:
    opened = {"format": format, **FORMATS[format][1]}
    expected = texts(bundle, prompts(count), tokens, format="onnx", drafter="none")
    assert texts(bundle, prompts(count), tokens, drafter="none", **opened) == expected
    assert texts(bundle, prompts(count), tokens, **opened) == expected


def test_greedy_texts_are_onnxs(bundle: Path, format: str) -> None:
    compare(bundle, format, *FORMATS[format][2:])


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("format", ["coreml"], indirect=True)
def test_many_greedy_texts_are_onnxs(bundle: Path, format: str) -> None:
    compare(bundle, format, 20, 64)


def test_a_draft_that_works_ahead_changes_no_text(bundle: Path, format: str) -> None:
    opened = {"format": format, **FORMATS[format][1]}
    plain = texts(bundle, [PROMPT], 48, drafter="none", **opened)
    assert texts(bundle, [PROMPT], 48, drafter="model", schedule="overlapped", **opened) == plain
