"""A value of the command line is what Python makes of the same value by the option's name."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
import pytest

from edgedec import GenerateOptions, OpenOptions
from edgedec.cli import _options, _sampling, main
from edgedec.generation.keywords import with_changes

# What a shell has after ``edgedec generate demo PROMPT``, and what Python gives.
Row = tuple[str, dict[str, Any]]
TEXT: list[Row] = [
    (
        r"""-n 9 --temperature 0.8 --top-k 5 --top-p 0.9 --min-p 0.1 --repetition-penalty 1.2
        --presence-penalty 0.3 --frequency-penalty 0.4 --logit-bias 17=-2.5 --logit-bias 3=1 -s 7
        --stop a --stop '\n' --timeout 2.5 --think --think-tokens 64 --json --logprobs 2
        --reasoning-effort low""",
        {
            "max_new_tokens": 9, "temperature": 0.8, "top_k": 5, "top_p": 0.9, "min_p": 0.1,
            "repetition_penalty": 1.2, "presence_penalty": 0.3, "frequency_penalty": 0.4,
            "logit_bias": {17: -2.5, 3: 1}, "seed": 7, "stop": ["a", "\n"], "timeout": 2.5,
            "think": True, "think_tokens": 64, "logprobs": 2, "reasoning_effort": "low",
        },
    ),
    ("--stop end --no-think --json-mode", {"stop": "end", "think": False, "json_mode": True}),
    ("--json-schema schema.json", {"json_schema": Path("schema.json")}),
    ("--json-schema '{\"type\": \"null\"}'", {"json_schema": '{"type": "null"}'}),
    ("--regex 'a|b'", {"regex": "a|b"}),
    ("--grammar words.lark", {"grammar": Path("words.lark")}),
]  # fmt: skip
OPEN: list[Row] = [
    (
        """--draft ./small.gguf --draft-length 4 --draft-context 128 --accept match -t 2
        --provider A --provider B --max-context 64 --memory '1.5 GiB' --kv-memory 512MB
        --plan none --batch-invariant --format gguf --device cpu --draft-device Vulkan0 --no-mmap
        --weight-memory 1GB --batch-threads 3 --kv q8_0 --no-flash-attention --gpu-layers -1
        --draft-gpu-layers 5 --no-repack --mlock --rpc 127.0.0.1:50052,desk:50052 --rpc-trust
        --runtime-option draft_kv=f16""",
        {
            "draft": "small.gguf", "draft_length": 4, "draft_context": 128, "accept": "match",
            "threads": 2, "provider": ("A", "B"), "max_context": 64, "memory": "1.5 GiB",
            "kv_memory": "512MB", "plan": "none", "batch_invariant": True, "format": "gguf",
            "device": "cpu", "draft_device": "Vulkan0", "mmap": False, "weight_memory": "1GB",
            "batch_threads": 3, "kv": "q8_0", "flash_attention": False, "gpu_layers": -1,
            "draft_gpu_layers": 5, "repack": False, "mlock": True, "draft_kv": "f16",
            "rpc": "127.0.0.1:50052,desk:50052", "rpc_trust": True,
        },
    ),
    (
        """--draft lookup --provider CPU --memory 300000B --plan plan.json --no-batch-invariant
        --flash-attention --kv-type q8_0 --runtime-option mmap=off --draft-length auto
        --runtime-option weight_memory=1GB""",
        {
            "draft": "lookup", "provider": "CPU", "memory": 300000, "plan": "plan.json",
            "batch_invariant": False, "flash_attention": True, "kv_type": "q8_0", "mmap": False,
            "weight_memory": "1GB", "draft_length": "auto",
        },
    ),
    ("--draft demo --memory auto --drafter model",
     {"draft": "demo", "memory": "auto", "drafter": "model"}),
]  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "schema.json").write_text('{"type": "object"}')
    (tmp_path / "words.lark").write_text('start: "a" | "b"')
    (tmp_path / "small.gguf").write_text("")
    monkeypatch.chdir(tmp_path)


def parsed(words: str) -> click.Context:
    command = main.get_command(click.Context(main), "generate")
    assert command is not None
    above = click.Context(main, info_name="edgedec", **main.context_settings)
    return command.make_context("generate", ["demo", "a prompt", *shlex.split(words)], parent=above)


@pytest.mark.parametrize(("words", "named"), TEXT)
def test_options_of_a_text(words: str, named: dict[str, Any]) -> None:
    with parsed(words) as context:
        told = _sampling.as_text(_sampling.generate_options(context.params))
    assert with_changes(GenerateOptions(), named) == told
    for name in named:  # the control: each of them counts
        others = {other: value for other, value in named.items() if other != name}
        assert with_changes(GenerateOptions(), others) != told


@pytest.mark.parametrize(("words", "named"), OPEN)
def test_options_for_opening(words: str, named: dict[str, Any]) -> None:
    with parsed(words) as context:
        told = _options.open_options(context.params, "target")
    assert OpenOptions(**named) == told
    for name in named:
        others = {other: value for other, value in named.items() if other != name}
        assert (name, named[name]) == ("draft_length", "auto") or OpenOptions(**others) != told


def test_other_names_lead_to_the_same_field() -> None:
    assert GenerateOptions(timeout=3) == GenerateOptions(timeout_s=3)
    assert OpenOptions(provider="A") == OpenOptions(providers=("A",)) == OpenOptions(providers="A")
    assert OpenOptions(kv_type="q8_0") == OpenOptions(kv="q8_0")
