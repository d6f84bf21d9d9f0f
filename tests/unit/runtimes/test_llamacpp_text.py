"""With F32 weights and F32 keys and values: the same text with every drafter as without.

The draft is another file, which shares enough with the target to be right sometimes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")
pytest.importorskip("gguf", reason="gguf is not installed: extra gguf")

from tiny_gguf import VOCAB, write_tiny_gguf

from edgedec.decoding import acceptance, drafting
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.engine import Engine
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import Fixed
from edgedec.decoding.sampling import SamplingParams
from edgedec.errors import SessionError
from edgedec.records.load import LoadOptions
from edgedec.runtimes.llamacpp.context import Context
from edgedec.runtimes.llamacpp.model import LlamaModel
from edgedec.runtimes.llamacpp.session import Branches, LlamaSession
from edgedec.testing import decoding

DRAFTERS = ["model", "tree", "lookup", "recycle", "hybrid"]
PROMPTS = [[5, 6, 7, 5, 6, 7, 5, 6], [40, 41, 42, 43, 44, 40, 41], [9]]
SAMPLERS = {
    "greedy": SamplingParams(),
    "seeded": SamplingParams(temperature=0.9, top_p=0.95, seed=11),
    "penalised": SamplingParams(temperature=0.7, repetition_penalty=1.2, seed=12),
}
TOKENS = 40
Decode = Callable[..., tuple[list[list[int]], Metrics]]


@pytest.fixture(scope="module", params=["llama", "gemma2"])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[LlamaModel, LlamaModel]:
    folder = tmp_path_factory.mktemp("pair")
    options = LoadOptions(threads=1, kv="f32")
    files = [
        write_tiny_gguf(folder / f"{noise}.gguf", request.param, noise=noise)
        for noise in (0.0, 0.15)
    ]
    target, draft = (LlamaModel.load(file, options) for file in files)
    return target, draft


def decode(
    pair: tuple[LlamaModel, LlamaModel],
    drafter: str,
    params: SamplingParams,
    session: type[LlamaSession] = LlamaSession,
) -> tuple[list[list[int]], Metrics]:
    """The texts of all prompts from one engine, as one user's requests follow each other."""
    target, draft = pair
    chosen = acceptance.rule("coupling")
    engine = Engine(
        session(target, 256),
        drafting.create(drafter, DrafterParts(VOCAB, draft.open(256))),
        Fixed(6, depth=3),
        chosen,
    )
    texts, metrics = [], Metrics()
    for prompt in PROMPTS:
        asked = decoding.request(params, VOCAB, prompt, max_new_tokens=TOKENS)
        texts.append(decoding.decode(engine, asked, metrics).tokens)
    engine.target.close()
    return texts, metrics


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_the_same_with_and_without_speculation(
    pair: tuple[LlamaModel, LlamaModel], drafter: str, sampler: str
) -> None:
    plain, _ = decode(pair, "none", SAMPLERS[sampler])
    assert [len(text) for text in plain] == [TOKENS] * len(PROMPTS)
    speculative, metrics = decode(pair, drafter, SAMPLERS[sampler])
    assert speculative == plain
    assert metrics.drafted_tokens > 0
    assert metrics.accepted_tokens < metrics.drafted_tokens


def test_drafts_are_accepted(pair: tuple[LlamaModel, LlamaModel]) -> None:
    """Otherwise the tests above would say little."""
    accepted = {name: decode(pair, name, SamplingParams())[1].accepted_tokens for name in DRAFTERS}
    assert sum(accepted.values()) > 20, accepted


class CommitsOneRowTooMany(LlamaSession):
    """Where the draft went on after the rejected token, that token stays."""

    def commit(self, path: Sequence[int]) -> None:
        extra = path[-1] + 1 if path else 0
        if self._tree is not None and self._tree.is_chain and 0 < extra < self._pending:
            super().commit([*path, extra])
            self._length -= 1
        else:
            super().commit(path)


class KeepsRejectedBranches(Branches):
    """The best leaf's cells are shared with the text, and no rejected ones are dropped."""

    def keep(self, context: Context, path: Sequence[int], length: int) -> None:
        if path and (winner := self._via[path[-1]]):
            context.share(winner, 0, length, length + len(path))
        self.forget()


def differs(pair: tuple[LlamaModel, LlamaModel], drafter: str, **twin: type[LlamaSession]) -> bool:
    """Whether a text is another, or llama.cpp itself notices."""
    plain, _ = decode(pair, "none", SamplingParams())
    try:
        return decode(pair, drafter, SamplingParams(), **twin)[0] != plain
    except SessionError:
        return True


def test_a_row_too_many_is_noticed(pair: tuple[LlamaModel, LlamaModel]) -> None:
    assert not differs(pair, "model")
    assert differs(pair, "model", session=CommitsOneRowTooMany)


def test_rejected_branches_are_noticed(
    pair: tuple[LlamaModel, LlamaModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not differs(pair, "tree")
    monkeypatch.setattr("edgedec.runtimes.llamacpp.session.Branches", KeepsRejectedBranches)
    assert differs(pair, "tree")
