"""Tiny random checkpoints of architectures that have no spec, made with transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tiny_tokenizers
from tiny_models import CHECKPOINT_VOCAB

# Position biases and no positions, one key head for all, keys wider than values and experts, a
# table of positions.
SIZES: dict[str, dict[str, Any]] = {
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4, "seq_length": 256},
    "falcon": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4},
    "deepseek_v3": {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "moe_intermediate_size": 16,
        "n_routed_experts": 4,
        "n_group": 1,
        "topk_group": 1,
        "num_experts_per_tok": 2,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 4,
        "qk_nope_head_dim": 8,
        "v_head_dim": 6,
        "first_k_dense_replace": 1,
        "max_position_embeddings": 256,
    },
    "opt": {
        "hidden_size": 32,
        "ffn_dim": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "word_embed_proj_dim": 32,
        "max_position_embeddings": 256,
    },
    # No cache of keys and values: optimum does not know it.
    "mamba": {"hidden_size": 16, "num_hidden_layers": 1, "state_size": 4},
}


def torch_checkpoint(
    folder: Path,
    kind: str,
    *,
    vocab_size: int = CHECKPOINT_VOCAB,
    seed: int = 0,
    shard: str = "5GB",
) -> Path:
    """A whole checkpoint with a byte-level tokenizer and weights that make every part matter."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    ends = {"eos_token_id": 0, "bos_token_id": 0, "pad_token_id": 0}
    config = AutoConfig.for_model(kind, vocab_size=vocab_size, **ends, **SIZES[kind])
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config)
    for weights in model.parameters():
        if weights.dim() > 1:
            weights.data.normal_(0, 0.3)
    model.save_pretrained(folder, max_shard_size=shard)
    stated = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**stated, "license": "mit"}), "utf-8")
    return tiny_tokenizers.save(tiny_tokenizers.byte_level(), folder)
