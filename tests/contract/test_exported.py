"""What the exporter can vary passes the session contract on ONNX Runtime."""

import numpy as np
import pytest
from kinds import again
from tiny_models import MemoryTensors, needs_int8_cache, random_tensors, tiny_config
from tiny_variants import VARIANTS

from edgedec.export.calibration import kv_scales
from edgedec.export.onnx import GraphOptions, write_model
from edgedec.models.registry import spec_for
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.testing import SessionContract


def in_int8(name):
    return pytest.param((name, "int8"), marks=needs_int8_cache)


CASES = [
    *((name, "fp32") for name in sorted(VARIANTS) if name != "qwen2"),
    *(in_int8(name) for name in ("window", "qwen2", "gemma2", "phi3", "gpt2")),
]


@pytest.fixture(scope="module", params=again(CASES), ids="-".join)
def exported(request, tmp_path_factory):
    name, kv = request.param
    spec = spec_for(tiny_config(**VARIANTS[name]))
    tensors = MemoryTensors(random_tensors(spec))
    text = np.random.default_rng(0).integers(0, 90, 64).tolist()
    scales = kv_scales(spec, tensors, text) if kv == "int8" else ()
    folder = tmp_path_factory.mktemp(name)
    write_model(spec, tensors, folder, GraphOptions(name, (0,), "fp32", kv, kv_scales=scales))
    return kv, OnnxModel.load(folder, threads=1)


class TestExported(SessionContract):
    @pytest.fixture
    def model(self, exported):
        kv, model = exported
        # What differs in its last bit may tip a digit of int8.
        self.tolerance = 1e-4 if kv == "fp32" else 2e-2
        return model
