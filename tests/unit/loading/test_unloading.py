"""A draft model that can be unloaded: the session contract, and what it gives back."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_models
import tiny_tokenizers
from tiny_gguf import write_tiny_gguf

from edgedec import GenerateOptions, Pipeline
from edgedec.decoding.session import Model
from edgedec.decoding.session_abilities import Rehearsing, Reserving, Trimmable
from edgedec.errors import BundleError, RuntimeUnavailable, StateError
from edgedec.export import ExportOptions, export_bundle
from edgedec.hardware.resident import keep_heap_small, release_free, resident_bytes
from edgedec.loading.unloading import UnloadableModel
from edgedec.models.registry import spec_for
from edgedec.records.load import LoadOptions
from edgedec.runtimes import registry
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.testing import FakeModel, SessionContract

TEXT = [1, 2, 3, 4, 5, 6, 7, 8]
WIDE = {"vocab_size": 342, "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 8}


class TestUnloadable(SessionContract):
    @pytest.fixture
    def model(self) -> Model:
        return UnloadableModel(lambda: FakeModel(64))


class TestUnloadedOnce(SessionContract):
    """A model that was loaded again is like any other."""

    @pytest.fixture
    def model(self) -> Model:
        model = UnloadableModel(lambda: FakeModel(64))
        model.open(32).prefill(TEXT)
        model.unload()
        assert not model.loaded
        return model


def test_a_session_is_empty_until_it_computes_again() -> None:
    loads: list[FakeModel] = []
    model = UnloadableModel(lambda: loads.append(FakeModel(64)) or loads[-1])  # type: ignore[func-returns-value]
    session, other = model.open(32), model.open(16)
    session.prefill(TEXT)
    model.unload()
    assert session.length == other.length == 0
    session.rollback(0)
    assert session.capacity == 32
    assert len(loads) == 1, "an empty session needs no model"
    session.prefill(TEXT[:3])
    other.prefill(TEXT[:2])
    assert (session.length, other.length, len(loads)) == (3, 2, 2)
    session.close()
    model.unload()
    with pytest.raises(StateError, match="closed"):
        session.rollback(0)
    with pytest.raises(StateError, match="closed"):
        session.prefill(TEXT)


def test_a_model_that_is_gone_is_one_line() -> None:
    models = iter([FakeModel(64)])

    def load() -> Model:
        for model in models:
            return model
        raise BundleError("draft/model.onnx: no such file")

    model = UnloadableModel(load)
    session = model.open(32)
    model.unload()
    with pytest.raises(RuntimeUnavailable, match=r"cannot be loaded again: draft/model.onnx"):
        session.prefill(TEXT)


def test_it_has_the_abilities_of_its_runtimes_sessions(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    file = write_tiny_gguf(tmp_path / "a.gguf")
    model = UnloadableModel(lambda: registry.load("gguf", file, LoadOptions()))
    try:
        session = model.open(64)
        assert isinstance(session, Reserving)
        assert isinstance(session, Trimmable)
        assert not isinstance(session, Rehearsing)
        session.reserve(40)
        assert session.allocated >= 40
        model.unload()
        assert session.allocated == 0
    finally:
        model.close()


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target, and a draft of 100 MB."""
    folder = tmp_path_factory.mktemp("wide")
    for role in ("target", "draft"):
        config = tiny_models.tiny_config(max_position_embeddings=512, **WIDE)
        tensors = tiny_models.random_tensors(spec_for(config), 0)
        tiny_models.save_checkpoint(folder / role, config, tensors)
        tiny_tokenizers.save(tiny_tokenizers.byte_level(), folder / role)
    options = ExportOptions(
        folder / "target", folder / "pair", folder / "draft", weights="fp32", parity=False
    )
    return export_bundle(options).path


def given_back(pipeline: Pipeline) -> float:
    """The share of the draft's weights by which memory falls when it is unloaded."""
    guard = pipeline._parts.guard
    assert guard is not None
    names = [level.name for level in guard._levels]
    guard._go_to(names.index("no draft model"), "asked for", 0)
    before = resident_bytes()
    guard._go_to(names.index("draft model unloaded"), "asked for", 0)
    assert guard._costs.draft is not None
    return (before - resident_bytes()) / guard._costs.draft.held


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_its_bytes_go_back_to_the_account_and_to_the_system(
    wide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_heap_small()
    release_free()
    options = {"plan": "none", "memory": 4_000_000_000, "threads": 1, "draft_length": 3}
    ask = GenerateOptions(24, ignore_eos=True)
    with Pipeline.open(wide, **options) as pipeline:  # type: ignore[arg-type]
        first = pipeline.generate(TEXT, ask)
        guard = pipeline._parts.guard
        assert guard is not None
        assert guard._costs.draft is not None
        held = guard._costs.draft.held
        assert held > 50_000_000
        by_name = {one.name: guard._costs.of(one, 100, sampled=True).total for one in guard._levels}
        assert by_name["no draft model"] - by_name["draft model unloaded"] >= held
        assert given_back(pipeline) > 0.8
        before = resident_bytes()
        again = pipeline.generate(TEXT, ask)
        assert again.token_ids == first.token_ids
        assert again.metrics.memory is not None
        assert [event.kind for event in again.metrics.memory.events] == ["return"]
        assert again.metrics.sources["model"]
        assert given_back(pipeline) > 0.8
        pipeline.save(tmp_path / "text")
        assert pipeline._parts.guard is guard
        assert guard._levels[guard._at].name == "draft model unloaded"
        assert resident_bytes() < before + 0.2 * held, "saving loads nothing"
        pipeline.restore(tmp_path / "text")
        assert pipeline.generate(TEXT, ask).token_ids == first.token_ids
    # Broken twin: the model stays where it is.
    monkeypatch.setattr(UnloadableModel, "close", lambda self: None)
    monkeypatch.setattr(OnnxModel, "close", lambda self: None)
    with Pipeline.open(wide, **options) as pipeline:  # type: ignore[arg-type]
        pipeline.generate(TEXT, ask)
        assert given_back(pipeline) < 0.2
