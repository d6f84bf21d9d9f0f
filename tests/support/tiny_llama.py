"""A Llama of one tiny layer as a GGUF header and tensors: llama.cpp opens and decodes it."""

from typing import Any

import gguf_files
import numpy as np
from gguf_files import Tensor

HIDDEN = 32
VOCABULARY = gguf_files.byte_pairs("gpt-2")
TOKENS = len(VOCABULARY["tokenizer.ggml.tokens"])
GOOD: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": 1,
    "llama.context_length": 64,
    "llama.embedding_length": HIDDEN,
    "llama.feed_forward_length": HIDDEN,
    "llama.attention.head_count": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    **VOCABULARY,
}
SHAPES = {
    "token_embd.weight": (HIDDEN, TOKENS),
    "output_norm.weight": (HIDDEN,),
    "blk.0.attn_norm.weight": (HIDDEN,),
    "blk.0.ffn_norm.weight": (HIDDEN,),
    **{f"blk.0.{name}.weight": (HIDDEN, HIDDEN) for name in (
        "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")},
}  # fmt: skip
TENSORS = tuple(
    Tensor(name, shape, 0, np.ones(int(np.prod(shape)), np.float32).tobytes())
    for name, shape in SHAPES.items()
)
