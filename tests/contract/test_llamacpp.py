"""Every kind of GGUF model passes the contract, and twins broken on purpose do not."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")
pytest.importorskip("gguf", reason="gguf is not installed: extra gguf")

from kinds import first
from tiny_gguf import write_tiny_gguf

from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import PassFailed
from edgedec.records.load import LoadOptions
from edgedec.runtimes.llamacpp.context import Context
from edgedec.runtimes.llamacpp.model import LlamaModel
from edgedec.runtimes.llamacpp.session import Branches, LlamaSession
from edgedec.testing import SessionContract
from edgedec.testing._states import States

Load = Callable[..., LlamaModel]

# A file's architecture and the type of its matrices, the type of keys and values, and how far
# two rows may differ. Where activations or keys are rounded, a sum that differs in its last bit
# tips a digit here and there.
KINDS = {
    "llama-f32": ("llama", "F32", "f32", 1e-4),
    "llama-f32-kv-f16": ("llama", "F32", "f16", 2e-2),
    "llama-f32-kv-q8_0": ("llama", "F32", "q8_0", 0.2),
    "llama-q8_0": ("llama", "Q8_0", "f16", 0.2),
    "llama-q4_0": ("llama", "Q4_0", "f32", 0.3),
    "llama-f32-flash": ("llama", "F32", "f16", 2e-2),
    "window": ("gemma2", "F32", "f32", 5e-4),
    "window-kv-f16": ("gemma2", "F32", "f16", 2e-2),
    "window-flash": ("gemma2", "F32", "f16", 2e-2),
}


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    """Loads a tiny model of some kind, written once."""
    folder = tmp_path_factory.mktemp("gguf")

    def load(kind: str, **options: Any) -> LlamaModel:
        arch, weights, kv, _ = KINDS[kind]
        file = folder / f"{arch}-{weights}.gguf"
        if not file.exists():
            write_tiny_gguf(file, arch, weights)
        if "flash" in kind:
            options["flash_attention"] = True
        return LlamaModel.load(file, LoadOptions(threads=1, kv=kv, **options))

    return load


@pytest.mark.parametrize("kind", first(KINDS))
class TestLlama(SessionContract):
    @pytest.fixture
    def model(self, load: Load, kind: str) -> LlamaModel:
        self.tolerance = KINDS[kind][-1]
        return load(kind)


@pytest.mark.parametrize("kind", first(["llama-f32", "llama-f32-kv-f16", "window"]))
class TestGrowing(SessionContract):
    """Caches that begin with three cells: they grow in the middle of everything."""

    @pytest.fixture
    def model(self, load: Load, kind: str, monkeypatch: pytest.MonkeyPatch) -> LlamaModel:
        self.tolerance = KINDS[kind][-1]
        monkeypatch.setattr("edgedec.runtimes.llamacpp.session._FIRST_CELLS", 3)
        return load(kind)


class TestShownStates(States):
    """Residual streams, which a model shows if it is told which."""

    @pytest.fixture(params=["llama-f32", "growing", "llama-f32-kv-f16"])
    def model(
        self, load: Load, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> LlamaModel:
        kind = "llama-f32" if request.param == "growing" else request.param
        if request.param == "growing":
            monkeypatch.setattr("edgedec.runtimes.llamacpp.session._FIRST_CELLS", 3)
        self.tolerance = KINDS[kind][-1]
        model = load(kind)
        model.show((0, 1))
        assert model.capabilities.taps == (0, 1)
        return model


def test_the_contract_catches_states_of_the_pass_before(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    states, before = Context.states, list[FloatArray]()

    def late(context: Context, count: int) -> FloatArray:
        before.append(states(context, count))
        return before[max(len(before) - 2, 0)]

    monkeypatch.setattr(Context, "states", late)
    contract = States()
    contract.tolerance = KINDS["llama-f32"][-1]
    model = load("llama-f32")
    model.show((0, 1))
    with pytest.raises((AssertionError, ValueError)):
        contract.test_states_of_a_prompt(model)


# In a branching tree a token's ancestors lie in other cells than they will in the text, so that
# sums over them differ in their last bits.
BRANCHING = {
    "test_a_tree_scores_every_path",
    "test_a_tree_right_after_a_one_token_prompt",
    "test_a_pending_tree_grows_branches",
    "test_more_branches_than_it_verifies_change_nothing",
    "test_commit_keeps_one_branch",
    "test_rounds_follow_one_another",
    "test_a_random_walk",
}


@pytest.mark.parametrize("kind", first(KINDS))
class TestRowInvariant(SessionContract):
    """Chains are the same to the last bit."""

    tolerance = 0.0

    @pytest.fixture
    def model(self, load: Load, kind: str, request: pytest.FixtureRequest) -> LlamaModel:
        if request.function.__name__ in BRANCHING:
            self.tolerance = KINDS[kind][-1]
        model = load(kind, batch_invariant=True)
        assert model.capabilities.batch_invariant
        return model


def test_the_contract_catches_a_lone_row(load: Load) -> None:
    contract = SessionContract()
    contract.tolerance = 0.0
    contract.test_a_chain_scores_every_token(load("llama-f32", batch_invariant=True))
    with pytest.raises(AssertionError):
        contract.test_a_chain_scores_every_token(load("llama-f32", batch_invariant=False))


# -- broken twins -------------------------------------------------------------------------------


class KeepsARejectedTail(LlamaSession):
    """Commits one row too many: what was rejected stays in the cache."""

    def _keep(self, tree: TokenTree, path: Sequence[int]) -> None:
        self._branches.forget()


class KeepsRejectedBranches(Branches):
    def keep(self, context: Context, path: Sequence[int], length: int) -> None:
        self.forget()


class TakesTheWrongBranch(Branches):
    def keep(self, context: Context, path: Sequence[int], length: int) -> None:
        self._via = [0] * len(self._via)
        super().keep(context, path, length)


class BringsNoSequenceUpToDate(Branches):
    def _catch_up(self, context: Context, sequence: int, length: int) -> None:
        pass


class ForksWithoutThePath(Branches):
    def _fork(self, context: Context, parent: int, length: int, depth: int) -> int:
        return super()._fork(context, -1, length, depth)


class CountsNodesForPositions(LlamaSession):
    def _branch(self, context: Context, tree: TokenTree, start: int, end: int) -> None:
        flat = copy.copy(tree)
        flat.depths = list(range(len(tree)))
        super()._branch(context, flat, start, end)


class ForksAnEmptyCache(LlamaSession):
    def _copy(self, length: int) -> LlamaSession:
        return LlamaSession(self._model, self.capacity)


# llama.cpp refuses a batch that does not follow on what its cache holds: most twins end there.
REFUSED = (PassFailed, "inconsistent sequence positions|not continuous|is coupled to")
WRONG = (AssertionError, None)

Failure = tuple[type[Exception], str | None]

TWINS: list[tuple[type[LlamaSession] | type[Branches], str, Failure]] = [
    (KeepsARejectedTail, "test_commit_of_part_of_a_path", REFUSED),
    (KeepsRejectedBranches, "test_commit_keeps_one_branch", REFUSED),
    (KeepsRejectedBranches, "test_rounds_follow_one_another", REFUSED),
    (TakesTheWrongBranch, "test_commit_keeps_one_branch", WRONG),
    (BringsNoSequenceUpToDate, "test_a_tree_scores_every_path", REFUSED),
    (ForksWithoutThePath, "test_a_pending_tree_grows_branches", REFUSED),
    (CountsNodesForPositions, "test_a_tree_scores_every_path", REFUSED),
    (ForksAnEmptyCache, "test_forks_part_ways", WRONG),
]


@pytest.mark.parametrize("kind", first(["llama-f32", "window"]))
@pytest.mark.parametrize(("twin", "test", "failure"), TWINS)
def test_the_contract_catches(
    load: Load,
    kind: str,
    twin: type[LlamaSession] | type[Branches],
    test: str,
    failure: Failure,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = load(kind)
    contract = SessionContract()
    contract.tolerance = KINDS[kind][-1]
    getattr(contract, test)(model)  # the model itself passes: what fails is the twin
    if issubclass(twin, LlamaSession):
        model.session = twin
    else:
        monkeypatch.setattr("edgedec.runtimes.llamacpp.session.Branches", twin)
    error, words = failure
    with pytest.raises(error, match=words):
        getattr(contract, test)(model)
