"""How sessions of hybrids go back: which lengths at what cost, and what a session then holds."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")
pytest.importorskip("gguf", reason="gguf is not installed: extra gguf")

import tiny_hybrids
from hybrid_reference import HybridReference
from peak_memory import measured
from tiny_gguf import write_tiny_gguf
from tiny_hybrids import ARCHITECTURES, hybrid_weights, write_hybrid_gguf

from edgedec.decoding.session import Rollback
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import CannotRollback, PassFailed
from edgedec.loading.build import OpenOptions, assemble
from edgedec.loading.sources import Models
from edgedec.records.load import LoadOptions
from edgedec.runtimes.llamacpp.context import Context
from edgedec.runtimes.llamacpp.model import LlamaModel
from edgedec.runtimes.llamacpp.session import LlamaSession
from edgedec.runtimes.llamacpp.trail import Trail

Build = Callable[..., LlamaModel]
KEPT = 3  # earlier states of the tiny Qwen3.5, by the share of its memory
PROBE = 7


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    folder = tmp_path_factory.mktemp("gguf")

    def build(arch: str = "qwen35", weights: str = "F32", **own: Any) -> LlamaModel:
        file = folder / f"{arch}-{weights}.gguf"
        if not file.exists():
            (write_hybrid_gguf if arch in ARCHITECTURES else write_tiny_gguf)(file, arch, weights)
        own = own or {"kv": "f32"}
        return LlamaModel.load(file, LoadOptions(threads=1, **own))

    return build


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tokens of each pass."""
    found: list[int] = []
    decode = Context.decode

    def counted(context: Context, batch: Any) -> None:
        found.append(batch.n_tokens)
        decode(context, batch)

    monkeypatch.setattr(Context, "decode", counted)
    return found


def text(count: int, seed: int = 0) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(4, tiny_hybrids.VOCAB, count)]


def after(session: LlamaSession) -> FloatArray:
    """Return the logits after a further token, which is dropped."""
    length = session.length
    logits = session.forward(TokenTree(PROBE)).logits
    assert logits is not None
    found: FloatArray = logits[0].copy()
    session.rollback(length)
    return found


def one_by_one(model: LlamaModel, prompt: list[int], tokens: list[int]) -> FloatArray:
    session = model.open(min(600, model.info.max_context))
    session.prefill(prompt)
    for token in tokens:
        session.forward(TokenTree(token))
        session.commit([0])
    return after(session)


# -- the numbers --------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_logits_are_those_of_the_equations(build: Build, arch: str) -> None:
    tokens, session = text(40), build(arch).open(64)
    expected = HybridReference(arch, hybrid_weights(arch)).logits(tokens)
    session.prefill(tokens[:20])
    logits = session.forward(TokenTree.chain(tokens[20:])).logits
    assert logits is not None
    assert np.abs(logits - expected[20:]).max() < 1e-4
    # Each kind of layer matters: without one of its inputs the logits are others.
    for name, values in hybrid_weights(arch).items():
        if name.endswith(("ssm_a", "ssm_dt.bias", "conv.weight", "attn_v.weight")):
            changed = hybrid_weights(arch) | {name: values * np.float32(0.5)}
            assert np.abs(HybridReference(arch, changed).logits(tokens) - expected).max() > 1e-2


# -- rejecting ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("arch", "kept"), [("qwen35", KEPT), ("lfm2", 16), ("mamba", 0)])
def test_any_number_of_nodes_is_rejected(
    build: Build, passes: list[int], arch: str, kept: int
) -> None:
    model = build(arch)
    assert model.capabilities.rejected == kept
    assert model.capabilities.rollback is (Rollback.RECENT if kept else Rollback.REPLAY)
    prompt, drafted = text(24), text(20, seed=1)
    for accepted in range(len(drafted) + 1):
        session = model.open(128)
        session.prefill(prompt)
        session.forward(TokenTree.chain(drafted))
        passes.clear()
        session.commit(range(accepted))
        rejected = len(drafted) - accepted
        # As many as there are states cost nothing; beyond, the accepted ones are computed again.
        assert passes == ([] if rejected <= kept or not accepted else [accepted])
        expected = one_by_one(model, prompt, drafted[:accepted])
        assert np.abs(after(session) - expected).max() < 1e-3


@pytest.mark.parametrize("arch", ["qwen35", "qwen35moe", "mamba"])
def test_in_quantised_weights_to_the_last_bit(build: Build, arch: str) -> None:
    model = build(arch, "Q8_0", batch_invariant=True)
    assert model.capabilities.batch_invariant
    prompt, drafted = text(24), text(9, seed=1)
    session, held = model.open(128), list[int]()
    session.prefill(prompt)
    for accepted in (3, 9, 1, 0, 8, 5):
        session.forward(TokenTree.chain(drafted))
        session.commit(range(accepted))
        held += drafted[:accepted]
        np.testing.assert_array_equal(after(session), one_by_one(model, prompt, held))


def test_states_are_dropped_once_between_two_passes(build: Build, passes: list[int]) -> None:
    model, prompt, drafted = build(), text(24), text(8, seed=1)
    session = model.open(128)
    session.prefill(prompt)
    session.forward(TokenTree.chain(drafted))
    session.commit(range(7))
    passes.clear()
    session.rollback(len(prompt) + 6)  # llama.cpp refuses a second time
    assert passes == [6]
    expected = one_by_one(model, prompt, drafted[:6])
    assert np.abs(after(session) - expected).max() < 1e-3


# -- going back further -------------------------------------------------------------------------


def test_the_nearest_length_is_the_end_of_the_prompt(build: Build, passes: list[int]) -> None:
    model, prompt = build(), text(40)
    session, held = model.open(600), list(prompt)
    session.prefill(prompt[:30])
    session.prefill(prompt[30:])  # too few to be worth a copy
    for token in text(300, seed=1):
        session.forward(TokenTree(token))
        session.commit([0])
        held.append(token)
    with pytest.raises(CannotRollback) as caught:
        session.rollback(29)
    assert caught.value.nearest == 0
    with pytest.raises(CannotRollback, match="to 230 tokens: 30 is possible") as caught:
        session.fork(230)
    assert caught.value.nearest == 30
    assert session.length == 340
    passes.clear()
    fork = session.fork(300)  # by the recent copy, which is at most as old as a chunk
    assert sum(passes) < 64
    assert np.abs(after(fork) - one_by_one(model, prompt, held[40:300])).max() < 1e-3
    passes.clear()
    session.rollback(30)
    assert not passes
    session.prefill(held[30:50])
    assert np.abs(after(session) - one_by_one(model, prompt, held[40:50])).max() < 1e-3


def test_a_loaded_state_is_gone_back_to(build: Build) -> None:
    model, prompt, more = build(), text(24), text(5, seed=1)
    session, file = model.open(128), io.BytesIO()
    session.prefill(prompt)
    session.forward(TokenTree.chain(more))
    session.save(file)  # with a pending tree, which is no part of it
    session.commit([0, 1])
    assert np.abs(after(session) - one_by_one(model, prompt, more[:2])).max() < 1e-3
    other = model.open(128)
    other.load(io.BytesIO(file.getvalue()))
    assert other.length == 24
    other.prefill(more)
    other.rollback(24)
    assert np.abs(after(other) - one_by_one(model, prompt, [])).max() < 1e-3


def test_a_pass_that_fails_leaves_the_state_before(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, prompt = build(), text(24)
    session, decode = model.open(128), Context.decode
    session.prefill(prompt)
    session.forward(TokenTree(5))

    def failing(context: Context, batch: Any) -> None:
        decode(context, batch)
        monkeypatch.setattr(Context, "decode", decode)
        raise PassFailed("the device is gone")

    tree = TokenTree.chain([5, 6, 8])
    monkeypatch.setattr(Context, "decode", failing)
    with pytest.raises(PassFailed):
        session.forward(tree, 1)
    session.forward(tree, 1)
    session.commit([0, 1])
    assert np.abs(after(session) - one_by_one(model, prompt, [5, 6])).max() < 1e-3


# -- twins --------------------------------------------------------------------------------------


class OneRowAhead(Trail):
    """Takes a state that was not kept: rejecting a whole pass leaves a row in the state."""

    def computed(self, context: Context, tokens: Any) -> None:
        super().computed(context, tokens)
        self._droppable = min(context.kept, len(tokens))


class RepeatsAnotherToken(Trail):
    def _forget(self, length: int) -> None:
        super()._forget(length)
        self._tokens[-1:] = [PROBE] * bool(self._tokens)


class CopiesTheFirstState(Trail):
    def _copy(self, context: Context) -> None:
        self._copies[1:] = [(self.end, self._copies[0][1])]


@pytest.mark.parametrize("twin", [OneRowAhead, RepeatsAnotherToken, CopiesTheFirstState])
def test_a_broken_trail_is_noticed(
    build: Build, monkeypatch: pytest.MonkeyPatch, twin: type[Trail]
) -> None:
    model, prompt, drafted = build(), text(24), text(3, seed=1)

    def rounds() -> float:
        session, held = model.open(128), list[int]()
        session.prefill(prompt)
        for accepted in (2, 0, 3, 0):
            session.forward(TokenTree.chain(drafted))
            session.commit(range(accepted))
            held += drafted[:accepted]
        session.rollback(len(prompt) + 1)
        session.forward(TokenTree(5))
        session.rollback(len(prompt) + 1)
        found: float = np.abs(after(session) - one_by_one(model, prompt, held[:1])).max()
        return found

    assert rounds() < 1e-3
    monkeypatch.setattr("edgedec.runtimes.llamacpp.session.Trail", twin)
    with contextlib.suppress(PassFailed):  # llama.cpp found a position missing
        assert rounds() > 1e-2


# -- what it is given ---------------------------------------------------------------------------


def test_a_library_that_keeps_no_states_decodes_plainly(
    build: Build, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    for module in ("context", "model"):
        monkeypatch.setattr(f"edgedec.runtimes.llamacpp.{module}.keeps_states", lambda: False)
    file = write_hybrid_gguf(tmp_path / "target.gguf")
    with caplog.at_level(logging.WARNING, "edgedec"):
        parts = assemble(Models.find(file), OpenOptions())
    assert parts.facts["drafter"] == "none"
    parts.close()
    (line,) = [one.message for one in caplog.records if "recurrent" in one.message]
    assert "decoded plainly; with llama-cpp-python 0.3.36 or later" in line
    assert "\n" not in line


def test_a_hybrid_drafts_by_itself_up_to_what_it_keeps(tmp_path: Path) -> None:
    target = write_hybrid_gguf(tmp_path / "target.gguf")
    parts = assemble(Models.find(target), OpenOptions())
    assert parts.facts["drafter"] == "text"
    assert parts.engine.policy.limits().nodes == KEPT
    parts.close()
    # A draft model is one too, and a state of another kind.
    for draft in (
        write_hybrid_gguf(tmp_path / "hybrid.gguf", noise=0.3),
        write_tiny_gguf(tmp_path / "mamba.gguf", "mamba"),
    ):
        parts = assemble(Models.find(target, draft), OpenOptions(draft=draft))
        assert parts.facts["drafter"] == "hybrid"
        parts.close()


def test_where_a_rejection_takes_a_pass_drafts_have_to_be_asked_for(tmp_path: Path) -> None:
    target = write_tiny_gguf(tmp_path / "target.gguf", "mamba")
    parts = assemble(Models.find(target), OpenOptions())
    assert parts.facts["drafter"] == "none"
    parts.close()
    parts = assemble(Models.find(target), OpenOptions(drafter="lookup"))
    assert (parts.facts["drafter"], parts.facts["policy"]) == ("lookup", "measured")
    assert parts.engine.policy.limits().nodes == 16
    parts.close()


def test_only_as_many_states_as_a_quarter_of_the_weights(build: Build) -> None:
    for arch in ARCHITECTURES:
        model = build(arch)
        kept = model.capabilities.rejected
        assert kept
        assert 4 * kept * model.state_bytes <= model.info.weight_bytes
        assert kept == 16 or 4 * (kept + 1) * model.state_bytes > model.info.weight_bytes


COSTS = """
from edgedec.loading.build import OpenOptions, assemble
from edgedec.loading.sources import Models
from edgedec.runtimes.llamacpp import model

def work(argument):
    file, kept = argument.split()
    model._kept = lambda *_: int(kept)
    options = OpenOptions(memory=1 << 30, drafter="lookup", draft_length=4)
    parts = assemble(Models.find(file), options)
    return parts.guard._costs.target.held

def close():
    pass
"""


@pytest.mark.full
def test_the_states_count_as_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Heads of a published size, so that a state has megabytes.
    for name, size in (("STATE", 128), ("VALUE_HEADS", 16), ("KEY_HEADS", 16)):
        monkeypatch.setattr(tiny_hybrids, name, size)
    file = write_hybrid_gguf(tmp_path / "large.gguf", "qwen35", "Q8_0")
    none, all_ = (int(measured(COSTS, f"{file} {kept}")[0]) for kept in (0, 16))
    each = 3 * 16 * 128 * 128 * 4
    # And those of one layer at a time, in the buffers of a pass.
    assert 15 * each < all_ - none < 25 * each
