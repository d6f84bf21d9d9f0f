"""The trained head beside the demo target, exported once for all tests that read it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import tiny_bundles

from edgedec.export import ExportOptions

MODELS = Path(__file__).resolve().parents[1] / "models" / "demo"


def bundle(head: Path = MODELS / "head", *, parity: bool = True) -> Path:
    """A bundle of the demo target with a head, in fp32, so that texts are equal to the bit."""
    target = MODELS / "target"
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
