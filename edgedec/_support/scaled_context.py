"""How long a text a decoder reads, by the scaling of its rotary embedding.

transformers' documentation of ``rope_parameters``: a factor of x serves texts of x times the
original length, and ``original_max_position_embeddings`` is that length. Model cards state the
longer one (Qwen2.5 and Qwen3: YaRN with a factor of 4 and 32,768 is 131,072, whether
``max_position_embeddings`` is 32,768 or 40,960; Vicuna 1.5 16k: linear, 4 and 4,096).
"""

from __future__ import annotations

_LONGEST = 2**31 - 1
# Linear scaling has no field for the original length. Folders state that (Vicuna, LongChat, as
# transformers wants it) or the longer one (deepseek-coder, LLaMA-2-7B-32K: 4,096 times 4 and 8).
_ORIGINAL = 4096


def original_context(kind: str, stated: int, factor: float, original: float = 0) -> int:
    """Return the tokens of the texts that a decoder was first trained with.

    Args:
        kind: of scaling, such as ``linear``.
        stated: ``max_position_embeddings``, or GGUF's ``context_length``.
        factor: of the scaling; 0 for none.
        original: as stated; 0 for none.

    """
    if original > 0:
        return int(original)
    longer = kind == "linear" and factor > 1 and stated / factor >= _ORIGINAL
    return int(stated / factor) if longer else stated


def scaled_context(kind: str, stated: int, factor: float, original: float = 0) -> int:
    """Return the tokens of the longest text; the arguments are those of ``original_context``.

    ``dynamic`` stays at what is stated: beyond it every text has angles of its own. ``llama3`` and
    ``longrope`` state the longer one (Llama 3.1: 131,072 with 8 and 8,192), or the original alone.
    """
    first = original_context(kind, stated, factor, original)
    grows = kind in ("linear", "yarn") or (kind in ("llama3", "longrope") and stated <= first)
    longest = first * factor if grows and factor > 1 else 0.0
    return max(stated, int(min(longest, _LONGEST)))
