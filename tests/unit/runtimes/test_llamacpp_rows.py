"""Rows that do not depend on their pass: how settings are tested, timed, chosen and remembered.

What a processor's kernels do is no matter here: their faults are simulated, on a model whose own
rows are made alike by computing every token alone.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")
pytest.importorskip("gguf", reason="gguf is not installed: extra gguf")

from tiny_gguf import write_tiny_gguf

from edgedec.decoding.session import Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import RuntimeUnavailable
from edgedec.records.load import LoadOptions
from edgedec.runtimes.llamacpp import model as llama_model
from edgedec.runtimes.llamacpp import opening, rows
from edgedec.runtimes.llamacpp.context import Context, Settings
from edgedec.runtimes.llamacpp.model import LlamaModel
from edgedec.runtimes.llamacpp.rows import Way

Fault = Callable[[Context, int], bool]
MUCH = 1024


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEDEC_CACHE", str(tmp_path / "cache"))
    return write_tiny_gguf(tmp_path / "tiny.gguf", weights="Q8_0", context=MUCH)


def cells_in_use(context: Context) -> int:
    """Return how many cells sequence 0 holds: it is the fourth that is written of it."""
    return int(context.sequence(0)[:16].view(np.uint32)[3])


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Callable[[Fault], None]:
    """Replace the kernels: a pass has the bits of lone rows, but where a fault says otherwise."""

    def replace(fault: Fault) -> None:
        found: list[FloatArray] = []
        honest_run, honest_logits = Context.run, Context.logits

        def run(self: Context, tokens: list[int], position: int, *, head: bool) -> None:
            found.clear()
            wrong = fault(self, len(tokens))
            for at, token in enumerate(tokens):
                honest_run(self, [token], position + at, head=head)
                if head:
                    found.append(honest_logits(self, 1).copy() + np.float32(1e-3 * wrong))

        monkeypatch.setattr(Context, "run", run)
        monkeypatch.setattr(Context, "logits", lambda self, count: np.concatenate(found))

    return replace


def widest(file: Path) -> int:
    options = LoadOptions(threads=1)
    weights = opening.open_weights(file, options)
    return rows.widest(Context(weights, Settings("f16", True, 1, 1), rows.PROBE_CELLS))


# -- the test -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "held"),
    [
        (lambda context, count: False, 17),
        (lambda context, count: count == 1, 1),
        (lambda context, count: count >= 4, 3),
        (lambda context, count: count >= 8, 7),
        (lambda context, count: count == 1 and cells_in_use(context) >= 257, 1),
    ],
)
def test_up_to_how_many_rows_bits_are_the_same(
    file: Path, kernels: Callable[[Fault], None], fault: Fault, held: int
) -> None:
    kernels(fault)
    assert widest(file) == held


def test_a_probe_of_few_cells_misses_what_begins_at_many(
    file: Path, kernels: Callable[[Fault], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels(lambda context, count: count == 1 and cells_in_use(context) >= 257)
    monkeypatch.setattr(rows, "_COPIES", 0)
    assert widest(file) == 17


def test_a_row_reads_a_repeated_text_as_often_as_it_is_held(file: Path) -> None:
    weights = opening.open_weights(file, LoadOptions(threads=1))
    found = []
    for times in (0, 3, 3):
        context = Context(weights, Settings("f16", False, 1, 1), 256)
        context.run([5, 6, 7], 0, head=False)
        context.repeat(times)
        assert (cells_in_use(context), context.span()) == (3 * (1 + times), (0, 2))
        context.run([8], 3, head=True)
        found.append(context.logits(1).copy())
        assert context.span() == (0, 3)
        context.remove(0, 3)
        assert cells_in_use(context) == 3 * (1 + times)
    # Its own key is one of four, then one of thirteen.
    assert np.abs(found[1] - found[0]).max() > 1e-3
    np.testing.assert_array_equal(found[1], found[2])


# -- the choice ---------------------------------------------------------------------------------


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Way]]:
    """Replace the test and the timing by answers; the list grows with what is tried."""

    def judge(held: Callable[[Settings], int], loss: float = 1.0) -> list[Way]:
        tried: list[Any] = []

        def widest(context: Context) -> int:
            tried.append(context._settings)
            return held(context._settings)

        monkeypatch.setattr(rows, "widest", widest)
        monkeypatch.setattr(rows, "losses", lambda *_: [loss])
        return tried

    return judge


def test_settings_that_cost_little_are_the_default(
    file: Path, judged: Callable[..., list[Any]]
) -> None:
    tried = judged(lambda settings: 17 if settings.values == "f16" else 1)
    for asked in (None, True):
        model = LlamaModel.load(file, LoadOptions(threads=1, batch_invariant=asked))
        assert model.capabilities.batch_invariant
        assert (model._settings.kv, model._settings.values) == ("bf16", "f16")
        assert model._settings.flash_attention is True
    assert [one.kv for one in tried] == 2 * ["f16", "bf16"], "searched for once each, in this order"
    without = LlamaModel.load(file, LoadOptions(threads=1, batch_invariant=False))
    assert not without.capabilities.batch_invariant
    assert without._settings.flash_attention is False
    assert model.info.kv_bytes_per_token == without.info.kv_bytes_per_token
    # Flash attention stores no scores.
    assert model.info.scratch_bytes_per_token < without.info.scratch_bytes_per_token
    assert model.fingerprint != without.fingerprint


def test_settings_that_cost_much_must_be_asked_for(
    file: Path, judged: Callable[..., list[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    tried = judged(lambda settings: 17, loss=1.2)
    with caplog.at_level(logging.WARNING, logger="edgedec"):
        assert not LlamaModel.load(file, LoadOptions(threads=1)).capabilities.batch_invariant
        assert "drafts may change its text" in caplog.text
        caplog.clear()
        LlamaModel.load(file, LoadOptions(threads=1))
        assert not caplog.text, "said once"
    assert not tried, "bits of rows that cost too much are not compared"
    for _ in range(2):
        model = LlamaModel.load(file, LoadOptions(threads=1, batch_invariant=True))
        assert model.capabilities.batch_invariant
        assert model._settings.flash_attention
    assert len(tried) == 4, "once"


@pytest.mark.parametrize("large", [False, True])
def test_a_search_that_takes_long_is_told_of_once(
    file: Path,
    judged: Callable[..., list[Any]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    large: bool,
) -> None:
    judged(lambda settings: 17)
    monkeypatch.setattr(llama_model, "_LARGE_BYTES", file.stat().st_size + (0 if large else 1))
    with caplog.at_level(logging.WARNING, logger="edgedec"):
        for _ in range(2):
            LlamaModel.load(file, LoadOptions(threads=1))
    assert caplog.text.count("for the first time") == large


def test_pairs_are_what_is_left(file: Path, judged: Callable[..., list[Any]]) -> None:
    judged(lambda settings: 17 if settings.paired else 1)
    assert not LlamaModel.load(file, LoadOptions(threads=1)).capabilities.batch_invariant
    model = LlamaModel.load(file, LoadOptions(threads=1, batch_invariant=True))
    assert (model._settings.paired, model._settings.flash_attention) == (True, False)


def test_few_rows_are_taken_where_they_are_asked_for(
    file: Path, judged: Callable[..., list[Any]]
) -> None:
    """As on ARM; settings that cost more and hold for more rows go before."""
    tried = judged(lambda settings: 3)
    assert not LlamaModel.load(file, LoadOptions(threads=1)).capabilities.batch_invariant
    model = LlamaModel.load(file, LoadOptions(threads=1, batch_invariant=True))
    assert model.capabilities.batch_invariant
    assert (model._settings.most_rows, len(tried)) == (3, 8)


def test_more_rows_go_before_few(file: Path, judged: Callable[..., list[Any]]) -> None:
    judged(lambda settings: 7 if settings.values == "f16" else 3, loss=1.2)
    model = LlamaModel.load(file, LoadOptions(threads=1, batch_invariant=True))
    assert (model._settings.most_rows, model._settings.values) == (7, "f16")


def test_where_nothing_holds(file: Path, judged: Callable[..., list[Any]]) -> None:
    judged(lambda settings: 1)
    assert not LlamaModel.load(file, LoadOptions(threads=1)).capabilities.batch_invariant
    with pytest.raises(RuntimeUnavailable, match="without batch_invariant"):
        LlamaModel.load(file, LoadOptions(threads=1, batch_invariant=True))


def test_weights_are_loaded_once_in_the_order_that_holds(
    file: Path, judged: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    orders: list[bool | None] = []
    loaded: list[weakref.ref[Any]] = []
    honest = opening.open_weights

    def load(path: Path, options: LoadOptions) -> Any:
        assert not [one for one in loaded if one() is not None], "two copies in memory"
        orders.append(options.own.get("repack"))
        weights = honest(path, options)
        loaded.append(weakref.ref(weights))
        return weights

    monkeypatch.setattr(llama_model.opening, "open_weights", load)
    judged(lambda settings: 7 if orders[-1] is False else 3)
    model = LlamaModel.load(file, LoadOptions(threads=1))
    assert orders == [True, False]
    assert (model._settings.most_rows, model._settings.fours) == (7, False)
    del model
    LlamaModel.load(file, LoadOptions(threads=1))
    assert orders == [True, False, False]


def test_a_chain_of_more_rows_is_computed_in_parts(
    file: Path, judged: Callable[..., list[Any]]
) -> None:
    widths: list[int] = []
    judged(lambda settings: 5)
    model = LlamaModel.load(file, LoadOptions(threads=1))
    session, alone = model.open(64), model.open(64)
    chain = [5 + index for index in range(17)]
    context = session._context
    assert context is not None
    honest = context.run
    context.run = lambda tokens, *rest, **more: (  # type: ignore[method-assign]
        widths.append(len(tokens)), honest(tokens, *rest, **more))[1]  # fmt: skip
    found = session.forward(TokenTree.chain(chain), want=Want.LOGITS).logits
    assert found is not None
    assert widths == [5, 5, 5, 2]
    for index, token in enumerate(chain):
        logits = alone.forward(TokenTree(token), want=Want.LOGITS).logits
        assert logits is not None
        np.testing.assert_allclose(found[index], logits[0], atol=0.02)
        alone.commit([0])


def test_what_the_user_chose_stays() -> None:
    def tried(**options: Any) -> set[tuple[Any, ...]]:
        found = rows.ways(LoadOptions(**options))
        return {(way.repack, way.kv, way.values) for way in found}

    assert tried() == {(o, *k) for o in (True, False) for k in (("f16", None), ("bf16", "f16"))}
    assert tried(kv="q8_0") == {(True, "q8_0", None), (False, "q8_0", None)}
    assert tried(repack=False, kv="f16") == {(False, "f16", None)}
    assert tried(flash_attention=False) == tried(kv="f32") == set()
    assert not rows.pairs(LoadOptions(repack=False))[0].repack


def test_every_outcome_has_a_name_of_its_own() -> None:
    ways = rows.ways(LoadOptions())
    found = rows.outcomes(ways)
    assert len(found) == 1 + len(ways) * (1 + rows.WIDTHS[-1] - rows.LEAST_ROWS)
    assert all(way is None or way.name == name for name, way in found.items())


@pytest.mark.parametrize("since", [0, 257])
def test_times_are_of_both_behind_a_page_of_text(file: Path, since: int) -> None:
    """A context that computes all again and again, here or behind many tokens, takes longer."""
    weights = opening.open_weights(file, LoadOptions(threads=1))

    class Counting(Context):
        times = 1

        def run(self, tokens: Any, position: int, *, head: bool) -> None:
            for _ in range(self.times if head and cells_in_use(self) >= since else 1):
                self.remove(0, position)
                super().run(tokens, position, head=head)

    class Slow(Counting):
        times = 200

    kind = Settings("f16", False, 1, 1)
    slow, quick = (one(weights, kind, rows.PROBE_CELLS) for one in (Slow, Counting))
    assert min(rows.losses(slow, quick, (1, 2, 8))) > 5


# -- on this processor --------------------------------------------------------------------------


def keeps_its_bits(model: LlamaModel) -> bool:
    """Whether passes of any width give the same bits, before and after 512 cells.

    Few passes, since two threads that wait for each other take long on a busy machine.
    """
    text = np.random.default_rng(3).integers(5, 90, 600).tolist()
    for past in (20, 500):
        found = []
        for width in (1, 2, 4, 8):
            session = model.open(MUCH)
            session.prefill(text[:past])
            parts: list[FloatArray] = []
            for at in range(past, past + 8, width):
                chain = TokenTree.chain(text[at : at + width])
                logits = session.forward(chain, want=Want.LOGITS).logits
                assert logits is not None
                parts.append(logits.copy())
                session.commit(list(range(len(chain))))
            found.append(np.concatenate(parts))
            session.close()
        if not all(np.array_equal(found[0], one) for one in found[1:]):
            return False
    return True


@pytest.mark.parametrize(
    ("weights", "threads"), [("Q4_0", 1), ("Q8_0", 1), ("F32", 1), ("Q4_0", 2)]
)
def test_what_a_model_claims_is_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: str, threads: int
) -> None:
    monkeypatch.setenv("EDGEDEC_CACHE", str(tmp_path / "cache"))
    file = write_tiny_gguf(tmp_path / "tiny.gguf", weights=weights, context=MUCH)
    monkeypatch.setattr(rows, "losses", lambda *_: [1.0])
    model = LlamaModel.load(file, LoadOptions(threads=threads, batch_invariant=True))
    assert keeps_its_bits(model)


@pytest.mark.parametrize("copies", [0, rows._COPIES])
def test_a_false_claim_is_seen(
    file: Path, kernels: Callable[[Fault], None], monkeypatch: pytest.MonkeyPatch, copies: int
) -> None:
    """What a test of few cells would have let pass."""
    kernels(lambda context, count: count == 1 and cells_in_use(context) >= 257)
    monkeypatch.setattr(rows, "_COPIES", copies)
    monkeypatch.setattr(rows, "losses", lambda *_: [1.0])
    model = LlamaModel.load(file, LoadOptions(threads=1))
    assert model.capabilities.batch_invariant is (copies == 0)
    assert not keeps_its_bits(model)
