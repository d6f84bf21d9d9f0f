"""Records what transformers computes for tiny random decoders; needs torch and transformers.

    python tests/golden/record.py [case ...]

The weights are made by numpy from a seed, here and in the test alike, so only a configuration
and some logits are stored for each case. This is the one script that needs torch.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers

try:
    from transformers.modeling_utils import no_init_weights
except ImportError:  # transformers 5
    from transformers.initialization import no_init_weights

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from tiny_models import random_stored, tiny_config  # noqa: E402

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
# Of the rotated pairs of a head of 16 channels, or of the 8 of which that turn.
LONGROPE = {
    "type": "longrope",
    "short_factor": [1.0, 1.1, 1.2, 1.4, 1.7, 2.0, 2.5, 3.0],
    "long_factor": [1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0],
}
HALF_LONGROPE = {**LONGROPE, "short_factor": [1.0, 1.2, 1.5, 2.0], "long_factor": [1, 2, 4, 8]}
GEMMA2 = {
    "model_type": "gemma2",
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 24,
    "sliding_window": 7,
    "attn_logit_softcapping": 3.0,
    "final_logit_softcapping": 2.5,
    "tie_word_embeddings": True,
}
GEMMA3 = {
    "hidden_activation": "gelu_pytorch_tanh",
    "num_hidden_layers": 3,
    "sliding_window_pattern": 3,
    "query_pre_attn_scalar": 12,
    "sliding_window": 7,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 5000.0,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    "tie_word_embeddings": True,
}
SMOLLM3 = {"model_type": "smollm3", "num_hidden_layers": 3, "no_rope_layer_interval": 2}
STABLELM = {"model_type": "stablelm", "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.5}
GRANITE = {
    "model_type": "granite",
    "embedding_multiplier": 6.0,
    "attention_multiplier": 0.4,
    "residual_multiplier": 0.3,
    "logits_scaling": 1.6,
}
NEOX = {"model_type": "gpt_neox", "hidden_act": "gelu", "num_key_value_heads": None}
MINICPM = {"model_type": "minicpm", "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 16}
QWEN3_MOE = {
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 32,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
}
OLMOE = {"model_type": "olmoe", "intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 3}
GRANITE4 = {
    **GRANITE,
    "model_type": "granitemoehybrid",
    "layer_types": ["attention", "attention"],
    "num_local_experts": 0,
    "shared_intermediate_size": 96,
    "position_embedding_type": "rope",
}
EXAONE4 = {
    "model_type": "exaone4",
    "num_hidden_layers": 4,
    "sliding_window": 7,
    "sliding_window_pattern": 2,
}
MINISTRAL3 = {
    "rope_parameters": {
        **YARN,
        "rope_theta": 1e6,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.1,
    },
}
OLMO3 = {"model_type": "olmo3", "num_hidden_layers": 4, "sliding_window": 7}
ERNIE = {"model_type": "ernie4_5", "tie_word_embeddings": True}
HUNYUAN = {"model_type": "hunyuan_v1_dense", "head_dim": 16}
CASES = {
    "llama": {},
    "llama-biased": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    "llama-linear": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "llama-dynamic": {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}},
    "llama-llama3": {"rope_scaling": LLAMA3, "rope_theta": 500000.0},
    "llama-yarn": {"rope_scaling": YARN},
    "llama-yarn-exact": {"rope_scaling": {**YARN, "truncate": False, "beta_fast": 4.0}},
    "llama-one-head": {"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 32},
    "llama-gelu": {"hidden_act": "gelu"},
    "mistral": {"model_type": "mistral", "sliding_window": None},
    "mistral-window": {"model_type": "mistral", "sliding_window": 9},
    "qwen2": {"model_type": "qwen2", "rope_theta": 1000000.0},
    "qwen2-window": {"model_type": "qwen2", **QWEN_WINDOW},
    # Its name is as long as "qwen2", so that both have the same weights, and the same logits.
    "mimo7": {"model_type": "mimo", "rope_theta": 1000000.0},
    "qwen3": {"model_type": "qwen3", "tie_word_embeddings": True},
    "qwen3-biased": {"model_type": "qwen3", "attention_bias": True, "head_dim": 32},
    "gemma2": GEMMA2,
    "gemma2-uncapped": {
        **GEMMA2,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "attention_bias": True,
        "num_key_value_heads": 1,
    },
    "gemma3_text": {"model_type": "gemma3_text", **GEMMA3},
    "gemma3_text-capped": {
        "model_type": "gemma3_text",
        **GEMMA3,
        "final_logit_softcapping": 2.5,
        "tie_word_embeddings": False,
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
    },
    "gemma3": {"model_type": "gemma3", "text_config": tiny_config(**GEMMA3)},
    "phi3": {"model_type": "phi3"},
    "phi3-window": {"model_type": "phi3", "sliding_window": 9},
    # A text longer than the original context, and one that is not (checked as of a decoder
    # whose context ends there).
    "phi3-longrope": {
        "model_type": "phi3",
        "rope_scaling": LONGROPE,
        "original_max_position_embeddings": 32,
    },
    "phi3-longrope-short": {
        "model_type": "phi3",
        "rope_scaling": HALF_LONGROPE,
        "original_max_position_embeddings": 64,
        "partial_rotary_factor": 0.5,
        "tie_word_embeddings": True,
    },
    "smollm3": {**SMOLLM3, "tie_word_embeddings": True},
    "smollm3-window": {
        **SMOLLM3,
        "attention_bias": True,
        "mlp_bias": True,
        "use_sliding_window": True,
        "sliding_window": 9,
    },
    "stablelm": STABLELM,
    "stablelm-parallel": {**STABLELM, "use_parallel_residual": True, "use_qkv_bias": True},
    "stablelm-norms": {**STABLELM, "qk_layernorm": True, "partial_rotary_factor": 0.25},
    "olmo2": {"model_type": "olmo2"},
    "olmo2-biased": {"model_type": "olmo2", "attention_bias": True, "tie_word_embeddings": True},
    "granite": GRANITE,
    "granite-biased": {
        **GRANITE,
        "attention_bias": True,
        "mlp_bias": True,
        "tie_word_embeddings": True,
    },
    "granitemoehybrid": GRANITE4,
    "granitemoehybrid-nope": {**GRANITE4, "position_embedding_type": "nope"},
    "exaone4": {**EXAONE4, "tie_word_embeddings": True},
    "exaone4-full": {
        **EXAONE4,
        "num_hidden_layers": 2,
        "sliding_window": None,
        "layer_types": ["full_attention", "full_attention"],
    },
    "olmo3": OLMO3,
    "olmo3-yarn": {**OLMO3, "rope_scaling": YARN},
    "ernie4_5": ERNIE,
    "ernie4_5-biased": {**ERNIE, "use_bias": True, "head_dim": 32},
    "hunyuan_v1_dense": HUNYUAN,
    "hunyuan_v1_dense-alpha": {
        **HUNYUAN,
        "rope_scaling": {"type": "dynamic", "alpha": 50.0, "factor": 1.0},
        "tie_word_embeddings": True,
    },
    "hunyuan_v1_dense-biased": {**HUNYUAN, "attention_bias": True},
    # In transformers 5.
    "ministral3": {"model_type": "ministral3", **MINISTRAL3},
    "mistral3": {
        "model_type": "mistral3",
        "text_config": tiny_config(model_type="ministral3", **MINISTRAL3),
    },
    "gpt2": {"model_type": "gpt2"},
    "gpt2-untied": {
        "model_type": "gpt2",
        "scale_attn_weights": False,
        "n_head": 8,
        "tie_word_embeddings": False,
        "n_inner": None,
    },
    "gpt_neox": {**NEOX, "rotary_pct": 0.25},
    "gpt_neox-sequential": {
        **NEOX,
        "rotary_pct": 1.0,
        "rotary_emb_base": 5000,
        "use_parallel_residual": False,
        "attention_bias": False,
    },
    "qwen3_moe": QWEN3_MOE,
    "qwen3_moe-window": {
        **QWEN3_MOE,
        "norm_topk_prob": False,
        "attention_bias": True,
        "use_sliding_window": True,
        "sliding_window": 9,
        "tie_word_embeddings": True,
    },
    "olmoe": OLMOE,
    "olmoe-all": {**OLMOE, "num_experts_per_tok": 8, "norm_topk_prob": True},
    "minicpm": MINICPM,
    "minicpm-untied": {**MINICPM, "tie_word_embeddings": False, "num_key_value_heads": 4},
}


def in_transformers(config: dict[str, object]) -> dict[str, object]:
    """The configuration of the same decoder in transformers."""
    if config["model_type"] == "gemma3":
        return {**config["text_config"], "model_type": "gemma3_text"}
    if config["model_type"] == "mistral3":
        return {**config["text_config"], "model_type": "ministral3"}
    if config["model_type"] == "minicpm":
        # Transformers has no MiniCPM of its own; Granite multiplies at the same places.
        return {
            "tie_word_embeddings": True,
            **config,
            "model_type": "granite",
            "embedding_multiplier": config["scale_emb"],
            "attention_multiplier": config["head_dim"] ** -0.5,
            "residual_multiplier": config["scale_depth"] / config["num_hidden_layers"] ** 0.5,
            "logits_scaling": config["hidden_size"] / config["dim_model_base"],
        }
    if config["model_type"] == "mimo":  # Transformers has none; its authors' class is a Qwen2.
        config = {**config, "model_type": "qwen2"}
    return {"pad_token_id": 0, **config}


def record(name: str, changes: dict[str, object]) -> None:
    config = tiny_config(**changes)
    spec = spec_for(config)
    tensors = random_stored(spec, seed=len(name))
    model_config = transformers.AutoConfig.for_model(**in_transformers(config))
    model_config._attn_implementation = "eager"
    with no_init_weights():  # StableLM's own fails on norms without a bias
        model = transformers.AutoModelForCausalLM.from_config(model_config).eval()
    state = {key: torch.from_numpy(value) for key, value in tensors.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected, unexpected
    assert set(missing) <= {"lm_head.weight"}, missing
    assert not missing or spec.tied
    model.tie_weights()
    tokens = np.random.default_rng(7).integers(0, spec.vocab_size, LENGTH)
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens)[None]).logits[0].numpy()
    # Every third row and every fifth column tell as much, and keep the file small.
    np.savez_compressed(HERE / f"{name}.npz", tokens=tokens, logits=logits[::3, ::5])
    (HERE / f"{name}.json").write_text(json.dumps(config, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    wanted = sys.argv[1:] or sorted(CASES)
    for case in wanted:
        record(case, CASES[case])
        print(case)
