"""The shipped pair as graphs of fixed shape: the texts are those of the dynamic graph in fp32."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from edgedec.export import ExportOptions, export_bundle
from edgedec.models.demo import heldout
from edgedec.pipeline import Pipeline
from edgedec.runtimes._fixed.executor import Array
from edgedec.runtimes.onnx_static.session import StaticSession

DEMO = Path(heldout.__file__).parent
STATIC = {"format": "onnx-static"}
PROMPT = "import os\n\n\ndef read_lines(path):"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("static") / "bundle"
    options = ExportOptions(
        DEMO / "target", out, DEMO / "draft", formats=("onnx", "onnx-static"), parity=False,
        weights="onnx=fp32,onnx-static=fp32", static_rows=(1, 4, 8), static_context=512,
    )  # fmt: skip
    export_bundle(options)
    return out


def texts(bundle: Path, prompts: Sequence[str], tokens: int, **options: object) -> list[str]:
    with Pipeline.open(bundle, plan="none", **options) as pipeline:
        return [
            pipeline.generate(prompt, max_new_tokens=tokens, ignore_eos=True).text
            for prompt in prompts
        ]


def prompts(count: int) -> list[str]:
    return [prompt.text[-400:] for prompt in heldout.heldout_prompts(count)]


def test_greedy_texts_are_those_of_the_dynamic_graph(bundle: Path) -> None:
    expected = texts(bundle, prompts(20), 64, format="onnx", draft="none")
    assert texts(bundle, prompts(20), 64, draft="none", **STATIC) == expected
    assert texts(bundle, prompts(20), 64, **STATIC) == expected


class SeesPadding(StaticSession):
    """Its last row counts what only fills the pass up."""

    def _bias(self, mask: Array, slots: Sequence[int], width: int) -> Array:
        bias = super()._bias(mask, slots, width)
        bias[..., len(slots) - width :] = 0
        return bias


class LosesARow(StaticSession):
    """The last token of each pass is not kept."""

    def _written(self, slots: Sequence[int], width: int) -> dict[str, Array]:
        feeds = super()._written(slots, width)
        return {name: value[:-1] if len(value) > 1 else value for name, value in feeds.items()}


@pytest.mark.parametrize("twin", [SeesPadding, LosesARow])
def test_what_is_broken_changes_the_texts(
    bundle: Path, twin: type[StaticSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = texts(bundle, prompts(4), 32, format="onnx", draft="none")
    assert texts(bundle, prompts(4), 32, draft="none", **STATIC) == expected
    monkeypatch.setattr("edgedec.runtimes.onnx_static.model.StaticModel.session", twin)
    assert texts(bundle, prompts(4), 32, draft="none", **STATIC) != expected


def drafted(bundle: Path, drafter: str) -> list[str]:
    with Pipeline.open(bundle, plan="none", draft=drafter, draft_length=6, **STATIC) as pipeline:
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
def test_a_branch_that_is_not_kept_changes_the_text(
    bundle: Path, plain: list[str], drafter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first(self: StaticSession, path: Sequence[int]) -> list[int]:
        return self._places[: len(path)]

    monkeypatch.setattr(StaticSession, "_gather", first)
    assert drafted(bundle, drafter) != plain


def test_a_draft_that_works_ahead_changes_no_text(bundle: Path, plain: list[str]) -> None:
    with Pipeline.open(
        bundle, plan="none", draft="model", schedule="overlapped", **STATIC
    ) as pipeline:
        assert pipeline.generate(PROMPT, max_new_tokens=48, ignore_eos=True).text == plain[0]
