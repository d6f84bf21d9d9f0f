"""A target in llama.cpp, with its head on ONNX Runtime: the same drafts, and the target's texts."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import demo_head
import mimo_case
import pytest
import tiny_bundles
from kinds import in_full

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")
pytest.importorskip("gguf", reason="gguf is not installed: extra gguf")

from edgedec import Pipeline
from edgedec.bundle import Bundle
from edgedec.decoding.drafting.head import HeadDrafter
from edgedec.decoding.tree import Draft
from edgedec.errors import BundleError, InputError
from edgedec.export import ExportOptions, export_bundle, head_export, sample
from edgedec.loading.build import find_pair
from edgedec.loading.heads import too_large
from edgedec.loading.options import OpenOptions
from edgedec.runtimes.llamacpp import taps
from edgedec.runtimes.llamacpp.context import Context

PROMPT = "def read_lines(path):"
SAMPLED, NUCLEUS = {"temperature": 0.8, "seed": 5}, {"temperature": 1.1, "top_p": 0.9, "seed": 6}
EACH = [
    ("head", {}), ("auto", SAMPLED),
    ("auto", {}), ("head", SAMPLED), ("head", NUCLEUS), ("auto", NUCLEUS),
]  # fmt: skip
Drafts = list[tuple[int, list[int]]]


@pytest.fixture(scope="module")
def both() -> Path:
    """The demo target in both formats, with its head, in fp32."""
    options = ExportOptions(
        demo_head.MODELS / "target", Path("both"), head=demo_head.MODELS / "head",
        formats=("onnx", "gguf"), weights="onnx=fp32,gguf=f32", calibration="none",
    )  # fmt: skip
    return tiny_bundles.kept(options)


def opened(bundle: Path, drafter: str, format: str = "gguf", **more: Any) -> Pipeline:
    kv = {"kv": "f32"} if format == "gguf" else {}
    return Pipeline.open(bundle, format=format, drafter=drafter, threads=1, **kv, **more)


@pytest.fixture(scope="module")
def plain(both: Path) -> Iterator[Pipeline]:
    with opened(both, "none") as pipeline:
        yield pipeline


def test_the_export_measures_it_in_both_formats(both: Path) -> None:
    manifest = json.loads((both / "manifest.json").read_text("utf-8"))
    figures = manifest["roles"]["head"]["variants"]["onnx"]["parity"]
    assert abs(figures["agreement_gguf"] - figures["agreement_1"]) < 0.02


@pytest.mark.full
def test_states_that_are_wrong_in_one_format_are_warned_of(
    both: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(both, "none") as pipeline:
        text = list(pipeline.tokenizer.encode(sample.TEXT))[:200]

    def share() -> float:
        head = Bundle.open(both).head
        assert head is not None
        given = head.taps, both / "target", [text], 0.6
        return head_export._elsewhere(["gguf"], *given)["agreement_gguf"]

    with caplog.at_level(logging.WARNING, "edgedec"):
        right = share()
        assert caplog.text == ""
        states = Context.states
        monkeypatch.setattr(Context, "states", lambda self, count: -states(self, count))
        assert share() < right - 0.2
    assert "in gguf, and in 60% in onnx: use --format onnx" in caplog.text


@pytest.mark.parametrize(("drafter", "options"), in_full(EACH, 2))
def test_texts(both: Path, plain: Pipeline, drafter: str, options: dict[str, Any]) -> None:
    length = {"draft_length": 3} if drafter == "head" else {}
    with opened(both, drafter, **length) as headed:
        given = PROMPT
        for _ in range(2):
            expected = plain.generate(given, max_new_tokens=24, **options)
            result = headed.generate(given, max_new_tokens=24, **options)
            assert result.token_ids == expected.token_ids
            given += expected.text
        assert headed.engine.drafter.name == ("headed" if drafter == "auto" else "head")
        if not options and length:  # by measured cost a short text may draft nothing
            assert result.metrics.accepted_tokens > 0


def drafts(bundle: Path, format: str, monkeypatch: pytest.MonkeyPatch) -> Drafts:
    """Each draft of a text: its root, and what the head drew below."""
    propose, seen = HeadDrafter.propose, Drafts()

    def watched(drafter: HeadDrafter, root: int, *given: Any) -> Draft:
        draft = propose(drafter, root, *given)
        seen.append((root, list(draft.tree.tokens)[1:]))
        return draft

    with monkeypatch.context() as patch, opened(bundle, "head", format, draft_length=3) as headed:
        patch.setattr(HeadDrafter, "propose", watched)
        headed.generate(PROMPT, max_new_tokens=36, ignore_eos=True)
    return seen


def test_the_head_drafts_what_it_drafts_for_the_target_in_onnx(
    both: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = drafts(both, "onnx", monkeypatch)
    assert sum(len(drafted) for _, drafted in expected) > 30
    assert drafts(both, "gguf", monkeypatch) == expected
    # The control: states that are a little off.
    states = Context.states
    monkeypatch.setattr(Context, "states", lambda self, count: states(self, count)[:, ::-1].copy())
    assert drafts(both, "gguf", monkeypatch) != expected


def refused(kind: type[Exception], words: str, bundle: Path, **options: Any) -> None:
    with pytest.raises(kind, match=words):
        opened(bundle, "head", **options)


def test_a_target_that_shows_nothing(both: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taps, "ARCHITECTURES", ())
    refused(InputError, "is for onnx, not for gguf: give --format onnx", both)
    with opened(both, "auto") as pipeline:
        assert pipeline.engine.drafter.name not in ("head", "headed")


@pytest.mark.parametrize(
    ("taps", "words"), [([1, 2], "before layers"), ("2", "taps is '2', expected a list of sizes")]
)
def test_a_manifest_with_other_layers(both: Path, tmp_path: Path, taps: object, words: str) -> None:
    bundle = shutil.copytree(both, tmp_path / "b")
    file = bundle / "manifest.json"
    manifest = json.loads(file.read_text("utf-8"))
    manifest["roles"]["head"]["taps"] = taps
    file.write_text(json.dumps(manifest), "utf-8")
    refused(BundleError, words, bundle)


def test_its_memory_is_that_of_its_own_files(both: Path, plain: Pipeline) -> None:
    """The embedding, in the file of the target in ONNX, is looked up by rows."""
    bundle, small = Bundle.open(both), find_pair(both, OpenOptions(format="gguf"))
    assert small.head is not None
    said = too_large(small.head, bundle, plain.target, OpenOptions(memory=2_000_000))
    (held,) = map(float, re.findall(r"takes about ([0-9.]+) MB", said))
    own = ("head.onnx.data", "fuse.onnx.data")
    weights = sum((both / "target" / name).stat().st_size for name in own) / 1e6
    assert weights < held < 1.5 * weights + 13


def test_a_head_that_reads_the_last_stream_is_for_onnx_alone(tmp_path: Path) -> None:
    """MiMo's: in llama.cpp its target is one without a head, for comparisons as well."""
    out = tmp_path / "b"
    export_bundle(
        ExportOptions(
            mimo_case.checkpoint(tmp_path / "mimo"), out, formats=("onnx", "gguf"),
            weights="onnx=fp32,gguf=f32", calibration="none", parity=False,
        )
    )  # fmt: skip
    assert find_pair(out, OpenOptions(format="onnx")).head is not None
    assert find_pair(out, OpenOptions(format="gguf")).head is None
    refused(InputError, "is for onnx, not for gguf: give --format onnx", out)
    with opened(out, "auto") as pipeline:
        assert pipeline.engine.drafter.name == "text"
