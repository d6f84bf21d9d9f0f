"""Tiny Qwen3.5 checkpoints with their MTP layer, and what its formulas make of them in numpy.

The target's states are those of ``edgedec.export.reference``, which are held to recorded logits of
transformers; the layer's formulas share no code with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mimo_case
import numpy as np
import tiny_qwen3_5
import tiny_tokenizers
from mimo_case import Array, scripted, text_beside
from tiny_models import MemoryTensors, canonical_tensors, random_stored

from edgedec.export.reference import Reference
from edgedec.models.registry import spec_for

MTP = "mtp.layers.0"
KIND, COUNT, PRODUCT = "qwen3_5_mtp", "mtp_num_hidden_layers", "mtp.fc.weight"
_SIZES = tiny_qwen3_5.CONFIG | {COUNT: 1, "mtp_use_dedicated_embeddings": False}


def config(**changes: Any) -> dict[str, Any]:
    """Qwen3.5's configuration, of a tiny decoder whose columns are all tokens."""
    vocab = tiny_tokenizers.byte_level().get_vocab_size()
    return {**_SIZES, "vocab_size": vocab, **changes}


def mtp_tensors(stated: Mapping[str, Any], seed: int = 3, layer: int = 0) -> dict[str, Array]:
    """Random weights of an MTP layer, with a spread that makes every part of it matter."""
    hidden = stated["hidden_size"]
    one = spec_for({**stated, "num_hidden_layers": 1, "layer_types": ["full_attention"]})
    inner = {
        name.replace("model.layers.0", f"mtp.layers.{layer}"): values
        for name, values in random_stored(one, seed).items()
        if name.startswith("model.layers.0.")
    }
    rng = np.random.default_rng(seed)
    norms = {
        f"mtp.{which}.weight": rng.standard_normal(hidden) / 4
        for which in ("norm", "pre_fc_norm_hidden", "pre_fc_norm_embedding")
    }
    product = {PRODUCT: rng.standard_normal((hidden, 2 * hidden)) / 8}
    return inner | {name: x.astype(np.float32) for name, x in (norms | product).items()}


def weights(stated: Mapping[str, Any]) -> dict[str, Array]:
    """Random weights of the whole checkpoint."""
    return {**random_stored(spec_for(stated)), **mtp_tensors(stated)}


def checkpoint(folder: Path, tensors: Mapping[str, Array] | None = None, **changes: Any) -> Path:
    """Write a checkpoint: of these tensors, or of random ones."""
    stated = config(**changes)
    return mimo_case.saved(folder, stated, tensors or weights(stated))


def agreeing(folder: Path, *, token_first: bool = True, **changes: Any) -> tuple[Path, Path]:
    """As ``mimo_case.agreeing``, but that the layer reads the channels that a norm turned."""
    tokenizer = scripted()
    vocab = tokenizer.get_vocab_size()
    stated = config(vocab_size=vocab, tie_word_embeddings=False, **changes)
    tensors, norms = weights(stated), ("model.norm.weight", "mtp.norm.weight")
    tensors[PRODUCT] = mimo_case.repeating(
        tensors, tokenizer, norms, token_first=token_first, less=1, turned=True
    )
    return mimo_case.saved(folder, stated, tensors, tokenizer), text_beside(folder)


class Formulas(mimo_case.Formulas):
    """A checkpoint's target and MTP layer, computed anew for each text."""

    def states(self, tokens: Sequence[int]) -> Array:
        """The states behind the final norm, ``[n, hidden]``."""
        spec = spec_for(self._stated)
        stored = {name: self._tensors[name] for name, _ in spec.stored()}
        target = Reference(spec, MemoryTensors(canonical_tensors(spec, stored)))
        return target.final_norm(target.states(tokens, [spec.layers]))

    def choices(self, tokens: Sequence[int]) -> list[int]:
        """The target's first choice behind each token."""
        return (self.states(tokens) @ self._head.T).argmax(axis=1).tolist()

    def mtp(self, following: Sequence[int], states: Array) -> tuple[Array, Array]:
        """Logits, and the layer's own states, of pairs of a state and the token after it."""
        embedded = self._tensors["model.embed_tokens.weight"][list(following)]
        token = self._rms(embedded, "mtp.pre_fc_norm_embedding.weight")
        state = self._rms(states, "mtp.pre_fc_norm_hidden.weight")
        x = np.concatenate([token, state], axis=1) @ self._tensors[PRODUCT].T
        x = self._rms(self._layer(MTP, x), "mtp.norm.weight")
        return x @ self._head.T, x

    @property
    def _head(self) -> Array:
        embedded = self._tensors["model.embed_tokens.weight"]
        return self._tensors.get("lm_head.weight", embedded)

    def _rms(self, x: Array, name: str) -> Array:
        scale = np.sqrt((x * x).mean(axis=-1, keepdims=True) + self._stated["rms_norm_eps"])
        return x / scale * (1 + self._tensors[name])

    def _attention(self, at: str, x: Array) -> Array:
        n, size, heads = len(x), self._stated["head_dim"], self._stated["num_attention_heads"]
        both = self._linear(f"{at}.q_proj", x).reshape(n, heads, 2, size)
        q = self._turned(self._rms(both[:, :, 0], f"{at}.q_norm.weight"))
        k = self._linear(f"{at}.k_proj", x).reshape(n, -1, size)
        k = self._turned(self._rms(k, f"{at}.k_norm.weight"))
        v = self._linear(f"{at}.v_proj", x).reshape(n, -1, size)
        mixed = self._mixed(q, k, v) / (1 + np.exp(-both[:, :, 1]))
        return self._linear(f"{at}.o_proj", mixed.reshape(n, -1))

    def _turned(self, x: Array) -> Array:
        rope = self._stated["rope_parameters"]
        count = int(x.shape[-1] * rope["partial_rotary_factor"])
        turned = self._rotated(x[..., :count], rope["rope_theta"])
        return np.concatenate([turned, x[..., count:]], axis=-1)
