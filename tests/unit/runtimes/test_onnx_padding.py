"""The padding that makes rows independent of each other: found by trial, and it holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kinds import in_full
from tiny_models import write_tiny_model

from edgedec.decoding.session import Want
from edgedec.decoding.tree import TokenTree
from edgedec.errors import RuntimeUnavailable
from edgedec.runtimes._ort.opening import attention_by_rows
from edgedec.runtimes.onnx import model as onnx_model
from edgedec.runtimes.onnx import passes
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.runtimes.onnx.padding import (
    ELSEWHERE,
    HERE,
    NO_PADDING,
    ON_ARM,
    Padding,
    Run,
    find_padding,
)

NONE, ATTENTION, NO_LONE_ROW, EVEN, FOUR = ELSEWHERE.asked
ATTENTION_FOURS, BOTH, FOURS = ON_ARM.asked


@pytest.fixture(autouse=True)
def nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test searches, also where an earlier one has."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def kernel(low_bits: Callable[[int, int], float], *, attention: bool = False) -> Run:
    """A machine whose row ``row`` of ``rows`` is off by ``low_bits(rows, row)``.

    In products, or in attention, which alone may be padded.
    """

    def run(padding: Padding, tokens: Sequence[int], past: int) -> tuple[Any, Any]:
        count = len(tokens)
        rows = padding.rows(count, past) if attention else len(padding.pad(tokens, past))
        values = [token + low_bits(rows, row) for row, token in enumerate(tokens)]
        array = np.array(values, np.float64)[:, None]
        return array, array

    return run


@pytest.mark.parametrize(
    ("low_bits", "expected"),
    [
        (lambda rows, row: 0.0, NONE),
        (lambda rows, row: 1e-6 * (rows == 1), NO_LONE_ROW),
        (lambda rows, row: 1e-6 * (rows % 2 and row == rows - 1), EVEN),
        (lambda rows, row: 1e-6 * (row >= rows - rows % 4), FOUR),
        (lambda rows, row: 1e-6 * rows, None),
    ],
)
def test_the_cheapest_padding_that_holds(
    low_bits: Callable[[int, int], float], expected: Padding | None
) -> None:
    assert find_padding(kernel(low_bits), 100, ELSEWHERE.asked) == expected


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 7, 8, 9])
def test_a_width_that_differs_is_noticed(width: int) -> None:
    assert (
        find_padding(kernel(lambda rows, row: 1e-6 * (rows == width)), 100, ELSEWHERE.asked) != NONE
    )


@pytest.mark.parametrize("length", range(12, 18))
def test_a_lone_row_that_differs_after_a_text_of_one_length_is_noticed(length: int) -> None:
    def run(padding: Padding, tokens: Sequence[int], past: int) -> tuple[Any, Any]:
        rows = len(padding.pad(tokens, past))
        off = 1e-6 * (rows == 1 and past + len(tokens) == length)
        array = np.array([token + off for token in tokens], np.float64)[:, None]
        return array, array

    assert find_padding(run, 100, ELSEWHERE.asked) == NO_LONE_ROW


def test_parts_leave_the_cache_before_them_as_the_whole_text_wrote_it() -> None:
    # Each slot holds the pass that wrote it last; a part may see those of the whole text alone.
    written, seen, passes = ["before"] * 11 + [""] * 20, set[str](), list[int]()

    def run(padding: Padding, tokens: Sequence[int], past: int) -> tuple[Any, Any]:
        rows, name = len(padding.pad(tokens, past)), f"{padding.name} {len(tokens)}"
        seen.update(one for one in written[11:past] if one != f"{padding.name} 9")
        written[past : past + rows] = [name] * rows
        passes.append(rows)
        off = [
            1e-6 * (rows == 1) + 1e-3 * (1 < rows == row + 1) * (rows % 2) for row in range(rows)
        ]
        array = np.array([token + bits for token, bits in zip(tokens, off, strict=False)])[:, None]
        return array, array

    assert find_padding(run, 100, ELSEWHERE.asked) == EVEN
    assert not seen
    assert len(passes) == 1 + 3 * 2 + 14, "a padding that fails does so at once"


def test_attention_is_padded_where_it_alone_differs() -> None:
    off = kernel(lambda rows, row: 1e-6 * (rows == 1), attention=True)
    assert find_padding(off, 100, ELSEWHERE.asked) == ATTENTION
    odd = kernel(lambda rows, row: 1e-6 * (rows % 2 and row == rows - 1), attention=True)
    assert find_padding(odd, 100, ELSEWHERE.asked) == EVEN


def last_columns(*, products: bool) -> Run:
    """An ARM processor: the last keys, up to three, and a lone row are computed in another way."""

    def run(padding: Padding, tokens: Sequence[int], past: int) -> tuple[Any, Any]:
        rows = padding.rows(len(tokens), past)
        total = past + rows
        lone = rows == 1 or (products and len(padding.pad(tokens, past)) == 1)
        off = [1e-6 * (past + row >= total - total % 4) + 1e-3 * lone for row in range(len(tokens))]
        array = np.array([token + bits for token, bits in zip(tokens, off, strict=True)])[:, None]
        return array, array

    return run


def test_keys_are_padded_to_fours_where_the_last_columns_differ() -> None:
    assert find_padding(last_columns(products=False), 100, ON_ARM.asked) == ATTENTION_FOURS
    assert find_padding(last_columns(products=True), 100, ON_ARM.asked) == BOTH
    for products in (True, False):
        assert find_padding(last_columns(products=products), 100, [FOURS]) == FOURS
        assert find_padding(last_columns(products=products), 100, ELSEWHERE.asked) is None


def test_rows_of_a_pass() -> None:
    assert [ATTENTION.rows(n, 5) for n in (1, 2, 17)] == [2, 2, 18]
    assert ATTENTION.pad([7], 5) == [7]
    assert NO_LONE_ROW.pad([7], 5) == BOTH.pad([7], 5) == [7, 7]
    assert [NONE.rows(n, 5) for n in (1, 2, 3)] == [1, 2, 3]
    assert [NO_LONE_ROW.rows(n, 5) for n in (1, 2, 3, 16, 17, 33)] == [2, 2, 3, 16, 18, 34]
    assert [EVEN.rows(n, 5) for n in (1, 2, 3, 16, 17)] == [2, 2, 4, 16, 18]
    assert [FOUR.rows(n, 5) for n in (1, 4, 5)] == [4, 4, 8]
    assert [FOURS.rows(1, past) for past in range(8, 12)] == [4, 3, 2, 5]
    assert [FOURS.rows(n, 3) for n in (2, 5, 14, 17)] == [5, 5, 21, 21]
    for padding in (*ELSEWHERE.asked, *ON_ARM.asked):
        added = [padding.rows(n, past) - n for n in range(1, 100) for past in range(8)]
        assert max(added) == padding.slack


# All kernels that a decoder can be made of.
KINDS: dict[str, dict[str, Any]] = {
    "llama": {},
    "gemma2": {"model_type": "gemma2", "sliding_window": 20},
    "stablelm": {"model_type": "stablelm", "use_parallel_residual": True, "qk_layernorm": True},
    "gpt2": {"model_type": "gpt2"},
    "gpt_neox": {"model_type": "gpt_neox", "hidden_act": "gelu", "num_key_value_heads": 4},
}
FOLDERS = [
    ("fp32", "llama", "own rows"),
    ("fp32", "llama"),
    ("int8", "llama"),
    *(("int4", kind) for kind in KINDS),
    *(("int4", kind, "own rows") for kind in KINDS),
]


@pytest.fixture(scope="module", params=FOLDERS, ids="-".join)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    weights, kind, *own = request.param
    return written(tmp_path_factory.mktemp(kind), weights, kind, own_rows=bool(own))


def written(folder: Path, weights: str, kind: str, *, own_rows: bool) -> Path:
    write_tiny_model(folder, weights, own_rows=own_rows, **KINDS[kind])
    return folder


def decode(model: OnnxModel, text: Sequence[int], cuts: Sequence[int]) -> tuple[Any, Any]:
    """Logits of each token and the cache after it, in passes of these widths."""
    session = model.open(len(text) + 8)
    session.prefill(text[:7])
    rows = []
    at = 7
    for width in cuts:
        scored = session.forward(TokenTree.chain(text[at : at + width]), want=Want.LOGITS)
        assert scored.logits is not None
        rows.append(scored.logits.copy())
        kept = min(width, len(text) - at)
        session.commit(list(range(kept)))
        at += kept
    cache = session._cache.rows[:, :, : len(text)].copy()
    session.close()
    return np.concatenate(rows), cache


def random_cuts(rng: np.random.Generator, total: int, widest: int) -> list[int]:
    cuts: list[int] = []
    while sum(cuts) < total:
        cuts.append(min(int(rng.integers(1, widest + 1)), total - sum(cuts)))
    return cuts


@pytest.mark.parametrize(("widest", "threads"), in_full([(6, 2), (40, 1), (6, 1), (40, 2)], 2))
def test_however_the_text_is_cut(folder: Path, widest: int, threads: int) -> None:
    model = OnnxModel.load(folder, batch_invariant=True, threads=threads)
    assert model.capabilities.batch_invariant
    rng = np.random.default_rng(widest)
    for _ in range(6):
        text = [int(t) for t in rng.integers(0, model.info.vocab_size, 90)]
        plain, plain_cache = decode(model, text, [1] * 83)
        rows, cache = decode(model, text, random_cuts(rng, 83, widest))
        np.testing.assert_array_equal(rows, plain)
        np.testing.assert_array_equal(cache, plain_cache)


def test_without_padding_rows_differ(folder: Path, request: pytest.FixtureRequest) -> None:
    # The control of the test above: were it blind, this would fail.
    weights, kind, *own = request.node.callspec.params["folder"]
    if HERE is ON_ARM and (kind == "gemma2" or (weights == "int4" and own)):
        pytest.skip("this model's products and attention do not differ on this processor")
    model = OnnxModel.load(folder, batch_invariant=False)
    assert not model.capabilities.batch_invariant
    rng = np.random.default_rng(0)
    text = [int(t) for t in rng.integers(0, model.info.vocab_size, 90)]
    plain, _ = decode(model, text, [1] * 83)
    rows, _ = decode(model, text, [4] * 20 + [3])
    assert not np.array_equal(rows, plain)


def test_the_last_token_of_the_context(folder: Path) -> None:
    model = OnnxModel.load(folder, batch_invariant=True)
    session = model.open(model.info.max_context)
    session.prefill([1] * (model.info.max_context - 3))
    session.forward(TokenTree.chain([2, 3]))
    session.commit([0, 1])
    session.forward(TokenTree(4))
    session.commit([0])
    assert session.length == session.capacity


def test_where_no_padding_is_enough(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_model, "find_padding", lambda *_: None)
    assert not OnnxModel.load(folder).capabilities.batch_invariant
    with pytest.raises(RuntimeUnavailable, match="batch_invariant"):
        OnnxModel.load(folder, batch_invariant=True)


def test_a_padding_that_costs_is_used_when_asked_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(run: object, vocab_size: int, paddings: Sequence[Padding]) -> Padding | None:
        return HERE.asked[-1] if HERE.asked[-1] in paddings else None

    monkeypatch.setattr(onnx_model, "find_padding", found)
    unasked = OnnxModel.load(folder)
    assert unasked.padding == (HERE.asked[-1] if unasked.graph.own_rows else NO_PADDING)
    assert OnnxModel.load(folder, batch_invariant=True).padding == HERE.asked[-1]


def test_small_models_are_padded_where_that_was_asked_for(folder: Path) -> None:
    # At the export or at load; which padding it is, and what it costs, is up to the kernels here.
    asked = OnnxModel.load(folder, batch_invariant=True)
    assert asked.capabilities.batch_invariant
    for may_pad in (True, False):
        unasked = OnnxModel.load(folder, may_pad=may_pad)
        exported_for_it = unasked.graph.own_rows
        assert unasked.padding == (asked.padding if exported_for_it else NO_PADDING)
        free = asked.padding == NO_PADDING
        assert unasked.capabilities.batch_invariant == (exported_for_it or free)
    refused = OnnxModel.load(folder, batch_invariant=False)
    assert refused.padding == NO_PADDING
    assert not refused.capabilities.batch_invariant


def test_a_graph_exported_for_it_that_is_not_padded_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The control of the test above: an exported graph is treated like any other small one.
    folder, load = written(tmp_path, "int4", "llama", own_rows=True), OnnxModel.load

    def unpadded(path: Path, batch_invariant: bool | None = None, **options: Any) -> OnnxModel:
        return load(path, batch_invariant=batch_invariant or False, **options)

    monkeypatch.setattr(OnnxModel, "load", unpadded)
    with pytest.raises(AssertionError):
        test_small_models_are_padded_where_that_was_asked_for(folder)


@pytest.mark.parametrize("own", [True, False])
def test_attention_alone_is_padded_where_it_can_be(
    own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Padding] = []
    monkeypatch.setattr(onnx_model, "find_padding", lambda *args: tried.extend(args[-1]))
    folder = written(tmp_path, "int4", "llama", own_rows=own)
    with pytest.raises(RuntimeUnavailable, match="no padding"):
        OnnxModel.load(folder, batch_invariant=True)
    assert tried == [padding for padding in HERE.asked if own or padding.attention is None]
    assert own == any(padding.attention is not None for padding in tried)


@pytest.mark.parametrize("kind", KINDS)
def test_attention_with_rows_of_its_own_computes_the_same(kind: str, tmp_path: Path) -> None:
    text = list(range(3, 60))
    folders = [written(tmp_path / str(own), "int4", kind, own_rows=own) for own in (True, False)]
    with attention_by_rows():  # as the one with rows of its own is opened by itself
        found = [
            decode(OnnxModel.load(one, threads=1, batch_invariant=False), text, [1, 4, 3, 17, 25])
            for one in folders
        ]
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])


def test_rows_of_attention_that_are_mixed_up_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The control of the test above.
    monkeypatch.setattr(passes, "_attention_rows", lambda count, rows: np.zeros(rows, np.int64))
    with pytest.raises(AssertionError):
        test_attention_with_rows_of_its_own_computes_the_same("llama", tmp_path)
