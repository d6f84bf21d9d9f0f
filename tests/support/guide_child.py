"""Decodes, in a copy of the repository, with all that docs/guides/extend.md adds to it.

The copy is the current folder. Prints a line of JSON: by model and drafter, the tokens and how many
were drafted; what numpy says of the model without layers; llama.cpp's name of the family.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from tiny_models import (
    MemoryTensors,
    canonical_tensors,
    random_stored,
    save_checkpoint,
    tiny_checkpoint,
    tiny_config,
)

from edgedec import Pipeline
from edgedec.export import ExportOptions, export_bundle
from edgedec.export.gguf.known import architecture_for
from edgedec.export.reference import Reference
from edgedec.models.registry import spec_for
from edgedec.text.tokenizer import Tokenizer

PROMPT, SEED = "def add(a, b):\n    return", 11


def golden(folder: Path) -> None:
    """Write Flint's recorded case; it is a Qwen3 whose output has no bias."""
    config = tiny_config(model_type="flint", hidden_size=64)
    stored = random_stored(spec_for(config), SEED)
    qwen = spec_for({**config, "model_type": "qwen3", "attention_bias": True})
    for layer in range(qwen.layers):
        stored[qwen.name("o_bias", layer)] = np.zeros(qwen.hidden, np.float32)
    tokens = np.random.default_rng(7).integers(0, qwen.vocab_size, 48)
    logits = Reference(qwen, MemoryTensors(canonical_tensors(qwen, stored))).logits(tokens.tolist())
    np.savez(folder / "flint.npz", tokens=tokens, logits=logits[::3, ::5])
    (folder / "flint.json").write_text(json.dumps({"config": config, "seed": SEED}), "utf-8")


def checkpoint(folder: Path) -> Path:
    """Write a Flint with its MTP layer, all of random numbers."""
    tiny_checkpoint(folder, model_type="flint", mtp_layers=1)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    spec, rng, width = spec_for(config), np.random.default_rng(3), config["hidden_size"]
    tensors = random_stored(spec)
    shapes = {f"{name}_norm": (width,) for name in ("state", "token", "final")}
    for name, shape in {**shapes, "project": (width, 2 * width)}.items():
        tensors[f"mtp.{name}.weight"] = rng.standard_normal(shape, np.float32) / 8
    for name in [name for name in tensors if name.startswith("model.layers.0.")]:
        tensors[name.replace("model.layers.0", "mtp.layer")] = tensors[name]
    save_checkpoint(folder, config, tensors)
    return folder


def texts(bundle: Path, *drafters: str) -> dict[str, tuple[list[int], int]]:
    found = {}
    for drafter in drafters:
        with Pipeline.open(bundle, drafter=drafter, plan="none", draft_length=2) as pipeline:
            text = pipeline.generate(PROMPT, max_new_tokens=20, ignore_eos=True)
            found[drafter] = list(text.token_ids), text.metrics.drafted_tokens
    return found


def after(bundle: Path) -> list[int]:
    """The text of a model without layers, from its file alone."""
    parts = np.load(bundle / "target" / "model.npz")
    (token,) = Tokenizer.load(bundle / "tokenizer").encode(PROMPT)[-1:]
    found = []
    while len(found) < 20:
        token = int((parts["head"] @ parts["embed"][token]).argmax())
        found.append(token)
    return found


def main() -> None:
    golden(Path("tests/golden"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = checkpoint(folder / "flint")
        for format in ("onnx", "bigram"):
            options = ExportOptions(
                source, folder / format, formats=(format,), weights="fp32", calibration="none"
            )
            export_bundle(options)
        found = {
            "onnx": texts(folder / "onnx", "none", "repeats", "head"),
            "bigram": texts(folder / "bigram", "none", "repeats"),
            "after": after(folder / "bigram"),
            "gguf": architecture_for(spec_for(tiny_config(model_type="flint"))).name,
        }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
