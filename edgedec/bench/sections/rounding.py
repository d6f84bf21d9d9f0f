"""Measures rounding: closeness to the source by calibration and block size, time, memory."""

from __future__ import annotations

from pathlib import Path

from edgedec.bench.records import Recorder, Row
from edgedec.bench.sections import commands
from edgedec.bench.workloads import heldout_files
from edgedec.bench.workshop import Suite

_PLAIN = ("--calibration", "none", "--block-size")
_WAYS: dict[str, tuple[str, ...]] = {
    "plain, blocks of 32": (*_PLAIN, "32"),
    "plain, blocks of 128": (*_PLAIN, "128"),
    "calibrated, blocks of 32": ("--block-size", "32"),
    "calibrated, blocks of 128": (),
}
# Several times what an export compares on, so that every file has its share.
_CHARACTERS = 8192


def rounding(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare int4 exports of target and draft with their sources on held-out code."""
    rows = []
    text = _heldout_text(suite.shop.work / "held-out.txt")
    for role in ("target", "draft"):
        source = suite.shop.checkpoint(role)
        for name, arguments in _WAYS.items():
            asked = (*arguments, "--parity-text", str(text))
            done = commands.export(suite.shop, source, recorder, *asked)
            (model,) = done.report["models"]
            found = {key: model["parity"][key] for key in ("kl_nats", "top1", "perplexity")}
            size = model["size_bytes"]
            rows.append({"role": role, "rounding": name, "size_bytes": size, **found})
    return rows


def _heldout_text(file: Path) -> Path:
    files = heldout_files()
    parts = [one.read_text("utf-8", errors="replace")[: _CHARACTERS // len(files)] for one in files]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(parts), "utf-8")
    return file
