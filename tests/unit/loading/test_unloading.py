"""A draft model that can be unloaded: the session contract, and what it gives back."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_bundles
import tiny_models
import tiny_tokenizers
from tiny_gguf import write_tiny_gguf

from edgedec import GenerateOptions, Pipeline
from edgedec.decoding.session import Model, Rehearsing, Reserving, Session, Trimmable
from edgedec.errors import BundleError, RuntimeUnavailable, StateError
from edgedec.export import ExportOptions
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
        model.load()
        return model


class Loads:
    """Loads a model as long as there is one, and remembers what it loaded."""

    def __init__(self, *models: FakeModel) -> None:
        self.left, self.loaded = list(models), 0

    def __call__(self) -> Model:
        if not self.left:
            raise BundleError("draft/model.onnx: no such file")
        self.loaded += 1
        return self.left.pop(0)


class CannotOpen(FakeModel):
    def open(self, capacity: int) -> Session:
        if capacity < 32:
            raise RuntimeUnavailable("no memory for a session")
        return super().open(capacity)


def test_an_unloaded_session_is_empty_and_opened_again_with_the_model(tmp_path: Path) -> None:
    loads = Loads(FakeModel(64), FakeModel(64))
    model = UnloadableModel(loads)
    session, other = model.open(32), model.open(16)
    session.prefill(TEXT)
    with (tmp_path / "state").open("wb") as file:
        session.save(file)
    model.unload()
    assert session.length == other.length == 0
    session.rollback(0)
    assert session.capacity == 32
    with (tmp_path / "state").open("rb") as file:
        session.load(file)
    assert (session.length, loads.loaded) == (0, 1), "an empty session needs no model"
    with pytest.raises(StateError, match="unloaded"):
        session.prefill(TEXT)
    model.load()
    model.load()
    session.prefill(TEXT[:3])
    other.prefill(TEXT[:2])
    assert (session.length, other.length, loads.loaded) == (3, 2, 2)
    session.close()
    model.unload()
    with pytest.raises(StateError, match="closed"):
        session.rollback(0)
    with pytest.raises(StateError, match="closed"):
        session.prefill(TEXT)


@pytest.mark.parametrize(
    ("models", "reason"),
    [
        ([], r"draft/model.onnx: no such file"),
        ([FakeModel(63)], "is not the model that was unloaded"),
        ([CannotOpen(64)], "no memory for a session"),
    ],
    ids=["gone", "another", "no session"],
)
def test_a_model_that_cannot_be_loaded_again_is_one_line_and_stays_unloaded(
    models: list[FakeModel], reason: str
) -> None:
    model = UnloadableModel(Loads(FakeModel(64), *models))
    session, other = model.open(32), model.open(16)
    model.unload()
    with pytest.raises(RuntimeUnavailable, match=f"cannot be loaded again: .*{reason}"):
        model.load()
    assert session.length == other.length == 0
    with pytest.raises(StateError, match="unloaded"):
        session.prefill(TEXT)
    model.unload()


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
    return tiny_bundles.kept(options)


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


@pytest.mark.full
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
