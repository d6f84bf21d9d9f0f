"""Widens and deepens a hybrid of Qwen3.5's kind and its MTP layer; their outputs stay the same.

    python -m benchmarks.models.grow_hybrid build/hybrid /tmp/big

As ``benchmarks.models.grow`` does, for the tensors that its checkpoint stores: what is new in a
layer, and each new layer, is computed in full and adds nothing. Kinds of layers follow each other
as before. Heads keep their size; the delta rule gets more of them. Epsilon does not grow, since the
norms of heads use it too, so small states are normed slightly differently.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models import exit_code
from benchmarks.models.grow import copy_companions
from benchmarks.models.tensors import Floats, TensorFolder, write_tensors
from benchmarks.models.widening import Grown, Plan, query_places
from edgedec.errors import InputError
from edgedec.export.checkpoint import read_json
from edgedec.models.config import Config
from edgedec.models.registry import spec_for


@dataclass(frozen=True, slots=True)
class HybridShape:
    """Sizes of a hybrid that can grow; the defaults are 0.5 B."""

    hidden_size: int = 1536
    intermediate_size: int = 6144
    num_hidden_layers: int = 12
    num_attention_heads: int = 32
    num_key_value_heads: int = 8
    linear_num_key_heads: int = 16
    linear_num_value_heads: int = 32


def grow_hybrid(source: Path, out: Path, shape: HybridShape, seed: int = 0) -> None:
    """Grow the checkpoint of folder ``source``, and write it to folder ``out``.

    Args:
        source: a Hugging Face folder of ``qwen3_5_text``, with ``layer_types`` and tied embedding.
        out: gets config.json, model.safetensors (float16; norms and gates float32), and copies of
            the tokenizer's files.
        shape: no size smaller than the source's.
        seed: of the random values; equal arguments write equal bytes.

    Raises:
        InputError: a size shrinks, or heads are shared otherwise.

    """
    config = read_json(source / "config.json")
    sizes = {name: getattr(shape, name) for name in HybridShape.__slots__}
    for name, after in sizes.items():
        before = Config(config).positive(name)
        if after % before:
            raise InputError(f"{name} is {after}, expected a multiple of the source's {before}")
    if shape.linear_num_value_heads * Config(config).positive("linear_num_key_heads") != (
        shape.linear_num_key_heads * Config(config).positive("linear_num_value_heads")
    ):
        raise InputError("linear_num_value_heads: expected the source's number for each key head")
    kinds = config["layer_types"]
    types = kinds * (shape.num_hidden_layers // len(kinds))
    places = _places(kinds, types)
    out.mkdir(parents=True, exist_ok=True)
    copy_companions(source, out)
    grown = {**config, **sizes, "layer_types": types}
    (out / "config.json").write_text(json.dumps(grown, indent=2) + "\n", "utf-8")
    tensors, plans = TensorFolder(source), _plans(config, grown)

    def planned(name: str, _: bool) -> tuple[Plan, tuple[int, ...]] | Floats:
        matrix = plans.get(name.split(".")[-2])
        return matrix or _vector(tensors.read(name), name, config, grown)

    made = Grown(tensors, planned, seed)
    like = [
        places.index(layer) if layer in places else kinds.index(kind)
        for layer, kind in enumerate(types)
    ]
    write_tensors(out / "model.safetensors", made.headers(places, like), made.chunks)


def _places(kinds: Sequence[str], types: Sequence[str]) -> list[int]:
    """Return where each layer goes: evenly, to the next place of its kind."""
    found = [-1]
    for layer, kind in enumerate(kinds):
        even = layer * len(types) // len(kinds)
        found.append(types.index(kind, max(even, found[-1] + 1)))
    return found[1:]


def _vector(
    stored: Floats, name: str, small: Mapping[str, Any], large: Mapping[str, Any]
) -> Floats:
    """Return a grown norm's weights, or the gates of heads."""
    if name.endswith(("A_log", "dt_bias")):
        return np.resize(stored, large["linear_num_value_heads"])
    if stored.size != small["hidden_size"] or "linear_attn" in name:
        return stored  # over a head, whose size does not change
    wide = large["hidden_size"]
    # The mean square over more channels is smaller; what is stored lacks 1.
    ratio = np.sqrt(stored.size / wide)
    grown: Floats = (np.resize(stored + 1, wide) * ratio - 1).astype(np.float32)
    return grown


def _plans(
    config: Mapping[str, Any], grown: Mapping[str, Any]
) -> dict[str, tuple[Plan, tuple[int, ...]]]:
    """Return the plan and the shape of each kind of matrix."""
    small, large = spec_for(config), spec_for(grown)
    heads, more = (
        [one[f"linear_num_{kind}_heads"] for kind in ("key", "value")] for one in (config, grown)
    )
    key, value = config["linear_key_head_dim"], config["linear_value_head_dim"]
    keys, values = np.arange(heads[0] * key), np.arange(heads[1] * value)
    stream, taps = np.arange(small.hidden), np.arange(config["linear_conv_kernel_dim"])
    # Places of the old rows and columns, and how many there are.
    mixed = (
        np.concatenate([keys, more[0] * key + keys, 2 * more[0] * key + values]),
        2 * more[0] * key + more[1] * value,
    )
    delta, gates = (values, more[1] * value), (np.arange(heads[1]), more[1])
    kv, ffn = (np.arange(small.kv_size), large.kv_size), (np.arange(small.ffn), large.ffn)
    gated = query_places(small, large, 2 * small.head_dim)
    both = (np.concatenate([stream, large.hidden + stream]), 2 * large.hidden)
    rows = {
        "in_proj_qkv": mixed, "in_proj_z": delta, "in_proj_a": gates, "in_proj_b": gates,
        "q_proj": (gated, 2 * large.q_size), "k_proj": kv, "v_proj": kv,
        "gate_proj": ffn, "up_proj": ffn,
    }  # fmt: skip
    columns = {
        "out_proj": delta, "o_proj": (query_places(small, large, small.head_dim), large.q_size),
        "down_proj": ffn, "fc": both,
    }  # fmt: skip
    embed = Plan(np.arange(small.vocab_size), stream, True, False)
    wide = large.hidden
    return {
        "embed_tokens": (embed, (large.vocab_size, wide)),
        "conv1d": (Plan(mixed[0], taps, True, True), (mixed[1], 1, len(taps))),
        **{name: (Plan(at, stream, True, True), (n, wide)) for name, (at, n) in rows.items()},
        **{name: (Plan(stream, at, False, False), (wide, n)) for name, (at, n) in columns.items()},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models.grow_hybrid")
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    for field in dataclasses.fields(HybridShape):
        flag = "--" + field.name.replace("_", "-")
        parser.add_argument(flag, type=int, default=field.default)
    given = vars(parser.parse_args(arguments))
    source, out = given.pop("source"), given.pop("out")
    return exit_code(lambda: grow_hybrid(source, out, HybridShape(**given)))


if __name__ == "__main__":
    sys.exit(main())
