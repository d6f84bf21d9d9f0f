"""A tiny target and a draft like it for every class of session."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_models import write_tiny_graphs, write_tiny_model, write_tiny_program
from tiny_optimum import write_tiny_graph

from edgedec.records.load import LoadOptions
from edgedec.runtimes.coreml.model import CoremlModel
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.runtimes.onnx.streaming.model import StreamedOnnxModel
from edgedec.runtimes.onnx.streaming.opening import block_sizes
from edgedec.runtimes.onnx_hub.model import HubModel
from edgedec.runtimes.onnx_static.model import StaticModel

Pair = tuple[Any, Any]


def onnx(folder: Path, noise: float = 0.0) -> OnnxModel:
    write_tiny_model(folder, noise=noise)
    return OnnxModel.load(folder, threads=1, batch_invariant=False)


def streamed(folder: Path) -> Pair:
    larger = {"num_hidden_layers": 4, "hidden_size": 128, "intermediate_size": 512}
    write_tiny_model(folder / "target", **larger)
    memory = int(0.6 * sum(block_sizes(folder / "target" / "model.onnx")))
    target = StreamedOnnxModel.stream(folder / "target", memory, threads=1, batch_invariant=False)
    write_tiny_model(folder / "draft", noise=0.02, **larger)
    return target, OnnxModel.load(folder / "draft", threads=1, batch_invariant=False)


def static(folder: Path) -> Pair:
    write_tiny_graphs(folder)
    return StaticModel.load(folder, threads=1), onnx(folder / "draft", 0.05)


def coreml(form: str, folder: Path) -> Pair:
    write_tiny_program(folder, form)
    target = CoremlModel.load(folder / "model.mlpackage", device="reference")
    return target, onnx(folder / "draft", 0.05)


def optimum(folder: Path) -> Pair:
    model = HubModel.load(write_tiny_graph(folder), threads=1)
    return model, model


def llamacpp(arch: str, folder: Path) -> Pair:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")
    pytest.importorskip("gguf", reason="gguf is not installed: extra gguf")
    from tiny_gguf import write_tiny_gguf

    from edgedec.runtimes.llamacpp.model import LlamaModel

    options = LoadOptions(threads=1, kv="f32")
    files = [write_tiny_gguf(folder / f"{n}.gguf", arch, noise=n) for n in (0.0, 0.15)]
    target, draft = (LlamaModel.load(file, options) for file in files)
    return target, draft


KINDS: dict[str, Callable[[Path], Pair]] = {
    "onnx": lambda folder: (onnx(folder), onnx(folder / "draft", 0.05)),
    "llama": functools.partial(llamacpp, "llama"),
    "gemma2": functools.partial(llamacpp, "gemma2"),
    "streamed": streamed,
    "static": static,
    "slice": functools.partial(coreml, "slice"),
    "blend": functools.partial(coreml, "blend"),
    "optimum": optimum,
}


def loader(folders: pytest.TempPathFactory, **config: Any) -> Callable[..., OnnxModel]:
    """Return what loads a tiny model of some weights, batch-invariant or not, written once."""
    written: dict[str, Path] = {}

    def load(weights: str, batch_invariant: bool) -> OnnxModel:
        if weights not in written:
            written[weights] = folders.mktemp(weights)
            write_tiny_model(written[weights], weights, **config)
        return OnnxModel.load(written[weights], threads=1, batch_invariant=batch_invariant)

    return load
