"""The shipped pair as graphs of static shape: the texts are those of the dynamic graph in fp32."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import tiny_bundles
from pair_texts import DEMO, drafted, overlapped, prompts, texts

from edgedec.export import ExportOptions
from edgedec.runtimes._static.executor import Array
from edgedec.runtimes.onnx_static.model import StaticSession

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
    expected = texts(bundle, prompts(4), 32, format="onnx", drafter="none")
    assert texts(bundle, prompts(4), 32, drafter="none", **STATIC) == expected
    monkeypatch.setattr("edgedec.runtimes.onnx_static.model.StaticModel.session", twin)
    assert texts(bundle, prompts(4), 32, drafter="none", **STATIC) != expected


@pytest.fixture(scope="module")
def plain(bundle: Path) -> list[str]:
    return drafted(bundle, "none", **STATIC)


@pytest.mark.parametrize("drafter", ["model", "tree", "lookup", "recycle", "text"])
def test_the_text_does_not_depend_on_what_is_drafted(
    bundle: Path, plain: list[str], drafter: str
) -> None:
    assert drafted(bundle, drafter, **STATIC) == plain


@pytest.mark.parametrize("drafter", ["tree", "recycle"])
def test_a_branch_that_is_not_kept_changes_the_text(
    bundle: Path, plain: list[str], drafter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first(self: StaticSession, path: Sequence[int]) -> list[int]:
        return self._pending_slots[: len(path)]

    monkeypatch.setattr(StaticSession, "_gather", first)
    assert drafted(bundle, drafter, **STATIC) != plain


def test_a_draft_that_works_ahead_changes_no_text(bundle: Path, plain: list[str]) -> None:
    assert overlapped(bundle, **STATIC) == plain[0]
