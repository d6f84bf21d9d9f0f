"""What the contract does not say: files, the ranking, memory, interruption, the text."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import write_tiny_model
from tiny_optimum import VOCAB, write_tiny_graph

from edgedec.decoding import acceptance, drafting
from edgedec.decoding.engine import Engine, Request
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import Fixed
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.decoding.stopping import StopRule
from edgedec.decoding.tree import TokenTree
from edgedec.errors import BundleError, InputError, Interrupted, RuntimeUnavailable, SessionError
from edgedec.placement.load import LoadOptions
from edgedec.runtimes import optimum, registry
from edgedec.runtimes.onnx import OnnxModel
from edgedec.runtimes.optimum import OptimumModel, OptimumSession
from edgedec.runtimes.optimum.ranking import best

# -- files --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_graph(tmp_path_factory.mktemp("written"))


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "model"))


def refused(folder: Path, *words: str) -> None:
    with pytest.raises(BundleError) as caught:
        OptimumModel.load(folder)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def edit(folder: Path, change: Callable[[onnx.ModelProto], Any]) -> None:
    file = folder / "optimum.onnx"
    model = onnx.load(file, load_external_data=False)
    change(model)
    file.write_bytes(model.SerializeToString())


def edit_facts(folder: Path, **changes: Any) -> None:
    def change(model: onnx.ModelProto) -> None:
        (entry,) = model.metadata_props
        found = json.loads(entry.value) | changes
        entry.value = json.dumps({k: v for k, v in found.items() if v is not None})

    edit(folder, change)


def test_found_by_its_name(written: Path) -> None:
    adapter = registry.adapter(registry.RUNTIMES["optimum"])
    model = adapter.load(written, LoadOptions(threads=1))
    assert model.info.vocab_size == VOCAB
    assert not model.capabilities.tree
    assert adapter.devices() == optimum.devices()


def test_what_it_states(written: Path) -> None:
    model = OptimumModel.load(written)
    assert (model.info.name, model.info.eos_ids) == ("tiny", (0,))
    # 2 layers, keys and values, 4 heads of 8 float32; held twice, copied once in a pass.
    assert model.copied_bytes(1) == 2 * 2 * 4 * 8 * 4
    assert model.info.kv_bytes_per_token == 2 * model.copied_bytes(1)
    assert model.copied_bytes(10) == 10 * model.copied_bytes(1)


def test_missing_cut_short_or_garbage(folder: Path) -> None:
    refused(folder / "nowhere", "cannot be read")
    file = folder / "optimum.onnx"
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    refused(folder, "optimum.onnx")
    file.write_bytes(np.random.default_rng(0).bytes(4000))
    refused(folder, "damaged")


def test_weights_outside_the_folder(folder: Path) -> None:
    shutil.copy(folder / "optimum.onnx.data", folder.parent / "outside.data")

    def change(model: onnx.ModelProto) -> None:
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = "../outside.data"

    edit(folder, change)
    refused(folder, "out of its folder")


def test_metadata(folder: Path) -> None:
    edit_facts(folder, vocab_size=VOCAB + 1)
    refused(folder, "not of its graph")
    edit_facts(folder, vocab_size="many")
    refused(folder, "damaged")
    edit_facts(folder, style="onnx")
    refused(folder, "not a graph of the format optimum")
    edit_facts(folder, graph_version=2)
    refused(folder, "upgrade")
    edit(folder, lambda model: model.ClearField("metadata_props"))
    refused(folder, "edgedec export")


@pytest.mark.parametrize(
    ("name", "renamed"),
    [
        ("attention_mask", "token_type_ids"),
        ("position_ids", "cache_position"),
        ("past_key_values.1.value", "past_key_values.1.state"),
        ("present.0.key", "present.0.state"),
        ("logits", "last_hidden_state"),
    ],
)
def test_inputs_and_outputs_of_another_style(folder: Path, name: str, renamed: str) -> None:
    def change(model: onnx.ModelProto) -> None:
        graph = model.graph
        for value in (*graph.input, *graph.output):
            value.name = renamed if value.name == name else value.name
        for node in graph.node:
            for side in (node.input, node.output):
                side[:] = [renamed if each == name else each for each in side]

    edit(folder, change)
    refused(folder, "unexpected inputs or outputs")


def test_a_cache_without_fixed_sizes(folder: Path) -> None:
    def change(model: onnx.ModelProto) -> None:
        (value,) = (v for v in model.graph.input if v.name == "past_key_values.0.key")
        value.type.tensor_type.shape.dim[1].dim_param = "heads"

    edit(folder, change)
    refused(folder, "0.key", "shape")


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [("Concat", ["real", "real"]), ("Identity", ["past_key_values.0.key"])],
)
def test_a_cache_that_does_not_grow_by_what_was_read(
    folder: Path, kind: str, inputs: list[str]
) -> None:
    """Memory is bound for what it should be: anything else must end in an error, not beside it."""

    def change(model: onnx.ModelProto) -> None:
        for node in model.graph.node:
            for side in (node.input, node.output):
                side[:] = ["real" if name == "present.0.key" else name for name in side]
        axis = {"axis": 2} if kind == "Concat" else {}
        last = onnx.helper.make_node(kind, inputs, ["present.0.key"], **axis)
        model.graph.node.append(last)

    edit(folder, change)
    session = OptimumModel.load(folder).open(16)
    for _ in range(2):
        with pytest.raises(SessionError, match="could not run a pass"):
            session.forward(TokenTree.chain([1, 2, 3]))
        assert session.length == 0


def test_the_two_styles_know_each_other_apart(folder: Path, tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "native")
    with pytest.raises(BundleError, match="format optimum"):
        OptimumModel.load(tmp_path / "native" / "model.onnx")
    with pytest.raises(BundleError):
        OnnxModel.load(folder / "optimum.onnx")


def test_what_it_cannot_do_is_refused(written: Path) -> None:
    with pytest.raises(RuntimeUnavailable, match="row_invariant"):
        OptimumModel.load(written, row_invariant=True)
    with pytest.raises(RuntimeUnavailable, match="NoSuchProvider"):
        OptimumModel.load(written, providers=["NoSuchProvider"])
    with pytest.raises(InputError, match="kv"):
        optimum.load(written, LoadOptions(kv="q8_0"))


# -- the ranking --------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 2**32 - 1),
    columns=st.sampled_from([1, 7, 8, 255, 256, 257, 2047, 2048, 2049, 5000]),
    levels=st.sampled_from([1, 2, 5, 1000]),
    hidden=st.floats(0, 1),
)
def test_the_best_are_those_of_a_stable_sort(
    seed: int, columns: int, levels: int, hidden: float
) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.integers(0, levels, (3, columns)).astype(np.float32)
    logits[rng.random(logits.shape) < hidden] = -np.inf
    ids, values = best(logits, 8)
    expected = np.argsort(-logits, axis=1, kind="stable")[:, :8]
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(logits, expected, axis=1))


def test_a_row_that_is_no_number_has_a_best_token_all_the_same() -> None:
    logits = np.zeros((2, 3000), np.float32)
    logits[0] = np.nan
    logits[1, 2999] = 1
    ids, _ = best(logits, 8)
    assert len(set(ids[0])) == 8
    assert ids[1].tolist() == [2999, 0, 1, 2, 3, 4, 5, 6]


# -- sessions -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(written: Path) -> OptimumModel:
    return OptimumModel.load(written, threads=1)


def text(count: int, seed: int = 0) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(0, VOCAB, count)]


def test_nothing_is_moved_while_everything_is_kept(
    model: OptimumModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass after one that was kept costs the graph's own copy only."""
    session, moved = model.open(64), list[int]()
    keep = session._cache.keep

    def watched(length: int) -> None:
        moved.append(session._cache.held - length)
        keep(length)

    monkeypatch.setattr(session._cache, "keep", watched)
    session.prefill(text(9))
    for kept in (4, 2, 4):
        session.forward(TokenTree.chain(text(4)))
        session.commit(list(range(kept)))
    assert moved == [0, 0, 0, 2]


def test_a_session_closed_gives_its_memory_back(model: OptimumModel) -> None:
    session = model.open(64)
    session.prefill(text(32))
    cache = session._cache
    session.close()
    assert not cache.rows
    assert not cache._maps


def test_a_wide_pass_and_a_long_prompt(model: OptimumModel) -> None:
    words = text(200)
    whole, parts = model.open(200), model.open(200)
    scored = whole.forward(TokenTree.chain(words)).logits
    assert scored is not None
    expected = scored.copy()
    parts.prefill(words[:150])
    got = parts.forward(TokenTree.chain(words[150:])).logits
    assert got is not None
    np.testing.assert_allclose(got, expected[150:], rtol=0, atol=1e-4)


def test_interrupted_amid_a_prefill(model: OptimumModel) -> None:
    words = text(256)
    session, undisturbed = model.open(256), model.open(256)
    session.prefill_chunk = 2
    stopper = threading.Timer(0.05, session.interrupt)
    stopper.start()

    def prefill_for_ever() -> None:
        started = time.perf_counter()
        while time.perf_counter() < started + 30:
            session.prefill(words)
            session.rollback(0)

    with pytest.raises(Interrupted):
        prefill_for_ever()
    stopper.join()
    session.prefill(words[session.length : 250])
    undisturbed.prefill(words[:250])
    rows = [s.forward(TokenTree(words[250])).logits for s in (session, undisturbed)]
    assert rows[0] is not None and rows[1] is not None  # noqa: PT018
    np.testing.assert_allclose(rows[0], rows[1], rtol=0, atol=1e-4)


# -- the text -----------------------------------------------------------------------------------


class _Words:
    def push(self, token: int) -> str:
        return f"{token} "

    def flush(self) -> str:
        return ""


def decode(
    target: OptimumModel, drafter: str, draft: OptimumModel, temperature: float
) -> tuple[list[int], Metrics]:
    built = drafting.create(
        drafter, vocab_size=VOCAB, draft=draft.open(256), branching=target.capabilities.tree
    )
    rule = acceptance.rule("coupling")
    engine = Engine(target.open(256), built, Fixed(3), rule)
    prompt = text(6, seed=5) * 2
    sampler = Sampler(SamplingParams(temperature=temperature, seed=3), VOCAB, prompt, coupled=True)
    ending = StopRule(eos_ids=(), max_new_tokens=120, stop_strings=(), stream=_Words())
    metrics = Metrics()
    rounds = engine.run(Request(prompt, sampler, ending), metrics)
    return [event.token for round in rounds for event in round], metrics


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("drafter", ["model", "lookup", "recycle", "hybrid"])
def test_the_text_is_that_of_plain_decoding(
    model: OptimumModel, drafter: str, temperature: float
) -> None:
    plain, _ = decode(model, "none", model, temperature)
    got, metrics = decode(model, drafter, model, temperature)
    assert len(plain) == 120
    assert got == plain
    assert metrics.accepted_tokens > 0


class KeepsRejectedRows(OptimumSession):
    def forward(self, *args: Any, **more: Any) -> Any:
        length = self._length
        self._length = self._cache.held - self._pending
        try:
            return super().forward(*args, **more)
        finally:
            self._length = length


def test_a_session_that_keeps_rejected_rows_is_noticed(
    model: OptimumModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, _ = decode(model, "none", model, 0.0)
    monkeypatch.setattr(model, "session", KeepsRejectedRows)
    got, _ = decode(model, "lookup", model, 0.0)
    assert got != plain
