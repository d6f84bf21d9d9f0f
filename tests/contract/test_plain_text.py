"""On every class of session, whatever is drafted: the text is plain decoding's, token for token.

The draft is much like the target, so that it is right sometimes. The demo pair, heads, other
vocabularies and whole pipelines have tests of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from broken_rules import accepts_one_more
from kinds import in_full
from session_kinds import KINDS, Pair

from edgedec.decoding import acceptance, drafting
from edgedec.decoding.drafting._earlier import EarlierTexts, corpus_of
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.engine import Engine
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import Fixed
from edgedec.decoding.sampling import SamplingParams
from edgedec.errors import InputError, SessionError
from edgedec.testing import decoding

VOCAB, TOKENS = 96, 40
PROMPTS = [[5, 6, 7, 5, 6, 7, 5, 6], [40, 41, 42, 43, 44, 40, 41], [9]]
SAMPLERS = {
    "greedy": SamplingParams(),
    "seeded": SamplingParams(temperature=0.9, top_p=0.95, seed=11),
    "all": SamplingParams(
        temperature=0.7,
        top_k=40,
        min_p=0.01,
        repetition_penalty=1.2,
        presence_penalty=0.3,
        frequency_penalty=0.2,
        logit_bias={70: 3, 80: -2.5},
        seed=12,
    ),
}
DRAFTERS = ["model", "tree", "lookup", "suffix", "recycle", "hybrid"]


# A drafter, and a method without which the kind's sessions keep other rows than those accepted.
BROKEN: dict[str, tuple[str, str, Callable[..., Any]]] = {
    "onnx": ("tree", "onnx.session.OnnxSession._keep", lambda *_: None),
    "streamed": ("tree", "onnx.session.OnnxSession._keep", lambda *_: None),
    "static": (
        "tree",
        "onnx_static.model.StaticSession._gather",
        lambda s, path: s._pending_slots[: len(path)],
    ),
    "slice": ("tree", "coreml.model.SliceSession._move", lambda *_: None),
    "blend": (
        "tree",
        "coreml.model.BlendSession._gather",
        lambda s, path: s._pending_slots[: len(path)],
    ),
    "optimum": ("recycle", "onnx_hub.cache.PastCache.keep", lambda *_: None),
    "llama": ("tree", "llamacpp.session.Branches.keep", lambda s, *_: s.forget()),
    "gemma2": ("tree", "llamacpp.session.Branches.keep", lambda s, *_: s.forget()),
}


@pytest.fixture(scope="module", params=in_full(KINDS, 3))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def pair(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp(kind)
    (folder / "draft").mkdir()
    return KINDS[kind](folder)


def decode(
    pair: Pair, drafter: str, params: SamplingParams, earlier: Sequence[list[int]] = ()
) -> tuple[list[list[int]], Metrics]:
    """The texts of all prompts from one engine, as one user's requests follow each other."""
    target, draft = pair
    parts = DrafterParts(
        VOCAB,
        draft.open(256),
        branches=target.capabilities.branches,
        earlier=EarlierTexts(corpus_of(earlier)) if earlier else None,
    )
    rule = acceptance.rule("coupling")
    engine = Engine(target.open(256), drafting.create(drafter, parts), Fixed(6, depth=3), rule)
    texts, metrics = [], Metrics()
    for prompt in PROMPTS:
        asked = decoding.request(params, VOCAB, prompt, max_new_tokens=TOKENS)
        texts.append(decoding.decode(engine, asked, metrics).tokens)
    engine.target.close()
    return texts, metrics


@pytest.fixture(scope="module")
def plain(pair: Pair) -> dict[str, list[list[int]]]:
    return {name: decode(pair, "none", params)[0] for name, params in SAMPLERS.items()}


@pytest.mark.parametrize("sampler", in_full(SAMPLERS, 2))
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_it_is_plain_decodings(
    kind: str, pair: Pair, plain: dict[str, list[list[int]]], drafter: str, sampler: str
) -> None:
    assert [len(text) for text in plain[sampler]] == [TOKENS] * len(PROMPTS)
    if drafter == "tree" and pair[0].capabilities.branches == 1:
        with pytest.raises(InputError, match="only chains are verified here"):
            decode(pair, drafter, SAMPLERS[sampler])
        return
    # Earlier texts that are like these, but for every ninth token.
    others = zip(PROMPTS, plain[sampler], strict=True)
    earlier = [
        [*prompt, *(token if n % 9 else token ^ 1 for n, token in enumerate(text))]
        for prompt, text in others
    ]
    texts, metrics = decode(pair, drafter, SAMPLERS[sampler], earlier)
    assert texts == plain[sampler]
    assert metrics.sources["suffix"] > 20 or drafter != "suffix"
    assert metrics.drafted_tokens > 0
    own = kind == "optimum" and drafter == "model"  # the target itself is the draft
    assert own or metrics.accepted_tokens < metrics.drafted_tokens


def test_drafts_are_accepted(pair: Pair) -> None:
    """Otherwise the test above would say little."""
    names = ("model", "lookup", "recycle")
    accepted = {name: decode(pair, name, SamplingParams())[1].accepted_tokens for name in names}
    assert sum(accepted.values()) > 20, accepted


def test_a_rule_that_accepts_too_much_is_noticed(
    pair: Pair, plain: dict[str, list[list[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    accepts_one_more(monkeypatch)
    assert decode(pair, "recycle", SAMPLERS["all"])[0] != plain["all"]


def test_a_session_that_keeps_other_rows_is_noticed(
    kind: str, pair: Pair, plain: dict[str, list[list[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    drafter, method, twin = BROKEN[kind]
    monkeypatch.setattr(f"edgedec.runtimes.{method}", twin)
    try:
        found: object = decode(pair, drafter, SamplingParams())[0]
    except SessionError as error:  # llama.cpp itself notices
        found = error
    assert found != plain["greedy"]
