"""Records what transformers computes for tiny random decoders; needs torch and transformers.

    python tests/golden/record.py

The weights are made by numpy from a seed, here and in the test alike, so only a configuration
and some logits are stored for each case. This is the one script that needs torch.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from tiny_models import random_tensors, tiny_config  # noqa: E402

from edgedec.models.registry import spec_for  # noqa: E402

LENGTH = 48
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
QWEN_WINDOW = {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1}
CASES = {
    "llama": {},
    "llama-biased": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    "llama-linear": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "llama-dynamic": {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}},
    "llama-llama3": {"rope_scaling": LLAMA3, "rope_theta": 500000.0},
    "llama-yarn": {"rope_scaling": YARN},
    "llama-yarn-exact": {"rope_scaling": {**YARN, "truncate": False, "beta_fast": 4.0}},
    "llama-one-head": {"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 32},
    "mistral": {"model_type": "mistral", "sliding_window": None},
    "mistral-window": {"model_type": "mistral", "sliding_window": 9},
    "qwen2": {"model_type": "qwen2", "rope_theta": 1000000.0},
    "qwen2-window": {"model_type": "qwen2", **QWEN_WINDOW},
    "qwen3": {"model_type": "qwen3", "tie_word_embeddings": True},
    "qwen3-biased": {"model_type": "qwen3", "attention_bias": True, "head_dim": 32},
}


def record(name: str, changes: dict[str, object]) -> None:
    config = tiny_config(**changes)
    tensors = random_tensors(spec_for(config), seed=len(name))
    model_config = transformers.AutoConfig.for_model(**config)
    model_config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(model_config).eval()
    state = {key: torch.from_numpy(value) for key, value in tensors.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected, unexpected
    assert set(missing) <= {"lm_head.weight"}, missing
    model.tie_weights()
    tokens = np.random.default_rng(7).integers(0, config["vocab_size"], LENGTH)
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens)[None]).logits[0].numpy()
    # Every third row and every fifth column tell as much, and keep the file small.
    np.savez_compressed(HERE / f"{name}.npz", tokens=tokens, logits=logits[::3, ::5])
    (HERE / f"{name}.json").write_text(json.dumps(config, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    for case, case_changes in CASES.items():
        record(case, case_changes)
        print(case)
