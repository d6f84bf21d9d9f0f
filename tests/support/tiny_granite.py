"""A tiny random Granite 4 H: of four layers the third one attends, the others are Mamba's."""

from __future__ import annotations

from typing import Any

CONFIG: dict[str, Any] = {
    "model_type": "granitemoehybrid",
    "vocab_size": 96,
    "hidden_size": 64,
    "shared_intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "embedding_multiplier": 6.0,
    "attention_multiplier": 0.4,
    "residual_multiplier": 0.3,
    "logits_scaling": 1.6,
    "position_embedding_type": "nope",
    "layer_types": ["mamba", "mamba", "attention", "mamba"],
    "num_local_experts": 0,
    "mamba_n_heads": 4,
    "mamba_n_groups": 1,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "tie_word_embeddings": True,
    "eos_token_id": 0,
}
