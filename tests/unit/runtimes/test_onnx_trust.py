"""A provider that does not keep the cache in place is refused, not believed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import write_tiny_model

from edgedec.errors import RuntimeUnavailable
from edgedec.records.load import LoadOptions
from edgedec.runtimes.onnx import adapter, model
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.runtimes.onnx.passes import Passes


@pytest.fixture(scope="module", params=["fp32", "int4", "int8"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp(request.param)
    write_tiny_model(found, request.param)
    return found


class Forgetting(Passes):
    """What was computed before is gone, as where a provider keeps a copy."""

    def run(self, *args: Any, **more: Any) -> None:
        self._cache.rows[...] = 0
        super().run(*args, **more)


class Shifted(Passes):
    """Keys and values land one slot too late."""

    def run(self, *args: Any, **more: Any) -> None:
        super().run(*args, **more)
        self._cache.rows[...] = np.roll(self._cache.rows, 1, axis=2)


class Lifted(Forgetting):
    """As above, in a model whose logits are all far from zero, which changes no probability."""

    def run(self, *args: Any, **more: Any) -> None:
        super().run(*args, **more)
        self.logits[: len(args[0])] += 1000


class Rounding(Passes):
    """Half-precision arithmetic, which errs and is right."""

    def run(self, *args: Any, **more: Any) -> None:
        super().run(*args, **more)
        rows = self.logits[: len(args[0])]
        noise = np.random.default_rng(0).standard_normal(rows.shape)
        rows += (0.01 * np.abs(rows).max() * noise).astype(np.float32)


def holds(folder: Path, monkeypatch: pytest.MonkeyPatch, passes: Callable[..., Passes]) -> bool:
    graph = OnnxModel.load(folder, threads=1).graph
    monkeypatch.setattr(model, "Passes", passes)
    return model.cache_holds(graph)


def test_what_holds_and_what_does_not(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert holds(folder, monkeypatch, Passes)
    assert holds(folder, monkeypatch, Rounding)
    assert not holds(folder, monkeypatch, Forgetting)
    assert not holds(folder, monkeypatch, Shifted)
    assert not holds(folder, monkeypatch, Lifted)


class Foreign:
    """An inference session that says it runs elsewhere."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def get_providers(self) -> list[str]:
        return ["OtherExecutionProvider", "CPUExecutionProvider"]


def test_only_other_providers_are_tried(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def never_holds(graph: Any) -> bool:
        asked.append(graph)
        return False

    monkeypatch.setattr(model, "cache_holds", never_holds)
    options = LoadOptions(threads=1)
    adapter.load(folder, options)
    assert asked == []
    real = model.open_inference
    monkeypatch.setattr(model, "open_inference", lambda *given: Foreign(real(*given)))
    with pytest.raises(RuntimeUnavailable, match="OtherExecutionProvider does not handle"):
        adapter.load(folder, options)
    monkeypatch.setattr(model, "cache_holds", lambda _: True)
    adapter.load(folder, options)
