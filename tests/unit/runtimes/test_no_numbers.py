"""A target whose logits are NaN ends a text with a named error, greedy too, on every runtime.

A draft of which the same is true drafts no more.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
from tiny_models import MemoryTensors

from edgedec.decoding import acceptance, drafting
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.engine import Engine
from edgedec.decoding.policy import Fixed
from edgedec.decoding.request import Request
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.decoding.session import Model
from edgedec.decoding.stopping import StopRule
from edgedec.errors import SessionError
from edgedec.export.onnx import GraphOptions, write_model
from edgedec.models.registry import spec_for
from edgedec.records.load import LoadOptions
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.runtimes.onnx.streaming.model import StreamedOnnxModel
from edgedec.runtimes.onnx.streaming.opening import block_sizes
from edgedec.testing import FakeModel, TableConstraint
from edgedec.testing.decoding import decode, request

SAMPLERS = {
    "greedy": SamplingParams(),
    "penalised": SamplingParams(repetition_penalty=1.1, logit_bias={4: 1.0}),
    "sampled": SamplingParams(temperature=0.8, seed=1),
    "top-k": SamplingParams(temperature=0.8, top_k=5, seed=1),
}
PROMPT = [5, 6, 7, 5, 6]
ALL, ONE = slice(None), slice(20, 21)
GOES_ON = (
    "the draft failed, going on without it: the draft's logits are NaN or infinite: its file is"
    " damaged or its numbers overflow, download or export it again"
)


def write_graph(folder: Path, name: str, rows: slice, value: float, **changes: Any) -> None:
    """Write a tiny model in which these rows of a weight have this value."""
    spec = spec_for(tiny_models.tiny_config(**changes))
    tensors = tiny_models.random_tensors(spec)
    tensors[name][rows] = value
    write_model(spec, MemoryTensors(tensors), folder, GraphOptions("tiny", (1,), "fp32"))


def onnx_model(folder: Path, monkeypatch: pytest.MonkeyPatch, value: float) -> Model:
    write_graph(folder, "model.norm.weight", ALL, value)
    return OnnxModel.load(folder, batch_invariant=False)


def optimum_model(folder: Path, monkeypatch: pytest.MonkeyPatch, value: float) -> Model:
    tiny_optimum = pytest.importorskip("tiny_optimum")
    from edgedec.runtimes.onnx_hub.model import HubModel

    honest = tiny_optimum._Builder.weight

    def weight(self: object, *shape: int, scale: float = 1.0) -> str:
        head = shape == (tiny_optimum.HIDDEN, tiny_optimum.VOCAB)
        found: str = honest(self, *shape, scale=value if head else scale)
        return found

    monkeypatch.setattr(tiny_optimum._Builder, "weight", weight)
    return HubModel.load(tiny_optimum.write_tiny_graph(folder), threads=1)


def streamed_model(folder: Path, monkeypatch: pytest.MonkeyPatch, value: float) -> Model:
    """The same as a target larger than its memory, whose blocks take turns."""
    if not sys.platform.startswith("linux"):
        pytest.skip("needs Linux")
    larger = {"num_hidden_layers": 4, "hidden_size": 128, "intermediate_size": 512}
    write_graph(folder, "model.norm.weight", ALL, value, **larger)
    memory = int(0.6 * sum(block_sizes(folder / "model.onnx")))
    return StreamedOnnxModel.stream(folder, memory, threads=1, batch_invariant=False)


def llama_model(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    value: float,
    name: str = "output_norm.weight",
    rows: slice = slice(None),
) -> Model:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")
    tiny_gguf = pytest.importorskip("tiny_gguf")
    from edgedec.runtimes.llamacpp.model import LlamaModel

    honest = tiny_gguf._values

    def values(*args: object) -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = honest(*args)
        damaged = found[name].copy()
        damaged[rows] = value
        return {**found, name: damaged}

    monkeypatch.setattr(tiny_gguf, "_values", values)
    file = tiny_gguf.write_tiny_gguf(folder / "model.gguf")
    return LlamaModel.load(file, LoadOptions(threads=1, kv="f32"))


MODELS = {
    "onnx": onnx_model,
    "streamed": streamed_model,
    "optimum": optimum_model,
    "llama.cpp": llama_model,
}


def emitted(model: Model, params: SamplingParams, drafter: str) -> int:
    size = model.info.vocab_size
    draft = drafting.create(drafter, DrafterParts(size, branches=model.capabilities.branches))
    engine = Engine(model.open(64), draft, Fixed(3), acceptance.rule())
    return len(decode(engine, request(params, size, PROMPT, max_new_tokens=6)).tokens)


@pytest.mark.parametrize("kind", MODELS)
def test_finite_logits_are_not(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS[kind](tmp_path, monkeypatch, 1.0)
    for params in SAMPLERS.values():
        for drafter in ("none", "lookup", "recycle"):
            assert emitted(model, params, drafter) == 6


# Ends never; the tokens 8 and 9 are forced.
TABLE = {0: dict.fromkeys(range(3, 8), 1), 1: {8: 2}, 2: {9: 0}}


def constrained(model: Model, params: SamplingParams, drafter: str) -> int:
    size = model.info.vocab_size
    draft = drafting.create(drafter, DrafterParts(size, branches=model.capabilities.branches))
    engine = Engine(model.open(64), draft, Fixed(3), acceptance.rule())
    sampler = Sampler(params, size, PROMPT, constraint=TableConstraint(TABLE, size))
    stop = StopRule(eos_ids=(), max_new_tokens=12)
    return len(decode(engine, Request(PROMPT, sampler, stop, None)).tokens)


@pytest.mark.parametrize("decoded", [emitted, constrained])
@pytest.mark.parametrize("kind", MODELS)
def test_logits_that_are_no_numbers_are_named(
    kind: str,
    decoded: Callable[[Model, SamplingParams, str], int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A constraint does not hide them."""
    model = MODELS[kind](tmp_path, monkeypatch, np.nan)
    for params in SAMPLERS.values():
        for drafter in ("none", "lookup", "recycle"):
            with (
                np.errstate(invalid="ignore"),
                pytest.raises(SessionError, match="the target's logits are NaN or infinite"),
            ):
                decoded(model, params, drafter)


@pytest.mark.parametrize("drafter", ["model", "tree", "hybrid", "adaptive"])
@pytest.mark.parametrize("kind", ["onnx", "optimum", "llama.cpp"])
def test_those_of_a_draft_are_told_and_the_text_goes_on(
    kind: str,
    drafter: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = MODELS[kind](tmp_path, monkeypatch, np.nan)
    size = model.info.vocab_size
    target = FakeModel(size, seed=1)
    for params in SAMPLERS.values():
        branches = model.capabilities.branches
        if drafter == "tree" and branches == 1:
            pytest.skip("its sessions compute chains only")
        parts = DrafterParts(size, model.open(64), branches=branches)
        texts = []
        for made in (drafting.create(drafter, parts), drafting.create("none", DrafterParts(size))):
            engine = Engine(target.open(64), made, Fixed(3), acceptance.rule())
            caplog.clear()
            with np.errstate(invalid="ignore"):
                texts.append(decode(engine, request(params, size, PROMPT, max_new_tokens=6)))
            told = [record.getMessage() for record in caplog.records]
            assert told == ([] if made.name == "none" else [GOES_ON])
        assert texts[0] == texts[1]


def onnx_head(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    write_graph(folder, "lm_head.weight", ONE, np.nan, tie_word_embeddings=False)
    return OnnxModel.load(folder, batch_invariant=False)


def llama_head(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    return llama_model(folder, monkeypatch, np.nan, "output.weight", ONE)


@pytest.mark.parametrize("run", [emitted, constrained])
@pytest.mark.parametrize("load", [onnx_head, llama_head])
def test_one_is_enough(
    load: Callable[..., Model],
    run: Callable[..., int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A token's row of the head is damaged: its logit is NaN, also where no filter lets it by."""
    model = load(tmp_path, monkeypatch)
    for params in SAMPLERS.values():
        for drafter in ("none", "lookup", "recycle"):
            with pytest.raises(SessionError, match="the target's logits are NaN or infinite"):
                run(model, params, drafter)
