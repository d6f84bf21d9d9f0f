"""ONNX graphs of static shape pass the contract, and twins broken on purpose do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from static_sessions import TESTS, check_last_slot, twins
from tiny_models import write_tiny_graphs
from tiny_variants import VARIANTS

from edgedec.runtimes._static.executor import Array
from edgedec.runtimes.onnx_static.executor import SLOTS
from edgedec.runtimes.onnx_static.model import StaticModel, StaticSession
from edgedec.testing import SessionContract

Load = Callable[..., StaticModel]
MIXTURES = {"qwen3_moe", "olmoe"}
OWN = {"llama": {}, "narrow": {"rows": (1, 3)}}


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    """Loads tiny graphs, written and loaded once."""
    loaded: dict[str, StaticModel] = {}

    def load(variant: str = "llama") -> StaticModel:
        if variant not in loaded:
            folder = tmp_path_factory.mktemp(variant)
            write_tiny_graphs(folder, **{**OWN, **VARIANTS}[variant])
            loaded[variant] = StaticModel.load(folder, threads=1)
        return loaded[variant]

    return load


class TestStatic(SessionContract):
    @pytest.fixture
    def model(self, load: Load) -> StaticModel:
        return load()


class TestNarrow(SessionContract):
    """Trees are wider than the widest pass."""

    @pytest.fixture
    def model(self, load: Load) -> StaticModel:
        return load("narrow")


@pytest.mark.parametrize("variant", sorted(set(VARIANTS) - MIXTURES))
def test_every_variant_keeps_its_cache(load: Load, variant: str) -> None:
    model, contract = load(variant), SessionContract()
    contract.test_a_chain_scores_every_token(model)
    contract.test_a_tree_scores_every_path(model)
    contract.test_rounds_follow_one_another(model)


# -- broken twins -------------------------------------------------------------------------------


class SeesOldRowsInItsSlots(StaticSession):
    """Takes what stands in the slots of this pass for the pass's own rows."""

    def _bias(self, mask: Array, slots: Sequence[int], width: int) -> Array:
        bias = super()._bias(mask, slots, width)
        bias[..., slots] = bias[..., -width:][..., : len(slots)]
        bias[..., -width:] = -4e4
        return bias


class ForgetsWhichSlots(StaticSession):
    def _gather(self, path: Sequence[int]) -> list[int]:
        return self._pending_slots[: len(path)]


class WritesOneSlotTooFar(StaticSession):
    def _written(self, slots: Sequence[int], width: int) -> dict[str, Array]:
        feeds = super()._written(slots, width)
        return {SLOTS: (feeds[SLOTS] + 1) % self._facts.slots}


class SeesPadding(StaticSession):
    """Its last row counts what only fills the pass up."""

    def _bias(self, mask: Array, slots: Sequence[int], width: int) -> Array:
        bias = super()._bias(mask, slots, width)
        bias[..., len(slots) - width :] = 0
        return bias


TWINS = [
    (SeesPadding, "test_a_chain_scores_every_token"),
    (SeesOldRowsInItsSlots, "test_a_chain_scores_every_token"),
    (ForgetsWhichSlots, "test_commit_keeps_one_branch"),
    (WritesOneSlotTooFar, "test_rounds_follow_one_another"),
    *((twin, TESTS[name]) for name, twin in twins(StaticSession).items()),
]


@pytest.mark.parametrize(("twin", "test"), TWINS)
def test_the_contract_catches(
    load: Load, twin: type[StaticSession], test: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load()
    contract = SessionContract()
    getattr(contract, test)(model)  # the model itself passes: what fails is the twin
    monkeypatch.setattr(model, "session", twin)
    with pytest.raises(AssertionError):
        getattr(contract, test)(model)


def test_a_session_up_to_the_last_slot(load: Load) -> None:
    check_last_slot(load())
