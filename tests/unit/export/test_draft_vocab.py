"""A draft whose head keeps some tokens: which, what it computes, what it costs, and the text."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import kinds
import numpy as np
import pytest
import tiny_bundles

from edgedec import Pipeline
from edgedec.bundle import Bundle
from edgedec.decoding.session import Want
from edgedec.decoding.tree import TokenTree
from edgedec.errors import BundleError, InputError
from edgedec.export import ExportOptions, export_bundle
from edgedec.export import draft_vocab_weighing as weighing
from edgedec.export.options import FULL, parse_draft_vocab
from edgedec.runtimes.onnx.model import OnnxModel

MODELS = Path(__file__).resolve().parents[3] / "models" / "demo"
KEPT, ALL = 1024, 4096
OPTIONS = ExportOptions(
    MODELS / "target", Path("trimmed"), MODELS / "draft", weights="fp32", calibration="none",
    draft_vocab=KEPT,
)  # fmt: skip
PROMPT = "def read_lines(path):"


@pytest.fixture(scope="module")
def trimmed() -> Path:
    return tiny_bundles.kept(OPTIONS)


@pytest.fixture(scope="module")
def whole() -> Path:
    return tiny_bundles.kept(dataclasses.replace(OPTIONS, draft_vocab=FULL))


def rows(bundle: Path, tokens: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    model = OnnxModel.load(bundle / "draft", threads=1, batch_invariant=False)
    session = model.open(64)
    found = session.forward(TokenTree.chain(tokens), want=Want.LOGITS)
    assert found.logits is not None
    copies = found.logits.copy(), found.top_ids.copy(), found.top_logits.copy()
    session.close()
    model.close()
    return copies


def test_its_logits_are_the_drafts_own_and_no_others(trimmed: Path, whole: Path) -> None:
    tokens = [5, 300, 1200, 77, 4000, 12]
    logits, ids, top = rows(trimmed, tokens)
    expected, _, _ = rows(whole, tokens)
    kept = np.isfinite(logits[0])
    assert kept.sum() == KEPT
    assert (np.isfinite(logits) == kept).all()
    np.testing.assert_allclose(logits[:, kept], expected[:, kept], rtol=1e-5, atol=1e-5)
    assert kept[ids].all()
    np.testing.assert_array_equal(top, np.take_along_axis(logits, ids.astype(np.int64), 1))
    assert (top[:, 0] == logits.max(axis=1)).all()


def test_it_reads_fewer_bytes_and_the_manifest_says_what_it_drafts(
    trimmed: Path, whole: Path
) -> None:
    one, other = Bundle.open(trimmed), Bundle.open(whole)
    assert one.draft is not None
    assert one.draft.variants["onnx"].draft_vocab == KEPT
    assert one.target.variants["onnx"].draft_vocab is None
    assert other.draft is not None
    assert other.draft.variants["onnx"].draft_vocab is None
    (note, _) = json.loads((trimmed / "manifest.json").read_text("utf-8"))["roles"]["draft"][
        "variants"
    ]["onnx"]["notes"]
    assert note == f"drafts {KEPT} of its {ALL} tokens, bytes and the first ones of its merges"


@pytest.mark.parametrize("sampling", kinds.in_full([{"temperature": 0.8, "seed": 3}, {}]))
def test_the_text_is_plain_decodings(trimmed: Path, sampling: dict[str, float]) -> None:
    texts = []
    for drafter in ("none", "model", "hybrid"):
        with Pipeline.open(trimmed, drafter=drafter, draft_length=4, plan="none") as pipeline:
            found = pipeline.generate(PROMPT, max_new_tokens=64, ignore_eos=True, **sampling)
        texts.append(found.token_ids)
        assert found.metrics.accepted_tokens > 0 or drafter == "none"
    assert texts[0] == texts[1] == texts[2]


def test_what_is_always_kept(trimmed: Path) -> None:
    logits, _, _ = rows(trimmed, [5])
    kept = np.isfinite(logits[0])
    with Pipeline.open(trimmed, drafter="none") as pipeline:
        tokenizer = pipeline.tokenizer
    data = tokenizer.token_bytes(ALL)
    single = [token for token, text in enumerate(data) if text is not None and len(text) == 1]
    assert len(single) >= 250
    assert kept[single].all()
    assert kept[list(tokenizer.special_ids & set(tokenizer.encode("<|end|>")))].all()
    # Of the others, those that were merged first.
    assert kept.sum() > len(single)
    assert not kept.all()


@pytest.mark.parametrize("count", [10, ALL, 10 * ALL])
def test_too_few_and_too_many_are_refused(count: int, tmp_path: Path) -> None:
    options = dataclasses.replace(OPTIONS, out=tmp_path / "b", draft_vocab=count)
    with pytest.raises(InputError, match=rf"--draft-vocab {count}: expected \d+ .* to {ALL - 1}"):
        export_bundle(options)
    assert not (tmp_path / "b").exists()


def test_what_it_is_not_for(tmp_path: Path) -> None:
    options = dataclasses.replace(OPTIONS, out=tmp_path / "b")
    with pytest.raises(InputError, match="--draft-vocab 1024 is for onnx"):
        export_bundle(dataclasses.replace(options, formats=("gguf",), weights=None))
    with pytest.raises(InputError, match="--draft-vocab 1024 is for a draft: add --draft"):
        export_bundle(dataclasses.replace(options, draft=None))
    for given in ("", "0", "-1", "many", "1.5"):
        with pytest.raises(InputError, match="expected a number of tokens"):
            parse_draft_vocab(given)
    assert [parse_draft_vocab(given) for given in ("auto", "full", "512", 512)] == [
        "auto", "full", 512, 512,
    ]  # fmt: skip


def test_a_manifest_that_says_something_else_is_refused(trimmed: Path, tmp_path: Path) -> None:
    manifest = json.loads((trimmed / "manifest.json").read_text("utf-8"))
    manifest["roles"]["draft"]["variants"]["onnx"]["draft_vocab"] = "some"
    for name in manifest["files"]:
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_bytes((trimmed / name).read_bytes())
    (tmp_path / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    with pytest.raises(BundleError, match="draft_vocab"):
        Bundle.open(tmp_path)


# -- how many ----------------------------------------------------------------------------------


def test_the_speed_is_that_of_the_best_length() -> None:
    target_s = {1 + length: 1.0 for length in range(1, 9)}
    # Free drafts that are half right: the longest draft is best, 1 + 1/2 + ... + 1/256.
    chances = np.full(100, 0.5)
    assert weighing.speed(chances, target_s, 0.0) == pytest.approx(2 - 2**-8)
    # Where a draft costs as much as the target, one token is: 1.5 tokens in two seconds.
    assert weighing.speed(chances, target_s, 1.0) == pytest.approx(0.75)
    # A chance that is never the second in a row makes the second token worthless.
    alternating = np.array([1.0, 0.0] * 50)
    assert weighing.speed(alternating, target_s, 0.0) == pytest.approx(1.5, rel=0.02)


def test_the_most_tokens_of_the_nearly_fastest_are_kept() -> None:
    assert weighing.best({0: 1.0, 1024: 1.2, 2048: 1.199, 4096: 1.1}) == (2048, 1.199)
    assert weighing.best({0: 1.0, 1024: 0.8, 2048: 1.005}) == (0, 1.005)
    assert weighing.candidates(300, 4096) == [1024, 1536, 2048, 3072]
    assert weighing.candidates(1200, 2300) == [1536]
    assert weighing.candidates(300, 1200) == []


def test_times_that_contradict_each_other_show_no_gain() -> None:
    """Less work takes no longer: a narrow pass that did was disturbed."""
    found = weighing.undisturbed({0: 3.0, 4096: 4.0, 1024: 5.0}, [0, 4096, 1024])
    assert found == {0: 3.0, 4096: 3.0, 1024: 3.0}
    assert weighing.undisturbed({2: 1.0, 4: 2.0}, [4, 2]) == {2: 1.0, 4: 2.0}


def test_auto_weighs_a_large_head_and_says_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weighing, "LEAST_NUMBERS", 0)
    monkeypatch.setattr(weighing, "_TURNS", 2)
    options = ExportOptions(
        MODELS / "target", tmp_path / "b", MODELS / "draft", weights="int4", parity=False
    )
    _, draft = export_bundle(options).models
    said = " ".join(draft.notes)
    assert "by what was measured here" in said
    assert ("drafts all of its 4096 tokens" in said) == (draft.draft_vocab is None)


def test_the_chances_are_the_overlap_of_both_distributions() -> None:
    target = OnnxModel.load(MODELS / "bundle" / "target", threads=1, batch_invariant=False)
    text = [5, 300, 1200, 77]
    order = list(range(ALL))
    found = weighing.chances_on(target, target, text, order, [ALL // 2])
    target.close()
    # A model always agrees with itself, and less with a half of itself.
    np.testing.assert_allclose(found[0], 1.0, rtol=1e-5)
    assert (found[ALL // 2] < 1).all()
    assert (found[ALL // 2] > 0).all()
