"""Widens and deepens a small Gemma 4 of E2B's kind and its assistant; their outputs stay the same.

    python -m benchmarks.models.grow_gemma build/gemma /tmp/big --assistant build/assistant

As ``benchmarks.models.grow`` does. A new layer is of the kind of the next old one, and on its side
of those that read caches of others, so that the last caches of each kind stay the old ones. Heads
keep their size and key heads their number; of the assistant what reads and writes the target's
states grows. Epsilon does not, so small states are normed slightly differently.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from benchmarks.models import exit_code
from benchmarks.models.grow import copy_companions
from benchmarks.models.tensors import Floats, TensorFolder, write_tensors
from benchmarks.models.widening import Grown, Index, Plan, fill, layer_places, query_places
from edgedec.errors import InputError
from edgedec.export.checkpoint import read_json
from edgedec.models.config import Config
from edgedec.models.registry import spec_for

Placed = tuple[Index, int]
ENTRY, EXIT = "pre_projection.weight", "post_projection.weight"


@dataclass(frozen=True, slots=True)
class GemmaShape:
    """Sizes of a Gemma 4 that can grow; the defaults are 0.3 B."""

    hidden_size: int = 1024
    intermediate_size: int = 4096
    num_hidden_layers: int = 15
    num_attention_heads: int = 16


def grow_gemma(source: Path, out: Path, shape: GemmaShape, seed: int = 0) -> None:
    """Grow the checkpoint of folder ``source``, and write it to folder ``out``.

    Args:
        source: a Hugging Face folder of ``gemma4_text`` with inputs by layer and tied embedding.
        out: gets config.json, model.safetensors (float16; vectors float32), and copies of the
            tokenizer's files.
        shape: multiples of the source's sizes.
        seed: of the random values; equal arguments write equal bytes.

    Raises:
        InputError: a size is no multiple.

    """
    config = read_json(source / "config.json")
    sizes = {field.name: getattr(shape, field.name) for field in fields(shape)}
    for name, after in sizes.items():
        before = Config(config).positive(name)
        if after % before:
            raise InputError(f"{name} is {after}, expected a multiple of the source's {before}")
    layers = config["num_hidden_layers"]
    deeper = shape.num_hidden_layers // layers
    like = [layer // deeper for layer in range(shape.num_hidden_layers)]
    grown = {
        **config, **sizes,
        "layer_types": [config["layer_types"][old] for old in like],
        "num_kv_shared_layers": config["num_kv_shared_layers"] * deeper,
    }  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    copy_companions(source, out)
    (out / "config.json").write_text(json.dumps(grown, indent=2) + "\n", "utf-8")
    tensors = TensorFolder(source)
    places = layer_places(layers, shape.num_hidden_layers)
    made = Grown(tensors, _Planned(config, grown, tensors, places), seed)
    write_tensors(out / "model.safetensors", made.headers(places, like), made.chunks)


class _Planned:
    """What becomes of each stored tensor: a matrix's plan and shape, or a vector."""

    def __init__(
        self,
        config: Mapping[str, Any],
        grown: Mapping[str, Any],
        tensors: TensorFolder,
        places: Sequence[int],
    ) -> None:
        self._small, self._large = spec_for(config), spec_for(grown)
        self._tensors, self._places = tensors, places
        self._ratio = _ratio(self._small.hidden, self._large.hidden)
        self._own = np.arange(config["hidden_size_per_layer_input"])

    def __call__(self, name: str, new: bool) -> tuple[Plan, tuple[int, ...]] | Floats:
        part = name.split(".")[-2]
        vocab, wide = np.arange(self._small.vocab_size), self._large.hidden
        stream, inputs = np.arange(self._small.hidden), self._inputs()
        if part == "embed_tokens":
            return Plan(vocab, stream, True, False), (vocab.size, wide)
        if part == "embed_tokens_per_layer":
            return Plan(vocab, inputs[0], True, True), (vocab.size, inputs[1])
        if part == "per_layer_model_projection":
            return Plan(inputs[0], stream, True, True), (inputs[1], wide)
        layer = int(name.split(".")[2]) if ".layers." in name else 0
        rows, columns = self._places_of(layer)
        if part in rows:
            places, size = rows[part]
            factor = self._ratio if part == "per_layer_input_gate" else 1.0  # it reads no norm
            return Plan(places, stream, True, True, factor), (size, wide)
        if part in columns:
            places, size = columns[part]
            return Plan(stream, places, False, False), (wide, size)
        if new and name.endswith("layer_scalar"):
            return np.ones(1, np.float32)
        return self._vector(self._tensors.read(name), part)

    def _inputs(self) -> tuple[Index, int]:
        """Return where the layers' own inputs lie, side by side, and how many channels are."""
        size = self._own.size
        places = (np.array(self._places)[:, None] * size + self._own).reshape(-1)
        return places, self._large.layers * size

    def _places_of(self, layer: int) -> tuple[dict[str, Placed], dict[str, Placed]]:
        """Return places of old rows by matrix, and of old columns, and how many there are."""
        old, new = self._small.at(layer), self._large.at(self._places[layer])
        queries = query_places(old, new, old.head_dim), new.q_size
        keys, ffn = (np.arange(old.kv_size), new.kv_size), (np.arange(old.ffn), new.ffn)
        own = self._own, self._own.size
        rows = {
            "q_proj": queries, "k_proj": keys, "v_proj": keys, "gate_proj": ffn, "up_proj": ffn,
            "per_layer_input_gate": own,
        }  # fmt: skip
        return rows, {"o_proj": queries, "down_proj": ffn, "per_layer_projection": own}

    def _vector(self, stored: Floats, part: str) -> Floats:
        """Return weights of a norm, or a layer's scalar.

        The embedding's factor grows with the width, so the stream is larger by the root of as much,
        which what is normed before it is added is by itself: its mean square is over more channels.
        """
        if part in ("input_layernorm", "pre_feedforward_layernorm", "norm"):
            stored = stored * np.float32(self._ratio)
        elif not part.startswith("post_"):
            return stored  # over a head or a layer's own input, which do not change
        return np.resize(stored, self._large.hidden)


def _ratio(small: int, large: int) -> float:
    return math.sqrt(small / large)


def grow_assistant(source: Path, out: Path, hidden: int, seed: int = 0) -> None:
    """Write the assistant of folder ``source`` for a target that was grown to ``hidden`` channels.

    Only what reads and writes the target's states grows.
    """
    config, tensors = read_json(source / "config.json"), load_file(source / "model.safetensors")
    small, rng = Config(config).positive("backbone_hidden_size"), np.random.default_rng(seed)
    before, stream = tensors[ENTRY].astype(np.float32), np.arange(small)
    before[:, :small] *= _ratio(small, hidden)  # of the embedding, whose factor grows
    reads = Plan(np.arange(len(before)), np.concatenate([stream, hidden + stream]), True, True)
    writes = Plan(stream, np.arange(len(before)), False, False)
    for name, values, plan, shape in (
        (ENTRY, before, reads, (len(before), 2 * hidden)),
        (EXIT, tensors[EXIT].astype(np.float32), writes, (hidden, len(before))),
    ):
        tensors[name] = np.concatenate(list(fill(values, plan, shape, rng)))
    out.mkdir(parents=True, exist_ok=True)
    stated = {**config, "backbone_hidden_size": hidden}
    (out / "config.json").write_text(json.dumps(stated, indent=2) + "\n", "utf-8")
    save_file(tensors, out / "model.safetensors")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models.grow_gemma")
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--assistant", type=Path, help="its assistant; the grown one is OUT/head")
    for field in fields(GemmaShape):
        flag = "--" + field.name.replace("_", "-")
        parser.add_argument(flag, type=int, default=field.default)
    given = vars(parser.parse_args(arguments))
    source, out, head = (given.pop(name) for name in ("source", "out", "assistant"))
    shape = GemmaShape(**given)

    def work() -> None:
        grow_gemma(source, out, shape)
        if head is not None:
            grow_assistant(head, out / "head", shape.hidden_size)

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main())
