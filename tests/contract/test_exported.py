"""What the exporter can vary passes the session contract on ONNX Runtime."""

import numpy as np
import pytest
from tiny_models import needs_int8_cache, random_tensors, tiny_config

from edgedec.export.calibration import kv_scales
from edgedec.export.onnx import GraphOptions, write_model
from edgedec.export.tensors import MemoryTensors
from edgedec.models.registry import spec_for
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.testing import SessionContract

# Every way in which decoders differ, at least once.
VARIANTS = {
    "window": {"model_type": "mistral", "sliding_window": 6},
    "qwen2": {"model_type": "qwen2"},
    "qwen3": {"model_type": "qwen3"},
    "padded": {"edgedec_vocab_used": 90},
    "gemma2": {
        "model_type": "gemma2",
        "edgedec_vocab_used": 90,
        "sliding_window": 6,
        "attn_logit_softcapping": 3.0,
        "final_logit_softcapping": 2.5,
        "num_key_value_heads": 1,
    },
    "gemma3": {"model_type": "gemma3_text", "sliding_window": 6, "sliding_window_pattern": 2},
    "phi3": {"model_type": "phi3", "partial_rotary_factor": 0.5},
    "smollm3": {"model_type": "smollm3", "no_rope_layer_interval": 2},
    "stablelm": {
        "model_type": "stablelm",
        "layer_norm_eps": 1e-5,
        "use_parallel_residual": True,
        "use_qkv_bias": True,
        "qk_layernorm": True,
    },
    "olmo2": {"model_type": "olmo2"},
    "granite": {"model_type": "granite", "residual_multiplier": 0.4, "logits_scaling": 2.0},
    "qwen3_moe": {
        "model_type": "qwen3_moe",
        "moe_intermediate_size": 32,
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "norm_topk_prob": True,
    },
    "olmoe": {"model_type": "olmoe", "num_experts": 8, "num_experts_per_tok": 3},
    "gpt2": {"model_type": "gpt2"},
    "gpt_neox": {"model_type": "gpt_neox", "hidden_act": "gelu", "num_key_value_heads": 4},
}


def in_int8(name):
    return pytest.param((name, "int8"), marks=needs_int8_cache)


CASES = [
    *((name, "fp32") for name in sorted(VARIANTS) if name != "qwen2"),
    *(in_int8(name) for name in ("window", "qwen2", "gemma2", "phi3", "gpt2")),
]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
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
