"""A model whose logits are NaN ends a text with a named error, greedy too, on every runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny_models

from edgedec.decoding import acceptance, drafting
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.engine import Engine
from edgedec.decoding.policy import Fixed
from edgedec.decoding.sampling import SamplingParams
from edgedec.decoding.session import Model
from edgedec.errors import SessionError
from edgedec.export.onnx import GraphOptions, write_model
from edgedec.export.tensors import MemoryTensors
from edgedec.models.registry import spec_for
from edgedec.records.load import LoadOptions
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.testing.decoding import decode, request

SAMPLERS = {
    "greedy": SamplingParams(),
    "penalised": SamplingParams(repetition_penalty=1.1, logit_bias={4: 1.0}),
    "sampled": SamplingParams(temperature=0.8, seed=1),
    "top-k": SamplingParams(temperature=0.8, top_k=5, seed=1),
}
PROMPT = [5, 6, 7, 5, 6]


def onnx_model(folder: Path, monkeypatch: pytest.MonkeyPatch, value: float) -> Model:
    config = tiny_models.tiny_config()
    spec = spec_for(config)
    tensors = tiny_models.random_tensors(spec)
    tensors["model.norm.weight"] = np.full_like(tensors["model.norm.weight"], value)
    write_model(spec, MemoryTensors(tensors), folder, GraphOptions("tiny", (1,), "fp32"))
    return OnnxModel.load(folder, row_invariant=False)


def optimum_model(folder: Path, monkeypatch: pytest.MonkeyPatch, value: float) -> Model:
    tiny_optimum = pytest.importorskip("tiny_optimum")
    from edgedec.runtimes.optimum.model import OptimumModel

    honest = tiny_optimum._Builder.weight

    def weight(self: object, *shape: int, scale: float = 1.0) -> str:
        head = shape == (tiny_optimum.HIDDEN, tiny_optimum.VOCAB)
        found: str = honest(self, *shape, scale=value if head else scale)
        return found

    monkeypatch.setattr(tiny_optimum._Builder, "weight", weight)
    return OptimumModel.load(tiny_optimum.write_tiny_graph(folder), threads=1)


def llama_model(folder: Path, monkeypatch: pytest.MonkeyPatch, value: float) -> Model:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")
    tiny_gguf = pytest.importorskip("tiny_gguf")
    from edgedec.runtimes.llamacpp.model import LlamaModel

    honest = tiny_gguf._values

    def values(*args: object) -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = honest(*args)
        norm = found["output_norm.weight"]
        return {**found, "output_norm.weight": np.full_like(norm, value)}

    monkeypatch.setattr(tiny_gguf, "_values", values)
    file = tiny_gguf.write_tiny_gguf(folder / "model.gguf")
    return LlamaModel.load(file, LoadOptions(threads=1, kv="f32"))


MODELS = {"onnx": onnx_model, "optimum": optimum_model, "llama.cpp": llama_model}


def emitted(model: Model, params: SamplingParams, drafter: str) -> int:
    size = model.info.vocab_size
    draft = drafting.create(drafter, DrafterParts(size, branches=model.capabilities.branches))
    engine = Engine(model.open(64), draft, Fixed(3), acceptance.rule())
    return len(decode(engine, request(params, size, PROMPT, max_new_tokens=6)).tokens)


@pytest.mark.parametrize("kind", MODELS)
def test_logits_that_are_no_numbers_are_named(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = MODELS[kind](tmp_path, monkeypatch, np.nan)
    for params in SAMPLERS.values():
        for drafter in ("none", "lookup", "recycle"):
            with (
                np.errstate(invalid="ignore"),
                pytest.raises(SessionError, match="the target's logits are NaN or -inf"),
            ):
                emitted(model, params, drafter)


@pytest.mark.parametrize("kind", MODELS)
def test_finite_logits_are_not(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS[kind](tmp_path, monkeypatch, 1.0)
    for params in SAMPLERS.values():
        for drafter in ("none", "lookup", "recycle"):
            assert emitted(model, params, drafter) == 6
