"""Both forms of a CoreML program pass the contract, and twins broken on purpose do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import fake_coremltools
import numpy as np
import pytest
from kinds import nightly
from static_sessions import TESTS, check_last_slot, twins
from tiny_models import write_tiny_program
from tiny_variants import VARIANTS

from edgedec.coreml import Package
from edgedec.coreml.types import Array
from edgedec.runtimes._static.session import StaticShapeSession
from edgedec.runtimes.coreml.compiled import CompiledProgram
from edgedec.runtimes.coreml.mac import MacExecutor
from edgedec.runtimes.coreml.model import BlendSession, CoremlModel, SliceSession
from edgedec.testing import SessionContract

Load = Callable[..., CoremlModel]
FORMS = ("slice", "blend")
MIXTURES = {"qwen3_moe", "olmoe"}


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    """Loads a tiny program of some form, written and loaded once."""
    written: dict[tuple[str, str], Path] = {}
    loaded: dict[tuple[str, str, bool], CoremlModel] = {}

    def load(form: str, variant: str = "llama", *, exact: bool = True) -> CoremlModel:
        if (form, variant) not in written:
            folder = written[form, variant] = tmp_path_factory.mktemp(f"{form}-{variant}")
            changes = {"llama": {}, "narrow": {"rows": (1, 3)}, **VARIANTS}[variant]
            write_tiny_program(folder, form, **changes)
        if (form, variant, exact) not in loaded:
            folder = written[form, variant] / "model.mlpackage"
            loaded[form, variant, exact] = CoremlModel.load(folder, device="reference", exact=exact)
        return loaded[form, variant, exact]

    return load


@pytest.mark.parametrize("form", FORMS)
class TestCoreml(SessionContract):
    @pytest.fixture
    def model(self, load: Load, form: str) -> CoremlModel:
        return load(form)


@pytest.mark.parametrize("form", FORMS)
class TestNarrow(SessionContract):
    """Trees are wider than the widest pass."""

    @pytest.fixture
    def model(self, load: Load, form: str) -> CoremlModel:
        return load(form, "narrow")


@pytest.mark.parametrize("form", FORMS)
class TestHalf(SessionContract):
    """Every value is rounded to fp16."""

    tolerance = 0.15

    @pytest.fixture
    def model(self, load: Load, form: str) -> CoremlModel:
        return load(form, exact=False)


@pytest.fixture(scope="module")
def macs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, CoremlModel]]:
    """Tiny programs by form, computed by the executor for macOS over a double of coremltools."""
    found = {}
    for form in FORMS:
        folder = tmp_path_factory.mktemp(f"mac-{form}")
        write_tiny_program(folder, form)
        package = Package.open(folder / "model.mlpackage")
        program = CompiledProgram(package.folder, fake_coremltools.tools())
        found[form] = CoremlModel(package, MacExecutor(program, "gpu"))
    yield found
    for model in found.values():
        model.close()


@pytest.mark.parametrize("form", FORMS)
class TestMac(SessionContract):
    """What the executor for macOS does with coremltools' functions and states."""

    tolerance = 0.15

    @pytest.fixture
    def model(self, macs: dict[str, CoremlModel], form: str) -> CoremlModel:
        return macs[form]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("variant", nightly(sorted(set(VARIANTS) - MIXTURES), 4))
def test_every_variant_keeps_its_cache(load: Load, form: str, variant: str) -> None:
    model, contract = load(form, variant), SessionContract()
    contract.test_a_chain_scores_every_token(model)
    contract.test_a_tree_scores_every_path(model)
    contract.test_rounds_follow_one_another(model)


# -- broken twins -------------------------------------------------------------------------------


class LeavesRowsWhereTheyAre(SliceSession):
    def _move(self, sources: Sequence[int], to: int) -> None:
        pass


class MovesOneRowTooFar(SliceSession):
    def _move(self, sources: Sequence[int], to: int) -> None:
        super()._move([source + 1 for source in sources], to)


class WritesAtTheLength(SliceSession):
    def _written(self, slots: Sequence[int], width: int) -> dict[str, Array]:
        return {"begin": np.array([self._length], np.int32)}


class KeepsWhatItShouldReplace(BlendSession):
    def _written(self, slots: Sequence[int], width: int) -> dict[str, Array]:
        feeds = super()._written(slots, width)
        return {**feeds, "keep": np.ones_like(feeds["keep"])}


class ForgetsWhichSlots(BlendSession):
    def _gather(self, path: Sequence[int]) -> list[int]:
        return self._pending_slots[: len(path)]


class WritesItsPadding(BlendSession):
    def _written(self, slots: Sequence[int], width: int) -> dict[str, Array]:
        feeds = super()._written(slots, width)
        feeds["place"][0, len(slots) :, 0] = 1
        return feeds


TWINS = [
    ("slice", LeavesRowsWhereTheyAre, "test_commit_keeps_one_branch"),
    ("slice", MovesOneRowTooFar, "test_commit_keeps_one_branch"),
    ("slice", WritesAtTheLength, "test_a_pending_tree_grows_branches"),
    ("blend", KeepsWhatItShouldReplace, "test_rounds_follow_one_another"),
    ("blend", ForgetsWhichSlots, "test_commit_keeps_one_branch"),
    ("blend", WritesItsPadding, "test_rounds_follow_one_another"),
    *((form, twin, TESTS[name])
      for form, base in (("slice", SliceSession), ("blend", BlendSession))
      for name, twin in twins(base).items()),
]  # fmt: skip


@pytest.mark.parametrize(("form", "twin", "test"), TWINS)
def test_the_contract_catches(
    load: Load,
    form: str,
    twin: type[StaticShapeSession],
    test: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = load(form)
    contract = SessionContract()
    getattr(contract, test)(model)  # the model itself passes: what fails is the twin
    monkeypatch.setattr(model, "session", twin)
    with pytest.raises(AssertionError):
        getattr(contract, test)(model)


@pytest.mark.parametrize("form", FORMS)
def test_equal_logits_are_ranked_by_id(load: Load, form: str) -> None:
    session = load(form).open(8)
    logits = np.array([[1, 3, 3, 2]], np.float32)
    found = session._ranked(0, logits, np.array([[7, 9, 4, 1]], np.int32))
    assert found.top_ids.tolist() == [[4, 9, 1, 7]]
    assert found.top_logits.tolist() == [[3, 3, 2, 1]]


@pytest.mark.parametrize("form", FORMS)
def test_a_session_up_to_the_last_slot(load: Load, form: str) -> None:
    check_last_slot(load(form))
