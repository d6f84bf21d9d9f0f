"""Replaces the weights of a head by noise: a head whose drafts are never right.

    python -m benchmarks.models.noise_head models/demo/head /tmp/noise

The norms and the vocabulary stay, so that it is loaded, and costs, like the trained one.
"""

from __future__ import annotations

import shutil
import sys
import zlib
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

_WEIGHTS = "model.safetensors"


def noise_head(source: Path, out: Path, seed: int = 0) -> Path:
    """Write the head of folder ``source`` with normal noise of its weights' size; return ``out``.

    Equal arguments write equal bytes.
    """
    out.mkdir(parents=True, exist_ok=True)
    tensors = load_file(source / _WEIGHTS)
    for name, values in tensors.items():
        if values.dtype.kind == "f" and values.ndim == 2:
            rng = np.random.default_rng((seed, zlib.crc32(name.encode())))
            spread = values.astype(np.float32).std()
            noise = spread * rng.standard_normal(values.shape, dtype=np.float32)
            tensors[name] = noise.astype(values.dtype)
    save_file(tensors, out / _WEIGHTS)
    shutil.copyfile(source / "config.json", out / "config.json")
    return out


if __name__ == "__main__":
    noise_head(Path(sys.argv[1]), Path(sys.argv[2]))
