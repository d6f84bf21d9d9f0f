"""The trained head beside the demo target, exported once for all tests that read it."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tiny_bundles
from safetensors.numpy import load_file, save_file

from edgedec.export import ExportOptions

MODELS = Path(__file__).resolve().parents[2] / "models" / "demo"


@functools.cache
def bundle(
    head: Path = MODELS / "head", target: Path = MODELS / "target", *, parity: bool = True
) -> Path:
    """A bundle of the demo target with a head, in fp32, so that texts are equal to the bit."""
    out = Path("with-head")
    return tiny_bundles.kept(
        ExportOptions(target, out, head=head, weights="fp32", calibration="none", parity=parity)
    )


def changed(folder: Path, **config: Any) -> Path:
    """The head with other fields in its configuration."""
    shutil.copytree(MODELS / "head", folder)
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | config), "utf-8")
    return folder


def weighing(folder: Path, change: Callable[[str, np.ndarray], np.ndarray]) -> Path:
    """The head with other weights; ``change`` gets each one's name."""
    return _weighing(MODELS / "head", folder, change)


def scaled(name: str, factor: float) -> Callable[[str, np.ndarray], np.ndarray]:
    """Multiply the weights of this name, in float32."""

    def change(found: str, values: np.ndarray) -> np.ndarray:
        return values.astype(np.float32) * np.float32(factor) if name in found else values

    return change


def shuffled_target(folder: Path) -> Path:
    """The target with its channels in another order: the same texts, and states as of another."""
    order = np.random.default_rng(0).permutation(512)

    def change(name: str, values: np.ndarray) -> np.ndarray:
        writes = name.endswith(("norm.weight", "o_proj.weight", "down_proj.weight"))
        return np.ascontiguousarray(values[order] if writes else values[:, order])

    return _weighing(MODELS / "target", folder, change)


def _weighing(source: Path, folder: Path, change: Callable[[str, np.ndarray], np.ndarray]) -> Path:
    shutil.copytree(source, folder)
    file = folder / "model.safetensors"
    weights = load_file(file)
    floats = {name: values for name, values in weights.items() if values.dtype.kind == "f"}
    save_file({**weights, **{name: change(name, values) for name, values in floats.items()}}, file)
    return folder
