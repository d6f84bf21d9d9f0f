"""A tiny random LFM2: of four layers the third one attends, the others have a short convolution."""

from __future__ import annotations

from typing import Any

CONFIG: dict[str, Any] = {
    "model_type": "lfm2",
    "vocab_size": 96,
    "hidden_size": 64,
    "block_auto_adjust_ff_dim": False,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "conv_L_cache": 3,
    "layer_types": ["conv", "conv", "full_attention", "conv"],
    "tie_word_embeddings": True,
    "eos_token_id": 0,
}
