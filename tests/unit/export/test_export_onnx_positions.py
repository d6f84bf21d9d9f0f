"""Graphs with short tables of positions compute what whole tables do, at any distance."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import graph_runner
import numpy as np
import onnx
import pytest
from kinds import again
from tiny_models import MemoryTensors, random_tensors, tiny_config
from tiny_variants import VARIANTS

from edgedec.bundle.android import OPERATORS
from edgedec.bundle.onnx_wires import operators
from edgedec.export.onnx import GraphOptions, positions, write_model
from edgedec.export.reference import Reference
from edgedec.models.registry import spec_for
from edgedec.models.rope import Rope
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.testing import SessionContract

LONG = 1 << 21
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
KINDS: dict[str, dict[str, Any]] = {
    "llama": {},
    "yarn": {"rope_scaling": YARN},
    **{name: VARIANTS[name] for name in ("phi3", "gemma3", "qwen3", "smollm3", "gpt_neox")},
}


def written(folder: Path, **changes: Any) -> tuple[Any, MemoryTensors]:
    folder.mkdir(exist_ok=True)
    own_rows = changes.pop("own_rows", False)
    config = tiny_config(**{"max_position_embeddings": LONG, **changes})
    spec = spec_for(config)
    tensors = MemoryTensors(random_tensors(spec))
    write_model(spec, tensors, folder, GraphOptions("long", weights="fp32", own_rows=own_rows))
    return spec, tensors


@pytest.mark.parametrize("rope", [Rope(1e4), Rope(5e5, "linear", {"factor": 4.0}), Rope(
    1e6, "yarn", {"factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "attention_factor": 1.14,
                  "original_max_position_embeddings": 32768.0})])  # fmt: skip
def test_products_are_the_whole_tables(rope: Rope) -> None:
    short = positions.short_tables(rope, 64, LONG, LONG)
    at = np.random.default_rng(0).integers(0, LONG, 5000)
    far, near = at // positions.STEP, at % positions.STEP
    cos = short["cos.far"][far] * short["cos.near"][near]
    cos -= short["sin.far"][far] * short["sin.near"][near]
    sin = short["sin.far"][far] * short["cos.near"][near]
    sin += short["cos.far"][far] * short["sin.near"][near]
    frequencies, magnitude = rope.frequencies(64, LONG)
    angles = np.outer(at, frequencies)
    for made, whole in ((cos, np.cos(angles)), (sin, np.sin(angles))):
        np.testing.assert_allclose(made, whole * magnitude, atol=3e-7, rtol=0)
    assert sum(table.nbytes for table in short.values()) < 1 << 21


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_the_references(tmp_path: Path, kind: str) -> None:
    spec, tensors = written(tmp_path, **KINDS[kind])
    tokens = np.random.default_rng(1).integers(0, 90, 40).tolist()
    found = graph_runner.logits(tmp_path, spec, [tokens[:20], tokens[20:21], tokens[21:]])
    expected = Reference(spec, tensors).logits(tokens)
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=0)
    used = onnx.load(tmp_path / "model.onnx", load_external_data=False).graph.node
    assert "positions.near" in {name for node in used for name in node.output}
    assert {name for name, _ in operators(tmp_path / "model.onnx")} <= OPERATORS


def test_a_short_context_has_whole_tables(tmp_path: Path) -> None:
    """The kernel reads them itself; the control of the test above."""
    written(tmp_path, max_position_embeddings=4096)
    used = onnx.load(tmp_path / "model.onnx", load_external_data=False).graph.node
    assert "positions.near" not in {name for node in used for name in node.output}


def shifted(folder: Path, spec: Any, tokens: list[int], by: int) -> Any:
    """Logits of the last tokens where every position is moved."""
    first, rest = tokens[:20], tokens[20:]
    count = len(rest)
    seen = np.triu(np.full((count, count), -np.inf, np.float32), 1)
    changes = {"position_ids": np.arange(20, 20 + count)[None] + by, "attention_bias": seen}
    return list(graph_runner.passes(folder, spec, [first, rest], changes))[-1]["logits"]


@pytest.mark.parametrize("by", [1000, 1024 * 5 + 3, 8100])
def test_far_positions_turn_as_far(tmp_path: Path, by: int) -> None:
    """Rows at a distance are turned by it, as those of a graph with whole tables."""
    tokens = np.random.default_rng(2).integers(0, 90, 30).tolist()
    for short in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(positions, "are_short", lambda spec, count, short=short: short)
            spec, _ = written(tmp_path / str(short), max_position_embeddings=8192)
    found, whole = (shifted(tmp_path / name, spec, tokens, by) for name in ("True", "False"))
    np.testing.assert_allclose(found, whole, atol=1e-4, rtol=0)
    assert np.abs(found - shifted(tmp_path / "True", spec, tokens, 0)).max() > 1e-2


def test_the_last_position_counts(tmp_path: Path) -> None:
    rope = Rope(1e4)
    for count in (1, 2, positions.STEP - 1, positions.STEP, positions.STEP + 1):
        short = positions.short_tables(rope, 16, count, count)
        last = count - 1
        assert len(short["cos.far"]) > last // positions.STEP
        assert len(short["cos.near"]) > min(last, last % positions.STEP)


@pytest.fixture(scope="module", params=again([False, True]), ids=["", "own rows"])
def graph(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("long")
    written(folder, own_rows=request.param)
    return folder


class TestOnnxRuntime(SessionContract):
    @pytest.fixture
    def model(self, graph: Path) -> OnnxModel:
        self.tolerance = 1e-4
        return OnnxModel.load(graph, threads=1)


@pytest.mark.skipif(sys.platform == "win32", reason="as the contract of OpenVINO")
class TestOpenVino(SessionContract):
    @pytest.fixture
    def model(self, graph: Path) -> Any:
        pytest.importorskip("openvino", reason="needs the extra openvino")
        from edgedec.runtimes.onnx.openvino.model import OpenVinoModel

        self.tolerance = 1e-4
        return OpenVinoModel.compile(graph, threads=1)
