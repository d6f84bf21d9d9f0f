"""Tiny Gemma 4 assistants, and what their formulas make of them in numpy.

The formulas are those of ``Gemma4AssistantForCausalLM`` (transformers 5.24), written out from its
description; they share no code with edgedec, and are held to what that class computed (see
tests/golden/record_assistant.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tiny_tokenizers
from mimo_case import SCRIPT, scripted, text_beside
from safetensors.numpy import load_file
from tiny_models import random_stored, save_checkpoint
from tokenizers import Tokenizer

from edgedec.export.checkpoint import Checkpoint
from edgedec.export.reference import Reference
from edgedec.models.registry import spec_for

Array = np.ndarray
FOLDER = Path(__file__).parents[1] / "golden" / "heads"
NEAR, WHOLE = "sliding_attention", "full_attention"
# Draft steps, and rows of the target's cache at the root.
STEPS, ROWS = 3, 20
TEXT: Mapping[str, Any] = {
    "model_type": "gemma4_text",
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "layer_types": [NEAR, NEAR, NEAR, WHOLE],
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "global_head_dim": 32,
    "num_kv_shared_layers": 4,
    "hidden_size_per_layer_input": 0,
    "vocab_size_per_layer_input": 0,
    "enable_moe_block": False,
    "use_double_wide_mlp": False,
    "attention_k_eq_v": False,
    "sliding_window": 7,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
    "final_logit_softcapping": None,
    "rope_parameters": {
        WHOLE: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 500.0},
        NEAR: {"rope_type": "default", "rope_theta": 100.0},
    },
}
CASES: Mapping[str, Mapping[str, Any]] = {
    "assistant": {"use_ordered_embeddings": False},
    "assistant-routed": {
        "use_ordered_embeddings": True, "num_centroids": 12, "centroid_intermediate_top_k": 3,
    },
}  # fmt: skip
# Of the target, and its key heads by kind of layer.
HIDDEN, KV_HEADS = 64, {NEAR: 1, WHOLE: 1}


def config(case: str, hidden: int = HIDDEN, **text: Any) -> dict[str, Any]:
    """The configuration as transformers writes it."""
    return {
        "model_type": "gemma4_assistant",
        "architectures": ["Gemma4AssistantForCausalLM"],
        "backbone_hidden_size": hidden,
        "tie_word_embeddings": True,
        "text_config": {**TEXT, **text},
        **CASES[case],
    }


def head_dim(text: Mapping[str, Any], kind: str) -> int:
    """Channels of a head in layers of a kind."""
    return int(text["global_head_dim" if kind == WHOLE else "head_dim"])


def shapes(stated: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes as transformers stores them."""
    text, target = stated["text_config"], stated["backbone_hidden_size"]
    hidden, ffn, heads = (
        text[key] for key in ("hidden_size", "intermediate_size", "num_attention_heads")
    )
    found: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (text["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
        "pre_projection.weight": (hidden, 2 * target),
        "post_projection.weight": (target, hidden),
    }
    for layer, kind in enumerate(text["layer_types"]):
        at, size = f"model.layers.{layer}", head_dim(text, kind)
        found |= {
            f"{at}.self_attn.q_proj.weight": (heads * size, hidden),
            f"{at}.self_attn.q_norm.weight": (size,),
            f"{at}.self_attn.o_proj.weight": (hidden, heads * size),
            f"{at}.mlp.gate_proj.weight": (ffn, hidden),
            f"{at}.mlp.up_proj.weight": (ffn, hidden),
            f"{at}.mlp.down_proj.weight": (hidden, ffn),
            f"{at}.layer_scalar": (1,),
        }
        for norm in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
            found[f"{at}.{norm}_layernorm.weight"] = (hidden,)
    if stated["use_ordered_embeddings"]:
        found["masked_embedding.centroids.weight"] = (stated["num_centroids"], hidden)
    return found


def tensors(stated: Mapping[str, Any], seed: int = 11) -> dict[str, Array]:
    """Random weights, with a spread that makes every part matter."""
    rng = np.random.default_rng(seed)
    found = {}
    for name, shape in shapes(stated).items():
        values = rng.standard_normal(shape, dtype=np.float32)
        if len(shape) == 1:
            values = 1 + values / 4
        elif name != "model.embed_tokens.weight":
            values *= 1.5 / np.sqrt(shape[1])
        found[name] = values.astype(np.float32)
    if stated["use_ordered_embeddings"]:
        ordering = rng.permutation(stated["text_config"]["vocab_size"])
        found["masked_embedding.token_ordering"] = ordering.astype(np.int64)
    return found


def checkpoint(case: str, folder: Path, hidden: int = HIDDEN, **text: Any) -> Path:
    """Write the assistant's folder, with random weights."""
    stated = config(case, hidden, **text)
    return save_checkpoint(folder, stated, tensors(stated))


def inputs(rows: int = ROWS) -> tuple[Array, Array, Array, dict[str, tuple[Array, Array]]]:
    """What a draft begins with, all of it random.

    Returns:
        The drafted tokens that are read, ``[STEPS]``; the target's scaled embedding,
        ``[vocabulary, HIDDEN]``; its state before the root, ``[HIDDEN]``; and by kind of layer keys
        and values, ``[kv_heads, rows, head_dim]``.

    """
    rng = np.random.default_rng(13)
    tokens = rng.integers(0, TEXT["vocab_size"], STEPS)
    embedded = rng.standard_normal((TEXT["vocab_size"], HIDDEN), dtype=np.float32)
    state = rng.standard_normal(HIDDEN, dtype=np.float32)
    cache = {}
    for kind, heads in KV_HEADS.items():
        shape = (2, heads, rows, head_dim(TEXT, kind))
        keys, values = rng.standard_normal(shape, dtype=np.float32)
        cache[kind] = keys, values
    return tokens, embedded, state, cache


# -- the formulas -------------------------------------------------------------------------------


class Formulas:
    """An assistant, computed for one row at a time."""

    def __init__(self, weights: Mapping[str, Array], stated: Mapping[str, Any]) -> None:
        self._weights, self._stated, self._text = weights, stated, stated["text_config"]

    def step(
        self, embedded: Array, state: Array, cache: Mapping[str, tuple[Array, Array]], root: int
    ) -> tuple[Array, Array]:
        """Logits ``[vocabulary]`` and the state that the next step reads.

        Args:
            embedded: the token's embedding in the target, scaled, ``[HIDDEN]``.
            state: the target's, after its final norm, or the step's before, ``[HIDDEN]``.
            cache: by kind of layer, the target's keys and values of all tokens before the root.
            root: its position.

        """
        x = self._weights["pre_projection.weight"] @ np.concatenate([embedded, state])
        for layer, kind in enumerate(self._text["layer_types"]):
            x = self._layer(f"model.layers.{layer}", kind, x, cache[kind], root)
        normed = self._rms(x, "model.norm.weight")
        return self._logits(normed), self._weights["post_projection.weight"] @ normed

    def _layer(self, at: str, kind: str, x: Array, cache: tuple[Array, Array], root: int) -> Array:
        read = self._rms(x, f"{at}.input_layernorm.weight")
        attended = self._attention(f"{at}.self_attn", kind, read, cache, root)
        x = x + self._rms(attended, f"{at}.post_attention_layernorm.weight")
        read = self._rms(x, f"{at}.pre_feedforward_layernorm.weight")
        gate = self._weights[f"{at}.mlp.gate_proj.weight"] @ read
        inner = 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
        inner = inner * (self._weights[f"{at}.mlp.up_proj.weight"] @ read)
        fed = self._weights[f"{at}.mlp.down_proj.weight"] @ inner
        x = x + self._rms(fed, f"{at}.post_feedforward_layernorm.weight")
        return x * self._weights[f"{at}.layer_scalar"]

    def _attention(
        self, at: str, kind: str, x: Array, cache: tuple[Array, Array], root: int
    ) -> Array:
        heads, size = self._text["num_attention_heads"], head_dim(self._text, kind)
        q = self._rms(
            (self._weights[f"{at}.q_proj.weight"] @ x).reshape(heads, size), f"{at}.q_norm.weight"
        )
        q = self._turned(q, kind, root)
        seen = root if kind == WHOLE else min(root, self._text["sliding_window"] - 1)
        keys, values = (
            np.repeat(part[:, root - seen : root], heads // len(part), axis=0) for part in cache
        )
        scores = np.einsum("hd,hjd->hj", q, keys)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        mixed = np.einsum("hj,hjd->hd", shares, values)
        return self._weights[f"{at}.o_proj.weight"] @ mixed.reshape(-1)

    def _turned(self, q: Array, kind: str, position: int) -> Array:
        rope, half = self._text["rope_parameters"][kind], q.shape[1] // 2
        pairs = np.arange(half)
        turned = pairs < rope.get("partial_rotary_factor", 1.0) * half
        angles = np.where(turned, position * rope["rope_theta"] ** (-pairs / half), 0.0)
        left, right = q[:, :half], q[:, half:]
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([left * cos - right * sin, right * cos + left * sin], axis=1)

    def _logits(self, x: Array) -> Array:
        logits = self._weights["model.embed_tokens.weight"] @ x
        if not self._stated["use_ordered_embeddings"]:
            return logits
        scores = self._weights["masked_embedding.centroids.weight"] @ x
        best = np.argsort(-scores)[: self._stated["centroid_intermediate_top_k"]]
        clusters = self._weights["masked_embedding.token_ordering"].reshape(len(scores), -1)
        drafted = np.full_like(logits, -np.inf)
        chosen = clusters[best].reshape(-1)
        drafted[chosen] = logits[chosen]
        return drafted

    def _rms(self, x: Array, name: str) -> Array:
        scale = np.sqrt((x * x).mean(axis=-1, keepdims=True) + self._text["rms_norm_eps"])
        return x / scale * self._weights[name]


# -- a pair ---------------------------------------------------------------------------------------


def target_config(**changes: Any) -> dict[str, Any]:
    """A tiny Gemma 4 that an assistant of ``config`` fits, of E2B's kind."""
    text = {key: value for key, value in TEXT.items() if key != "vocab_size_per_layer_input"}
    return {
        **text, "hidden_size": HIDDEN, "num_hidden_layers": 6, "num_kv_shared_layers": 3,
        "layer_types": [NEAR, NEAR, WHOLE, NEAR, NEAR, WHOLE], "use_double_wide_mlp": True,
        "final_logit_softcapping": 30.0, "eos_token_id": 0, **changes,
    }  # fmt: skip


def pair(case: str, folder: Path, **text: Any) -> tuple[Path, Path]:
    """Write a random target with a tokenizer, and an assistant as random."""
    tokenizer = tiny_tokenizers.byte_level()
    size = whole_clusters(tokenizer)
    stated = target_config(vocab_size=size, tie_word_embeddings=False)  # else it repeats a token
    target = save_checkpoint(folder / "target", stated, random_stored(spec_for(stated)))
    head = checkpoint(case, folder / "head", vocab_size=size, **text)
    return tiny_tokenizers.save(tokenizer, target), head


def whole_clusters(tokenizer: Tokenizer) -> int:
    """Rows that a vocabulary needs so that clusters have one size."""
    count = CASES["assistant-routed"]["num_centroids"]
    return -(-tokenizer.get_vocab_size() // count) * count


def agreeing(case: str, folder: Path, heed: float = 0.0) -> tuple[Path, Path, Path]:
    """Write a target that repeats ``SCRIPT``, and an assistant that knows how it goes on.

    Both go from a token's embedding to the next token, and look at nothing else: the target by a
    head of its own, the assistant by its embedding, which is in the order of the target's. An
    assistant that heeds the target's states, keys and values as well is right the less often.

    Returns:
        Target, assistant, and a file with the text.

    """
    tokenizer = scripted()
    size = whole_clusters(tokenizer)
    stated = target_config(vocab_size=size, tie_word_embeddings=False)
    own = config(case, vocab_size=size, hidden_size=HIDDEN)
    target, head = random_stored(spec_for(stated)), tensors(own)
    for tensors_of, heeded in ((target, 0.0), (head, heed)):
        for name, values in tensors_of.items():
            if "_attention_layernorm" in name or "post_feedforward" in name:
                values[:] = heeded
            elif name.endswith(("norm.weight", "layer_scalar")):
                values[:] = 1
    ids = [tokenizer.token_to_id(part) for part in SCRIPT]
    after = np.roll(ids, -1)
    embedded, last = target["model.embed_tokens.weight"], target["lm_head.weight"]
    drafts = head["model.embed_tokens.weight"]
    embedded /= np.linalg.norm(embedded, axis=1, keepdims=True)
    for rows in (last, drafts):
        rows *= 0.02
        rows[after] = embedded[ids]
    first = head["pre_projection.weight"]
    first[:] = np.concatenate([np.eye(HIDDEN), heed * first[:, HIDDEN:]], axis=1)
    if own["use_ordered_embeddings"]:
        order = head["masked_embedding.token_ordering"].reshape(own["num_centroids"], -1)
        head["masked_embedding.centroids.weight"][:] = drafts[order].sum(axis=1)
    saved = tiny_tokenizers.save(tokenizer, save_checkpoint(folder / "target", stated, target))
    return saved, save_checkpoint(folder / "head", own, head), text_beside(folder / "script")


class TargetFormulas:
    """What a target's reference makes of a text, for an assistant's formulas."""

    def __init__(self, target: Path, head: Path) -> None:
        opened = Checkpoint.open(target)
        self._spec, self._tensors = opened.spec, opened.tensors
        stated = json.loads((head / "config.json").read_text("utf-8"))
        self._formulas = Formulas(load_file(head / "model.safetensors"), stated)

    def draft(self, tokens: Sequence[int], root: int, length: int) -> list[int]:
        """Tokens drafted below ``root``, which follows ``tokens``, by the largest logit."""
        return [int(logits.argmax()) for logits in self.logits(tokens, root, length)]

    def logits(self, tokens: Sequence[int], root: int, length: int) -> list[Array]:
        """What those tokens are chosen by."""
        kept: dict[int, tuple[Array, Array]] = {}
        reference = Reference(
            self._spec, self._tensors, on_cache=lambda at, *parts: kept.update({at: parts})
        )
        stream = reference.states(tokens, (self._spec.layers,))
        state, found = reference.final_norm(stream)[-1], list[Array]()
        cache = {  # the last of a kind
            NEAR if self._spec.windows[layer] else WHOLE: tuple(
                np.moveaxis(part, 1, 0) for part in parts
            )
            for layer, parts in sorted(kept.items())
        }
        for _ in range(length):
            token = int(found[-1].argmax()) if found else root
            embedded = reference.embed([token])[0, : self._spec.hidden]
            logits, state = self._formulas.step(embedded, state, cache, len(tokens))
            found.append(logits)
        return found
