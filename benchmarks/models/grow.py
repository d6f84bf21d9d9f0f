"""Widens and deepens a trained decoder without changing what it computes.

    python -m benchmarks.models.grow models/demo/target /tmp/big --preset target-0.5b

A benchmark needs a model that costs what a real one costs and says what a trained one says. The
grown model has both: every new channel, head and layer is computed in full and adds nothing.

- New hidden channels of the residual stream are zero: nothing writes to them. The mean square
  then shrinks by small/large, so norm weights are scaled by sqrt(small/large) and epsilon by
  small/large, and each norm gives exactly what it gave.
- Whatever READS a zero channel, and whatever only a new head or channel computes, holds random
  values of the source's spread: no kernel or quantiser meets a trivial matrix. What WRITES from
  there (rows of ``o_proj`` and ``down_proj``) is zero.
- A key head keeps its query heads and is padded with further ones; groups are never split.
- New layers stand between the old ones, evenly, so that leaving at half the depth still means
  half of the trained layers.
- Real and random values never share a quantisation block (blocks run along a row).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.models import exit_code
from benchmarks.models.tensors import TensorFolder, write_tensors
from benchmarks.models.widening import Widening
from edgedec.errors import CheckpointError, InputError, UnsupportedArchitecture
from edgedec.models.decoder import DecoderSpec
from edgedec.models.registry import spec_for
from edgedec.models.traits import Norm, Scales


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a decoder that can grow; the size of a head cannot."""

    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int


# Sizes that the benchmarks use, for the demo pair. Parameters: 0.49 B, 55 M and 0.16 B (about a
# third of the target's cost); with 32k rows of vocabulary, where a smaller body makes up for the
# draft's larger table, 0.55 B and 61 M.
PRESETS: Mapping[str, Shape] = MappingProxyType(
    {
        "target-0.5b": Shape(2048, 8192, 8, 32, 8, 4096),
        "target-1b": Shape(2048, 8192, 16, 32, 8, 4096),
        "draft-50m": Shape(1024, 3072, 4, 16, 8, 4096),
        "draft-150m": Shape(1536, 7168, 4, 16, 8, 4096),
        # A draft whose head is half of it, as that of Gemma 3 270M, and a target of its class:
        # 35 M and 18 M.
        "target-35m": Shape(1024, 2048, 4, 8, 4, 4096),
        "draft-half-head": Shape(2048, 512, 2, 4, 2, 4096),
        "target-0.55b-32k": Shape(2048, 8192, 8, 32, 8, 32768),
        "draft-60m-32k": Shape(768, 3072, 4, 12, 6, 32768),
        # SmolLM2-135M-Instruct, and six of its layers: 1.1 B and 0.1 B with its vocabulary. Widths
        # of 576 leave no larger quantisation block than 64.
        "smollm2-1.1b": Shape(2048, 4096, 30, 24, 8, 49152),
        "smollm2-draft-100m": Shape(1024, 2048, 6, 12, 4, 49152),
    }
)


def grow(
    source: Path,
    out: Path,
    shape: Shape,
    *,
    seed: int = 0,
    dtype: str = "float16",
    block: int = 128,
) -> None:
    """Grow the decoder of folder ``source`` to ``shape``, and write it to folder ``out``.

    Args:
        source: a Hugging Face folder of a Llama-like decoder without biases.
        out: gets config.json, model.safetensors and copies of the tokenizer's files.
        shape: no size smaller than the source's. Rows of the vocabulary past the source's are
            random and must be masked: ``edgedec_vocab_used`` in config.json counts the real ones.
        seed: of the random values; equal arguments write equal bytes.
        dtype: of the matrices, ``float16`` or ``float32``. Norms are float32 in both, since
            sqrt(small/large) need not be a float16.
        block: values along a row that a quantiser scales together, at most.

    Raises:
        InputError: a size shrinks, heads do not divide, or a block would hold both real and
            random values.
        UnsupportedArchitecture: anything but Llama's kind without biases and windows.

    """
    if dtype not in ("float16", "float32"):
        raise InputError(f"dtype {dtype!r}: give float16 or float32")
    config = _read_config(source)
    small = spec_for(config)
    _check(small, shape, block)
    grown_config = {**config, **_changes(small, shape, dtype)}
    if config.get("layer_types") is not None:  # one a layer; _check_kind refuses windows
        grown_config["layer_types"] = ["full_attention"] * shape.layers
    large = spec_for(grown_config)
    out.mkdir(parents=True, exist_ok=True)
    copy_companions(source, out)
    (out / "config.json").write_text(json.dumps(grown_config, indent=2) + "\n", "utf-8")
    widening = Widening(small, large, TensorFolder(source), seed)
    headers = {
        name: ("float32" if len(extents) == 1 else dtype, extents)
        for name, extents in large.tensors().items()
    }
    write_tensors(out / "model.safetensors", headers, widening.chunks)


def _read_config(source: Path) -> dict[str, Any]:
    try:
        config = json.loads((source / "config.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{source / 'config.json'} cannot be read: {error}") from None
    if not isinstance(config, dict):
        raise CheckpointError(f"{source / 'config.json'} is not a JSON object")
    return config


def _changes(small: DecoderSpec, shape: Shape, dtype: str) -> dict[str, Any]:
    """Return the fields of config.json that differ."""
    return {
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": small.head_dim,
        "vocab_size": shape.vocab,
        "edgedec_vocab_used": small.vocab_used,
        "rms_norm_eps": small.norm.epsilon * small.hidden / shape.hidden,
        "torch_dtype": dtype,
    }


def _check_kind(small: DecoderSpec) -> None:
    """Refuse all but decoders like Llama, or Qwen3 with its norms: the proof above needs that."""
    plain = dataclasses.replace(
        small,
        norm=Norm(small.norm.epsilon),
        windows=(0,) * small.layers,
        ropes=(small.rope,) * small.layers,
        rotary_dim=small.head_dim,
        position_rows=0,
        residual="sequential",
        activation="silu",
        gated=True,
        qkv_bias=False,
        out_bias=False,
        mlp_bias=False,
        qk_norm="head" if small.qk_norm else "",
        scales=Scales(),
    )
    if small != plain or small.rope is None or small.sources:
        raise UnsupportedArchitecture(
            f"growing is for decoders of Llama's kind without biases and windows,"
            f" and this {small.architecture} is another"
        )


def _check(small: DecoderSpec, shape: Shape, block: int) -> None:
    _check_kind(small)
    old = Shape(
        small.hidden, small.ffn, small.layers, small.heads, small.kv_heads, small.vocab_size
    )
    for field in dataclasses.fields(Shape):
        before, after = getattr(old, field.name), getattr(shape, field.name)
        if after < before:
            raise InputError(f"{field.name} {after} is less than the source's {before}")
    if shape.heads % shape.kv_heads:
        raise InputError(f"{shape.heads} query heads cannot share {shape.kv_heads} key heads")
    group, wider = small.heads // small.kv_heads, shape.heads // shape.kv_heads
    if wider < group:
        raise InputError(f"{wider} query heads a key head are less than the source's {group}")
    # Where a row goes over from real to random values, and back again.
    borders = {
        "hidden": [small.hidden] if shape.hidden > small.hidden else [],
        "ffn": [small.ffn] if shape.ffn > small.ffn else [],
        "heads": [group * small.head_dim, wider * small.head_dim] if wider > group else [],
    }
    for name, edges in borders.items():
        if any(edge % block for edge in edges):
            raise InputError(
                f"{name}: real and new values meet at {edges}, inside a block of {block}:"
                f" give --block {fitting(edges)} or less, and quantise with such a block"
            )


def fitting(edges: Sequence[int]) -> int:
    """Return the largest power of two up to 128 that divides all of these."""
    return min(math.gcd(edge, 128) for edge in edges)


def copy_companions(source: Path, out: Path) -> None:
    """Copy the tokenizer and the generation settings, unchanged."""
    for file in sorted(source.iterdir()):
        weights = file.suffix == ".safetensors" or file.name.endswith(".safetensors.index.json")
        if file.is_file() and file.suffix in (".json", ".model", ".txt", ".jinja") and not weights:
            shutil.copyfile(file, out / file.name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; sizes default to the preset's, then to the source's."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.models.grow",
        description="Widen and deepen a trained decoder without changing what it computes.",
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--preset", choices=sorted(PRESETS))
    for field in dataclasses.fields(Shape):
        parser.add_argument("--" + field.name.replace("_", "-"), type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", choices=("float16", "float32"), default="float16")
    parser.add_argument("--block", type=int, default=128, help="quantisation block (128)")
    options = parser.parse_args(arguments)
    kept = {name: getattr(options, name) for name in ("seed", "dtype", "block")}
    return exit_code(lambda: grow(options.source, options.out, _wanted_shape(options), **kept))


def _wanted_shape(options: argparse.Namespace) -> Shape:
    if options.preset:
        shape = PRESETS[options.preset]
    else:
        spec = spec_for(_read_config(options.source))
        shape = Shape(
            spec.hidden, spec.ffn, spec.layers, spec.heads, spec.kv_heads, spec.vocab_size
        )
    given = {f.name: getattr(options, f.name) for f in dataclasses.fields(Shape)}
    return dataclasses.replace(shape, **{k: v for k, v in given.items() if v is not None})


if __name__ == "__main__":
    sys.exit(main())
