"""Recurrent models and hybrids pass the contract, and twins broken on purpose do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")
pytest.importorskip("gguf", reason="gguf is not installed: extra gguf")

import tiny_granite
import tiny_lfm2
from kinds import first
from tiny_gguf import write_tiny_gguf
from tiny_hybrids import ARCHITECTURES, write_hybrid_gguf
from tiny_models import CHECKPOINT_VOCAB, tiny_checkpoint

from edgedec.errors import RuntimeUnavailable
from edgedec.export import ExportOptions, export_bundle
from edgedec.records.load import LoadOptions
from edgedec.runtimes.llamacpp.context import Context
from edgedec.runtimes.llamacpp.model import LlamaModel
from edgedec.runtimes.llamacpp.trail import Trail
from edgedec.testing import SessionContract
from edgedec.testing._states import States

Load = Callable[..., LlamaModel]

# A file's architecture and how far two rows may differ, where keys and values are f32.
KINDS = {
    "qwen35": 1e-3, "qwen35moe": 1e-3, "lfm2": 1e-4, "mamba": 1e-3, "granitehybrid": 1e-3,
    "lfm2moe": 1e-4,
}  # fmt: skip
EXPORTED: dict[str, dict[str, Any]] = {
    "granitehybrid": tiny_granite.CONFIG,
    "lfm2moe": tiny_lfm2.CONFIG
    | {"model_type": "lfm2_moe", "num_experts": 4, "num_experts_per_tok": 2}
    | {"moe_intermediate_size": 32, "num_dense_layers": 1},
}


def write_exported(file: Path, kind: str, weights: str) -> None:
    """Write a decoder as it is exported."""
    own = EXPORTED[kind] | {"vocab_size": CHECKPOINT_VOCAB}
    checkpoint = tiny_checkpoint(file.parent / kind, **own)
    options = ExportOptions(
        checkpoint, file.parent / f"{kind}-{weights}", formats=("gguf",), weights=weights.lower(),
        parity=False, calibration="none",
    )  # fmt: skip
    export_bundle(options)
    (options.out / "target" / "model.gguf").rename(file)


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    """Loads a tiny model of some kind, written once."""
    folder = tmp_path_factory.mktemp("hybrids")

    def load(kind: str, weights: str = "F32", **options: Any) -> LlamaModel:
        file = folder / f"{kind}-{weights}.gguf"
        if not file.exists():
            ways = {
                **dict.fromkeys(EXPORTED, write_exported),
                **dict.fromkeys(ARCHITECTURES, write_hybrid_gguf),
            }
            write = ways.get(kind, write_tiny_gguf)
            write(file, kind, weights)
        return LlamaModel.load(file, LoadOptions(threads=1, **options))

    return load


@pytest.mark.parametrize("kind", first(KINDS))
class TestHybrid(SessionContract):
    @pytest.fixture
    def model(self, load: Load, kind: str) -> LlamaModel:
        self.tolerance = KINDS[kind]
        return load(kind, kv="f32")


class TestGrowing(SessionContract):
    """Caches that begin with three cells: states move in the middle of everything."""

    tolerance = KINDS["qwen35"]

    @pytest.fixture
    def model(self, load: Load, monkeypatch: pytest.MonkeyPatch) -> LlamaModel:
        monkeypatch.setattr("edgedec.runtimes.llamacpp.session._FIRST_CELLS", 3)
        return load("qwen35", kv="f32")


@pytest.mark.parametrize("kind", first(["qwen35", "qwen35moe", "mamba", "granitehybrid"]))
class TestRowInvariant(SessionContract):
    """Quantised weights: states are the same to the last bit, whichever way a session went back."""

    tolerance = 0.0

    @pytest.fixture
    def model(self, load: Load, kind: str) -> LlamaModel:
        model = load(kind, "Q8_0", batch_invariant=True)
        assert model.capabilities.batch_invariant
        return model


def test_rows_that_differ_now_and_then_are_not_called_the_same(load: Load) -> None:
    assert not load("lfm2", "Q8_0").capabilities.batch_invariant
    with pytest.raises(RuntimeUnavailable, match="its rows depend on how many"):
        load("lfm2", "Q8_0", batch_invariant=True)


class TestShownStates(States):
    """Residual streams of a hybrid, whose rows are those before its pass went back, too."""

    tolerance = KINDS["qwen35"]

    @pytest.fixture
    def model(self, load: Load) -> LlamaModel:
        model = load("qwen35", kv="f32")
        model.show((0, 1, 3))
        assert model.capabilities.taps == (0, 1, 3)
        return model


class OneRowAhead(Trail):
    """Takes the state before a pass for one of those that were kept of it."""

    def computed(self, context: Context, tokens: Sequence[int]) -> None:
        super().computed(context, tokens)
        self._droppable = min(context.kept, len(tokens))


class ForgetsWhatWasPrefilled(Trail):
    def computed(self, context: Context, tokens: Sequence[int]) -> None:
        super().computed(context, tokens[-1:] * len(tokens))


@pytest.mark.parametrize(
    ("twin", "test"),
    [
        (OneRowAhead, "test_commit_of_part_of_a_path"),
        (OneRowAhead, "test_rollback_drops_a_pending_tree"),
        (ForgetsWhatWasPrefilled, "test_forks_part_ways"),
    ],
)
def test_the_contract_catches(
    load: Load, twin: type[Trail], test: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, contract = load("lfm2", kv="f32"), SessionContract()
    contract.tolerance = KINDS["lfm2"]
    getattr(contract, test)(model)  # the model itself passes: what fails is the twin
    monkeypatch.setattr("edgedec.runtimes.llamacpp.session.Trail", twin)
    with pytest.raises(AssertionError):
        getattr(contract, test)(model)
