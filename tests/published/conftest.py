"""Published models, fetched once and kept; a test skips with the reason where they are not had."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.models.published import GEMMA3, SMOLLM2, NotToBeHad, Published, fetch

CACHE = Path(os.environ.get("EDGEDEC_PUBLISHED", Path(__file__).parents[2] / "build/published"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.published)
            item.add_marker(pytest.mark.timeout(1800))  # a model is exported beside other work


def had(model: Published) -> Path:
    """Return the file of a published model, or skip."""
    from filelock import FileLock

    CACHE.mkdir(parents=True, exist_ok=True)
    with FileLock(CACHE / f"{model.name}.lock"):  # workers of one run fetch it once
        try:
            return fetch(model, CACHE)
        except NotToBeHad as reason:
            pytest.skip(f"{model.title}: {reason}")


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct as it is published: a GGUF file with Q4_1 weights."""
    return had(SMOLLM2)


@pytest.fixture(scope="session")
def gemma3() -> Path:
    """Gemma 3 270M as it is published: a GGUF file with Q4_K_M weights, of a base model."""
    return had(GEMMA3)


@pytest.fixture(scope="session")
def requantised(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, str], Path]:
    """The same weights in another type of ggml's, made by llama.cpp: ``f32`` or ``q4_0``."""
    llamacpp = pytest.importorskip("llamacpp_alone")
    folder = tmp_path_factory.mktemp("requantised")

    def make(file: Path, kind: str) -> Path:
        out = folder / f"{file.stem}-{kind}.gguf"
        if not out.exists():
            llamacpp.requantise(file, out, kind)
        return out

    return make


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, str], Path]:
    """A bundle for ONNX Runtime made of a published file, without calibration."""
    from edgedec.export import ExportOptions, export_bundle

    folder = tmp_path_factory.mktemp("exported")

    def make(file: Path, weights: str) -> Path:
        out = folder / f"{file.stem}-{weights}"
        if not out.exists():
            export_bundle(
                ExportOptions(file, out, weights=weights, calibration="none", parity=False)
            )
        return out

    return make
