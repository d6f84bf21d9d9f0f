"""Widens and deepens a hybrid of Qwen3.5's kind and its MTP layer; their outputs stay the same.

    python -m benchmarks.models.grow_hybrid build/hybrid /tmp/big

As ``benchmarks.models.grow`` does, for the tensors that its checkpoint stores: what is new in a
layer, and each new layer, is computed in full and adds nothing. Heads keep their size; the delta
rule gets more of them. Epsilon does not grow, since the norms of heads use it too, so small states
are normed slightly differently.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models import exit_code
from benchmarks.models.grow import copy_companions
from benchmarks.models.tensors import Floats, TensorFolder, write_tensors
from benchmarks.models.widening import Plan, fill, layer_places, query_places
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
    places = layer_places(len(kinds), shape.num_hidden_layers)
    others = iter(kinds * shape.num_hidden_layers)
    types = [
        kinds[places.index(layer)] if layer in places else next(others)
        for layer in range(shape.num_hidden_layers)
    ]
    out.mkdir(parents=True, exist_ok=True)
    copy_companions(source, out)
    grown = {**config, **sizes, "layer_types": types}
    (out / "config.json").write_text(json.dumps(grown, indent=2) + "\n", "utf-8")
    made = _Grown(config, grown, TensorFolder(source), seed)
    write_tensors(out / "model.safetensors", made.headers(places), made.chunks)


class _Grown:
    """Makes each grown tensor, a few rows at a time."""

    def __init__(
        self,
        small: Mapping[str, Any],
        large: Mapping[str, Any],
        tensors: TensorFolder,
        seed: int,
    ) -> None:
        self._small, self._large, self._tensors, self._seed = small, large, tensors, seed
        # The stored tensor behind each, and whether it is of a new layer.
        self._origin: dict[str, tuple[str, bool]] = {}
        self._plans = _plans(small, large)

    def headers(self, places: Sequence[int]) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return types and shapes of all grown tensors, for old layers in these places."""
        kinds, names = self._small["layer_types"], self._tensors.names()
        for name in names:
            if not name.startswith("model.layers."):
                self._origin[name] = (name, False)
        for layer, kind in enumerate(self._large["layer_types"]):
            new = layer not in places
            old = kinds.index(kind) if new else places.index(layer)
            at = f"model.layers.{old}."
            for name in names:
                if name.startswith(at):
                    self._origin[name.replace(at, f"model.layers.{layer}.")] = (name, new)
        return {name: self._header(name) for name in self._origin}

    def _header(self, name: str) -> tuple[str, tuple[int, ...]]:
        planned = self._plans.get(name.split(".")[-2])
        if planned is None:
            return "float32", (self._vector(name).size,)
        rows, columns = planned[1]
        return "float16", (rows, 1, columns) if "conv1d" in name else (rows, columns)

    def _vector(self, name: str) -> Floats:
        """Return a norm's weights, or the gates of heads."""
        values = self._tensors.read(self._origin[name][0])
        if name.endswith(("A_log", "dt_bias")):
            return np.resize(values, self._large["linear_num_value_heads"])
        if values.size != self._small["hidden_size"] or "linear_attn" in name:
            return values  # over a head, whose size does not change
        wide = self._large["hidden_size"]
        # The mean square over more channels is smaller; what is stored lacks 1.
        ratio = np.sqrt(values.size / wide)
        grown: Floats = (np.resize(values + 1, wide) * ratio - 1).astype(np.float32)
        return grown

    def chunks(self, name: str) -> Iterator[Floats]:
        """Yield the rows of a grown tensor, in order."""
        planned = self._plans.get(name.split(".")[-2])
        if planned is None:
            yield self._vector(name)
            return
        plan, shape = planned
        stored, new = self._origin[name]
        source = self._tensors.read(stored)
        rng = np.random.default_rng((self._seed, zlib.crc32(name.encode())))
        if new:
            plan = Plan(np.arange(0), plan.columns, plan.random_rows, plan.random_columns)
        yield from fill(source.reshape(len(source), -1), plan, shape, rng)


def _plans(
    config: Mapping[str, Any], grown: Mapping[str, Any]
) -> dict[str, tuple[Plan, tuple[int, int]]]:
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
        "conv1d": (Plan(mixed[0], taps, True, True), (mixed[1], len(taps))),
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
