"""Converts the two models to the formats that peers read; each is made once and kept."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgedec._support.atomic import write_json
from edgedec.bench.race.children import Failed, ask
from edgedec.bench.race.environment import READY, Environment
from edgedec.bench.race.protocol import Models, Peer, file_of
from edgedec.bench.workshop import Workshop, digest

_LIMIT_S = 7200.0


@dataclass(slots=True)
class ModelMaker:
    """The ``Maker`` that peers are given.

    Attributes:
        shop: makes what edgedec exports.
        preset: what the target is grown to; None leaves it as it is.
        work: folder of what peers convert.
        peers: by name.
        environments: by peer's name; filled while environments are made.

    """

    shop: Workshop
    preset: str | None
    work: Path
    peers: Mapping[str, Peer]
    environments: Mapping[str, Environment] = field(default_factory=dict)

    def checkpoint(self, role: str) -> Path:
        return self.shop.checkpoint(role, self._preset(role)).resolve()

    def bundle(self, weights: str) -> Path:
        return self.shop.bundle(weights, target=self.preset).resolve()

    def gguf(self, role: str, weights: str) -> Path:
        return self.shop.gguf(role, weights, self._preset(role)).resolve()

    def converted(self, peer: str, role: str, weights: str) -> Path:
        source = self.checkpoint(role)
        out = (self.work / "models" / f"{peer}-{role}-{weights}-{digest(source)}").resolve()
        if not (out / READY).is_file():
            shutil.rmtree(out, ignore_errors=True)
            environment = self.environments[peer]
            request = {
                **environment.common,
                "task": "convert", "role": role, "weights": weights,
                "checkpoint": str(source), "out": str(out),
            }  # fmt: skip
            log = self.work / "logs" / f"{out.name}.log"
            try:
                ask(environment.python, file_of(self.peers[peer]), request, log, _LIMIT_S)
            except Failed:
                shutil.rmtree(out, ignore_errors=True)
                raise
            write_json(out / READY, {"checkpoint": str(source)})
        return out

    def converted_pair(self, peer: str, weights: str, draft_weights: str) -> Models:
        return {
            "target": str(self.converted(peer, "target", weights)),
            "draft": str(self.converted(peer, "draft", draft_weights)),
        }

    def _preset(self, role: str) -> str | None:
        return self.preset if role == "target" else None


def size(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
