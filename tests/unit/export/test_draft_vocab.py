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
from edgedec.export import ExportOptions, draft_vocab, export_bundle
from edgedec.export.options import FULL, parse_draft_vocab
from edgedec.runtimes.onnx.model import OnnxModel

MODELS = Path(__file__).resolve().parents[3] / "models" / "demo"
KEPT, ALL = 1024, 4096
OPTIONS = ExportOptions(
    MODELS / "target", Path("trimmed"), MODELS / "draft", weights="fp32", calibration="none",
    draft_vocab=KEPT, parity=False,
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
            found = pipeline.generate(PROMPT, max_new_tokens=32, ignore_eos=True, **sampling)
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
    with pytest.raises(
        InputError, match="auto was removed: leave it out, or give a number or full"
    ):
        parse_draft_vocab("auto")
    assert [parse_draft_vocab(given) for given in (None, "full", "512", 512)] == [
        None, "full", 512, 512,
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


CHOSEN = dataclasses.replace(
    OPTIONS, target=MODELS / "draft", weights="int4", calibration="self", draft_vocab=None
)


@pytest.mark.full  # test_export_mtp.py has the rule on tiny models
@pytest.mark.parametrize(("large", "kept"), [(1 / 3, 3072), (0.9, None)])
def test_a_large_head_is_trimmed_where_the_target_wrote(
    large: float, kept: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The demo's is half of its draft, and too small to be worth it."""
    monkeypatch.setattr(draft_vocab, "_LEAST_NUMBERS", 0)
    monkeypatch.setattr(draft_vocab, "_LARGE", large)
    _, draft = export_bundle(dataclasses.replace(CHOSEN, out=tmp_path / "b")).models
    assert draft.draft_vocab == kept
    said = [note for note in draft.notes if "of what the target wrote" in note]
    assert len(said) == (kept is not None)


@pytest.mark.full
def test_a_small_head_keeps_all(tmp_path: Path) -> None:
    options = dataclasses.replace(CHOSEN, out=tmp_path / "b")
    assert export_bundle(options).models[1].draft_vocab is None
