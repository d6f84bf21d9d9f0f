"""The longest text of a decoder whose positions are scaled is what its makers say."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import tiny_models
from kinds import in_full
from tiny_gguf import write_tiny_gguf

from edgedec._support.scaled_context import scaled_context
from edgedec.gguf.header import GgufHeader
from edgedec.models.registry import spec_for

LONG = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}


def scaling(kind: str, factor: float | None = None, original: int | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"rope_type": kind}
    if factor is not None:
        found["factor"] = factor
    if original is not None:
        found["original_max_position_embeddings"] = original
    return found


LLAMA3 = scaling("llama3", 8.0, 8192) | {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
# By the model whose config.json has these fields (its card's context), or by what says so.
CONFIGS: dict[str, tuple[dict[str, Any], int, int]] = {
    "Qwen2.5-7B-Instruct, as its card says to edit it": (
        {"rope_scaling": scaling("yarn", 4.0, 32768)}, 32768, 131072),
    "Qwen3-8B, as its card says to edit it": (
        {"rope_scaling": scaling("yarn", 4.0, 32768)}, 40960, 131072),
    "Yarn-Llama-2-13b-64k": (
        {"rope_scaling": {**scaling("yarn", 16.0, 4096), "finetuned": True}}, 65536, 65536),
    "transformers: YaRN's original length is what is stated": (
        {"rope_scaling": scaling("yarn", 2.0)}, 4096, 8192),
    "transformers 5 names it rope_parameters": (
        {"rope_parameters": {**scaling("yarn", 4.0, 32768), "rope_theta": 1e6}}, 32768, 131072),
    "Llama-3.1-8B": ({"rope_scaling": LLAMA3}, 131072, 131072),
    "Llama 3 with the scaling of 3.1 and its own length": ({"rope_scaling": LLAMA3}, 8192, 65536),
    "vicuna-7b-v1.5-16k": ({"rope_scaling": scaling("linear", 4.0)}, 4096, 16384),
    "longchat-7b-v1.5-32k": ({"rope_scaling": scaling("linear", 8.0)}, 4096, 32768),
    "an older name": ({"rope_scaling": {"type": "linear", "factor": 2.5}}, 2048, 5120),
    "deepseek-coder-6.7b-base": ({"rope_scaling": scaling("linear", 4.0)}, 16384, 16384),
    "LLaMA-2-7B-32K": ({"rope_scaling": scaling("linear", 8.0)}, 32768, 32768),
    "linear, with its original length": (
        {"rope_scaling": scaling("linear", 2.0, 8192)}, 16384, 16384),
    "internlm2-chat-7b: dynamic": ({"rope_scaling": scaling("dynamic", 2.0)}, 32768, 32768),
    "Phi-3.5-mini-instruct": (
        {"model_type": "phi3", "original_max_position_embeddings": 4096,
         "rope_scaling": {"type": "longrope", **LONG}}, 131072, 131072),
    "Phi-3-mini-128k-instruct, its first revision": (
        {"model_type": "phi3", "original_max_position_embeddings": 4096,
         "rope_scaling": {"type": "su", **LONG}}, 131072, 131072),
    "MiniCPM4-8B: longrope within its own length": (
        {"rope_scaling": {**scaling("longrope", None, 32768), **LONG}}, 32768, 32768),
    "the older name of longrope, with a factor": (
        {"rope_scaling": {"type": "su", "factor": 4.0, **LONG}}, 4096, 16384),
    "gemma-3-4b: the stretched length is stated": (
        {"model_type": "gemma3_text", "rope_scaling": scaling("linear", 8.0)}, 131072, 131072),
    "no scaling": ({"rope_scaling": None}, 4096, 4096),
    "the scaling of none": ({"rope_scaling": scaling("default")}, 4096, 4096),
}  # fmt: skip


def spec(fields: dict[str, Any], stated: int) -> Any:
    return spec_for(tiny_models.tiny_config(max_position_embeddings=stated, **fields))


@pytest.mark.parametrize("name", CONFIGS)
def test_folders(name: str) -> None:
    fields, stated, longest = CONFIGS[name]
    assert spec(fields, stated).max_context == longest


def test_the_control_takes_what_is_stated() -> None:
    assert sum(stated != longest for _, stated, longest in CONFIGS.values()) == 9


def test_the_factor_of_longrope_counts_where_no_longer_text_is_stated() -> None:
    """As transformers: sqrt(1 + ln(factor) / ln(original)) on sines and cosines."""
    fields, stated, _ = CONFIGS["the older name of longrope, with a factor"]
    rope = spec(fields, stated).rope
    assert rope.scaling["attention_factor"] == pytest.approx(
        math.sqrt(1 + math.log(4.0) / math.log(4096))
    )


# The keys that converters write, and the context.
FILES: dict[str, tuple[dict[str, Any], int, int]] = {
    "yarn": ({"type": "yarn", "factor": 4.0, "original_context_length": 32768}, 32768, 131072),
    "yarn without its original": ({"type": "yarn", "factor": 2.0}, 4096, 8192),
    "yarn, the longer stated": (
        {"type": "yarn", "factor": 4.0, "original_context_length": 32768}, 131072, 131072),
    "linear": ({"type": "linear", "factor": 4.0}, 4096, 16384),
    "linear, the longer stated": ({"type": "linear", "factor": 8.0}, 131072, 131072),
    "none": ({"type": "none", "factor": 8.0}, 4096, 4096),
    "a factor alone is that of linear": ({"factor": 8.0}, 4096, 32768),
    "a factor that is none": ({"type": "yarn", "factor": -4.0}, 4096, 4096),
    "a factor without end": ({"type": "yarn", "factor": math.inf}, 4096, 4096),
    "beyond every number": ({"type": "yarn", "factor": 3e38}, 4096, 2**31 - 1),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_gguf_files(tmp_path: Path, name: str) -> None:
    keys, stated, longest = FILES[name]
    header = GgufHeader.read(write_tiny_gguf(tmp_path / "tiny.gguf"))
    start = f"{header.architecture}."
    metadata = {**header.metadata, f"{start}context_length": stated}
    metadata |= {f"{start}rope.scaling.{key}": value for key, value in keys.items()}
    assert dataclasses.replace(header, metadata=metadata).context_length == longest


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_a_file_made_of_a_folder_has_its_context(tmp_path: Path, name: str) -> None:
    from edgedec.export.gguf.known import architecture_for
    from edgedec.export.gguf.metadata import model_keys

    fields, stated, longest = CONFIGS[name]
    made = spec(fields, stated)
    header = GgufHeader.read(write_tiny_gguf(tmp_path / "tiny.gguf"))
    architecture = architecture_for(made)
    keys = {**model_keys(made, architecture), "general.architecture": architecture.name}
    other = dataclasses.replace(header, metadata={**header.metadata, **keys})
    assert other.context_length == longest


@pytest.mark.parametrize("kind", in_full(["yarn", "linear"]))
def test_a_text_beyond_what_is_stated_is_read(tmp_path: Path, kind: str) -> None:
    """By ONNX Runtime and by llama.cpp, from one folder; a text is refused only beyond it."""
    pytest.importorskip("llama_cpp", reason="a GGUF file is opened with the extra gguf")
    import edgedec
    from edgedec.errors import InputError
    from edgedec.export import ExportOptions, export_bundle

    stated, longest = 32, 128
    folder = tiny_models.tiny_checkpoint(
        tmp_path / "m", max_position_embeddings=stated, rope_scaling=scaling(kind, 4.0)
    )
    for form, weights in (("onnx", "fp32"), ("gguf", "f32")):
        out = tmp_path / form
        export_bundle(
            ExportOptions(target=folder, out=out, formats=(form,), weights=weights,
                          calibration="none")
        )  # fmt: skip
        with edgedec.Pipeline.open(out, drafter="none") as pipeline:
            assert pipeline.target.info.max_context == longest
            prompt = list(range(1, 101))
            found = pipeline.generate(prompt, max_new_tokens=8, ignore_eos=True)
            assert len(found.token_ids) == 8
            with pytest.raises(InputError):
                pipeline.generate(list(range(1, 130)), max_new_tokens=8)


def test_bounds() -> None:
    assert scaled_context("linear", 1, 1e300) == 2**31 - 1
    assert scaled_context("yarn", 100, 0.5) == 100
    assert scaled_context("other", 100, 4.0, 50) == 100
