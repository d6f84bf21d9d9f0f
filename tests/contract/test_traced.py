"""Architectures without a spec, traced by optimum, pass the contract."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_torch import torch_checkpoint

from edgedec.export import ExportOptions, export_bundle
from edgedec.runtimes.onnx_hub.model import HubModel
from edgedec.testing import SessionContract

pytestmark = [pytest.mark.torch, pytest.mark.optimum]

DEMO = Path(__file__).resolve().parents[2] / "models" / "demo" / "target"


@pytest.fixture(scope="module", params=["bloom", "falcon", "deepseek_v3", "demo"])
def traced(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traced")
    source = DEMO
    if request.param != "demo":
        source = torch_checkpoint(folder / request.param, request.param)
    options = ExportOptions(source, folder / "out", formats=("optimum",), parity=False)
    export_bundle(options)
    return folder / "out" / "target"


class TestTraced(SessionContract):
    @pytest.fixture
    def model(self, traced: Path) -> HubModel:
        return HubModel.load(traced, threads=1)
