"""Widens an EAGLE-3 head for a target that ``benchmarks.models.grow`` has widened.

    python -m benchmarks.models.grow_head models/demo/head models/demo/target /tmp/big /tmp/head

The head drafts what it drafted, at the cost of one that was made for a target of this size. New
channels are zero in the carried states as they are in the target's; see ``grow``.
"""

from __future__ import annotations

import argparse
import json
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from benchmarks.models import exit_code
from benchmarks.models.tensors import Floats
from benchmarks.models.widening import Plan, fill, layer_places, query_places
from edgedec.export.checkpoint import read_json
from edgedec.models.decoder import DecoderSpec
from edgedec.models.heads import head_for
from edgedec.models.registry import spec_for

# A published head's layer has the width of the target's and a wide MLP. So many query heads share a
# key head at least.
FFN, KV_HEADS, GROUP = 4096, 8, 2
_IDS = "eagle_aux_hidden_state_layer_ids"


def grow_head(source: Path, small_target: Path, target: Path, out: Path, seed: int = 0) -> None:
    """Grow the head of folder ``source``, and write it to folder ``out``.

    Args:
        source: a head of ``small_target``, in the layout of its authors.
        small_target: the folder of the decoder that ``target`` was grown from.
        target: the grown one.
        out: gets config.json and model.safetensors (float16; norms float32).
        seed: of the random values; equal arguments write equal bytes.

    """
    small, large = (spec_for(read_json(one / "config.json")) for one in (small_target, target))
    config = read_json(source / "config.json")
    head = head_for(config, small)
    layer = head.layer
    keys = max(KV_HEADS, layer.kv_heads)
    places = layer_places(small.layers, large.layers)
    grown = {
        **config,
        "hidden_size": large.hidden,
        "target_hidden_size": large.hidden,
        "intermediate_size": max(FFN, layer.ffn),
        "num_attention_heads": keys * max(GROUP, layer.heads // layer.kv_heads),
        "num_key_value_heads": keys,
        "rms_norm_eps": head.layer.norm.epsilon * small.hidden / large.hidden,
        "eagle_config": {
            _IDS: [places[tap] - 1 for tap in head.taps],
            "use_aux_hidden_state": True,
        },
    }
    tensors = dict(_tensors(source, layer, head_for(grown, large).layer, seed))
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(grown, indent=2) + "\n", "utf-8")
    save_file(tensors, out / "model.safetensors")


def _tensors(
    source: Path, small: DecoderSpec, large: DecoderSpec, seed: int
) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    old, new = small.hidden, large.hidden
    hidden = np.arange(old)
    both = np.concatenate([hidden, new + hidden])
    queries, keys = query_places(small, large, small.head_dim), np.arange(small.kv_size)
    ffn, drafted = np.arange(small.ffn), np.arange(small.vocab_size)
    kinds = {
        "q_proj": (Plan(queries, both, True, True), (large.q_size, 2 * new)),
        "k_proj": (Plan(keys, both, True, True), (large.kv_size, 2 * new)),
        "v_proj": (Plan(keys, both, True, True), (large.kv_size, 2 * new)),
        "o_proj": (Plan(hidden, queries, False, False), (new, large.q_size)),
        "gate_proj": (Plan(ffn, hidden, True, True), (large.ffn, new)),
        "up_proj": (Plan(ffn, hidden, True, True), (large.ffn, new)),
        "down_proj": (Plan(hidden, ffn, False, False), (new, large.ffn)),
        "lm_head": (Plan(drafted, hidden, True, True), (small.vocab_size, new)),
    }
    with safe_open(source / "model.safetensors", framework="numpy") as stored:
        names = sorted(stored.keys())
    values = load_file(source / "model.safetensors")
    for name in names:
        tensor, kind = values[name], name.split(".")[-2] if "." in name else name
        if kind == "fc":
            taps = tensor.shape[1] // old
            columns = np.concatenate([tap * new + hidden for tap in range(taps)])
            plan, shape = Plan(hidden, columns, False, False), (new, taps * new)
        elif kind in kinds:
            plan, shape = kinds[kind]
        else:
            yield name, _norm(tensor, old, new) if "norm" in name else tensor
            continue
        rng = np.random.default_rng((seed, zlib.crc32(name.encode())))
        parts = fill(tensor.astype(np.float32), plan, shape, rng)
        yield name, np.concatenate([part.astype(np.float16) for part in parts])


def _norm(weight: Floats, old: int, new: int) -> Floats:
    """Rescale, since the mean square over more channels is smaller."""
    grown: Floats = np.resize(weight.astype(np.float32), new) * np.float32(np.sqrt(old / new))
    return grown


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models.grow_head")
    for name in ("source", "small_target", "target", "out"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args(arguments)
    return exit_code(lambda: grow_head(**vars(options)))


if __name__ == "__main__":
    sys.exit(main())
