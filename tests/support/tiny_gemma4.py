"""A tiny random Gemma 4: of seven layers the last three read the caches of earlier ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgedec.runtimes.onnx.cache import KvCache

SLIDING, FULL = "sliding_attention", "full_attention"
CONFIG: dict[str, Any] = {
    "model_type": "gemma4_text",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 7,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "global_head_dim": 32,
    "layer_types": [SLIDING, SLIDING, SLIDING, FULL, SLIDING, SLIDING, FULL],
    "num_kv_shared_layers": 3,
    "use_double_wide_mlp": True,
    "sliding_window": 4,
    "hidden_size_per_layer_input": 32,
    "vocab_size_per_layer_input": 96,
    "final_logit_softcapping": 10.0,
    "max_position_embeddings": 256,
    "tie_word_embeddings": True,
    "eos_token_id": 0,
}
# As 12B: values of full layers are keys, of which those have fewer heads; no input of their own.
UNSHARED: dict[str, Any] = {
    **CONFIG,
    "num_hidden_layers": 4,
    "layer_types": [SLIDING, FULL, SLIDING, FULL],
    "num_kv_shared_layers": 0,
    "attention_k_eq_v": True,
    "num_global_key_value_heads": 1,
    "hidden_size_per_layer_input": 0,
}


class StaleRows(KvCache):
    """Accepted nodes are moved in the first array alone, which layers of one kind read."""

    def move(self, sources: Sequence[int], to: int) -> None:
        kept, self._others = self._others, []
        try:
            super().move(sources, to)
        finally:
            self._others = kept
