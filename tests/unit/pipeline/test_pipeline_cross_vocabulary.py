"""Pipelines whose draft has a tokenizer of its own: exported models, real tokenizers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_bundles
import tiny_tokenizers
from kinds import each_once, in_full
from tiny_checkpoints import noisy_checkpoint
from tokenizers import Tokenizer as Backend

from edgedec import GenerateOptions, Pipeline, SamplingParams
from edgedec.cli._figures import details
from edgedec.runtimes.onnx.session import OnnxSession

DRAFTERS = ["hybrid", "strings", "model", "tree"]
SAMPLERS = {
    "greedy": SamplingParams(),
    "temperature": SamplingParams(temperature=0.9, seed=3),
    "top-p": SamplingParams(temperature=1.1, top_p=0.9, seed=4),
}
PROMPTS = [
    "def add(left, right):\n    return",
    "Ein Mädchen 🙂 naïve \U0001f9d1\u200d\U0001f680 思 <|end|> und",
    "x",
]


def export(folder: Path, backend: Backend, seed: int, **changes: Any) -> Path:
    size = backend.get_vocab_size() + 6
    model = {"tokenizer": backend, "seed": seed, "vocab_size": size, **changes}
    return tiny_bundles.exact(noisy_checkpoint(folder / "checkpoint", **model))


@pytest.fixture(scope="module", params=in_full(["byte-level", "llama"]))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A target with one tokenizer, a draft with the other."""
    folder = tmp_path_factory.mktemp("pair")
    kinds = [request.param, {"byte-level": "llama", "llama": "byte-level"}[request.param]]
    backends = [tiny_tokenizers.KINDS[kind]() for kind in kinds]
    return [
        export(folder / "target", backends[0], 0),
        export(folder / "draft", backends[1], 1, num_hidden_layers=1),
    ]


@pytest.fixture(scope="module")
def opened(pair: list[Path]) -> Iterator[Callable[[str], Pipeline]]:
    kept: dict[str, Pipeline] = {}

    def get(draft: str) -> Pipeline:
        if draft not in kept:
            model = None if draft == "none" else pair[1]
            kept[draft] = Pipeline.open(
                pair[0], drafter=draft, draft=model, draft_length=3, threads=1
            )
        return kept[draft]

    yield get
    for pipeline in kept.values():
        pipeline.close()


def texts(pipeline: Pipeline, most: int | None = None) -> list[tuple[list[int], str]]:
    found = []
    for prompt, params in list(itertools.product(PROMPTS, SAMPLERS.values()))[:most]:
        options = GenerateOptions(max_new_tokens=24, ignore_eos=True, sampling=params)
        result = pipeline.generate(prompt, options)
        found.append((list(result.token_ids), result.text))
    return found


@pytest.mark.parametrize("draft", in_full(DRAFTERS, 2))
def test_the_same_text(opened: Callable[[str], Pipeline], draft: str) -> None:
    assert texts(opened(draft)) == texts(opened("none"))


def test_what_the_vocabularies_share_stands_in_the_plan(opened: Callable[[str], Pipeline]) -> None:
    plan = opened("hybrid").plan
    assert plan["vocabulary"].startswith("shared ")
    assert plan["vocabulary"].endswith("of a sample text")
    assert plan["drafted_by"] in ("token", "string")
    options = GenerateOptions(max_new_tokens=8, ignore_eos=True)
    translated, own = (opened(name).generate(PROMPTS[0], options) for name in ("hybrid", "none"))
    assert f"vocabularies: {plan['vocabulary']}" in details(translated, sampled=False)
    assert "vocabularies" not in ", ".join(details(own, sampled=False))


@pytest.mark.parametrize(("draft", "late"), each_once(["model", "strings"], [False, True]))
def test_ctrl_c_inside_a_pass(
    opened: Callable[[str], Pipeline], draft: str, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, pipeline = texts(opened("none"), 3), opened(draft)
    honest, left = OnnxSession.forward, [0]

    def forward(self: OnnxSession, *args: Any, **named: Any) -> Any:
        left[0] -= 1
        if left[0] == 0 and not late:
            raise KeyboardInterrupt
        scored = honest(self, *args, **named)
        if left[0] == 0:
            raise KeyboardInterrupt
        return scored

    for passes in (1, 2, 4):
        with monkeypatch.context() as patched:
            patched.setattr(OnnxSession, "forward", forward)
            left[0] = passes
            with pytest.raises(KeyboardInterrupt):
                texts(pipeline)
        assert texts(pipeline, 3) == expected
