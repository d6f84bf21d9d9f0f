"""Every way in which decoders differ, at least once, as changes of a tiny configuration."""

from typing import Any

VARIANTS: dict[str, dict[str, Any]] = {
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
    "hunyuan": {"model_type": "hunyuan_v1_dense"},
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
