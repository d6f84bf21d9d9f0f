"""Tiny MiMo checkpoints with their MTP layer, and what its authors' formulas make of them in numpy.

The formulas are those of ``MiMoMTPLayers`` (modeling_mimo.py of MiMo-7B) and of Qwen2's layer; they
share no code with edgedec.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tiny_tokenizers
from tiny_models import random_stored, save_checkpoint, tiny_config
from tokenizers import AddedToken, Tokenizer

from edgedec.models.registry import spec_for

Array = np.ndarray
MTP = "model.mtp_layers.0"
KIND, COUNT, PRODUCT = "mimo_mtp", "num_nextn_predict_layers", f"{MTP}.input_proj.weight"
SCRIPT = [f"<{number}>" for number in range(40)]
PROMPT = "def add(left, right):\n    return"


def config(**changes: Any) -> dict[str, Any]:
    """MiMo-7B's configuration, of a tiny decoder whose columns are all tokens."""
    vocab = tiny_tokenizers.byte_level().get_vocab_size()
    return tiny_config(**{
        "model_type": "mimo", "architectures": ["MiMoForCausalLM"], "vocab_size": vocab,
        "attention_bias": True, "num_nextn_predict_layers": 1, "rope_theta": 640000.0,
        "use_sliding_window": False, **changes,
    })  # fmt: skip


def mtp_tensors(stated: Mapping[str, Any], seed: int = 3, layer: int = 0) -> dict[str, Array]:
    """Random weights of an MTP layer, with a spread that makes every part of it matter."""
    hidden = stated["hidden_size"]
    one = spec_for({**stated, "num_hidden_layers": 1})
    prefix = f"model.mtp_layers.{layer}"
    inner = {
        f"{prefix}.{name.removeprefix('model.layers.0.')}": values
        for name, values in random_stored(one, seed).items()
        if name.startswith("model.layers.0.")
    }
    rng = np.random.default_rng(seed)
    norms = {
        f"{prefix}.{which}_layernorm.weight": 1 + rng.standard_normal(hidden) / 4
        for which in ("token", "hidden", "final")
    }
    proj = {f"{prefix}.input_proj.weight": rng.standard_normal((hidden, 2 * hidden)) / 8}
    return inner | {name: x.astype(np.float32) for name, x in (norms | proj).items()}


def weights(stated: Mapping[str, Any]) -> dict[str, Array]:
    """Random weights of the whole checkpoint."""
    return {**random_stored(spec_for(stated)), **mtp_tensors(stated)}


def checkpoint(folder: Path, tensors: Mapping[str, Array] | None = None, **changes: Any) -> Path:
    """Write a checkpoint: of these tensors, or of random ones."""
    stated = config(**changes)
    return saved(folder, stated, tensors or weights(stated))


def saved(
    folder: Path,
    stated: Mapping[str, Any],
    tensors: Mapping[str, Array],
    tokenizer: Tokenizer | None = None,
) -> Path:
    """Write a checkpoint and its tokenizer."""
    save_checkpoint(folder, stated, dict(tensors))
    return tiny_tokenizers.save(tokenizer or tiny_tokenizers.byte_level(), folder)


def agreeing(folder: Path, *, token_first: bool = False, **changes: Any) -> tuple[Path, Path]:
    """Write a model that repeats ``SCRIPT``, whose MTP layer knows how it goes on.

    Returns:
        The checkpoint, and a file with the text.

    """
    tokenizer = scripted()
    stated = config(vocab_size=tokenizer.get_vocab_size(), **changes)
    tensors, norms = weights(stated), ("model.norm.weight", f"{MTP}.final_layernorm.weight")
    tensors[PRODUCT] = repeating(tensors, tokenizer, norms, token_first=token_first)
    return saved(folder, stated, tensors, tokenizer), text_beside(folder)


def repeating(
    tensors: Mapping[str, Array],
    tokenizer: Tokenizer,
    norms: Sequence[str],
    *,
    token_first: bool,
    less: int = 0,
    turned: bool = False,
) -> Array:
    """Make weights repeat ``SCRIPT``; return the product of an MTP layer that knows it.

    It goes from the state of one token to the next one's embedding, and looks at nothing else.
    These norms, stored ``less`` than they are, turn half of the channels around, so that their
    place matters: the states have been turned, or have not.
    """
    for name, values in tensors.items():
        if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
            values[:] = 0
        elif "norm" in name:
            values[:] = 1 - less
    ids = [tokenizer.token_to_id(part) for part in SCRIPT]
    after = np.roll(ids, -1)
    embedded, head = tensors["model.embed_tokens.weight"], tensors["lm_head.weight"]
    signs = np.where(np.arange(embedded.shape[1]) % 2, 1, -1).astype(np.float32)
    for name in norms:
        tensors[name][:] = signs - less
    embedded /= np.linalg.norm(embedded, axis=1, keepdims=True) / 8
    head *= 0.02
    head[after] = signs * embedded[ids]
    states = embedded[ids] * (signs if turned else 1)
    forth = np.linalg.lstsq(states, embedded[after], rcond=None)[0].T
    halves = [forth, np.zeros_like(forth)]
    product = np.concatenate(halves[::-1] if token_first else halves, axis=1)
    return np.ascontiguousarray(product, np.float32)


def scripted() -> Tokenizer:
    """A tokenizer with a token for each part of ``SCRIPT``."""
    tokenizer = Tokenizer.from_str(tiny_tokenizers.byte_level().to_str())
    tokenizer.add_tokens([AddedToken(part, special=False) for part in SCRIPT])
    return tokenizer


def text_beside(folder: Path) -> Path:
    """Write ``SCRIPT`` several times, beside a checkpoint."""
    text = folder.with_suffix(".txt")
    text.write_text("".join(SCRIPT * 4), "utf-8")
    return text


# -- the formulas -------------------------------------------------------------------------------


class Formulas:
    """A checkpoint's target and MTP layer, computed anew for each text."""

    def __init__(self, tensors: Mapping[str, Array], stated: Mapping[str, Any]) -> None:
        self._tensors, self._stated = tensors, stated

    def states(self, tokens: Sequence[int]) -> Array:
        """The streams behind the last layer, ``[n, hidden]``."""
        x = self._tensors["model.embed_tokens.weight"][list(tokens)]
        for layer in range(self._stated["num_hidden_layers"]):
            x = self._layer(f"model.layers.{layer}", x)
        return x

    def choices(self, tokens: Sequence[int]) -> list[int]:
        """The target's first choice behind each token."""
        return self._logits(self.states(tokens), "model.norm.weight").argmax(axis=1).tolist()

    def mtp(self, following: Sequence[int], states: Array) -> tuple[Array, Array]:
        """Logits, and the layer's own states, of pairs of a state and the token after it."""
        embedded = self._tensors["model.embed_tokens.weight"][list(following)]
        state = self._rms(states, f"{MTP}.hidden_layernorm.weight")
        token = self._rms(embedded, f"{MTP}.token_layernorm.weight")
        x = np.concatenate([state, token], axis=1) @ self._tensors[f"{MTP}.input_proj.weight"].T
        x = self._layer(MTP, x)
        return self._logits(x, f"{MTP}.final_layernorm.weight"), x

    def draft(self, tokens: Sequence[int], root: int, length: int) -> list[int]:
        """Tokens drafted below ``root``, which follows ``tokens``, by the largest logit."""
        following, states, drafted = [*tokens[1:], root], self.states(tokens), []
        for _ in range(length):
            logits, own = self.mtp(following, states)
            drafted.append(int(logits[-1].argmax()))
            # The next pair: the token just drafted, with the layer's own state in h's place.
            following, states = [*following, drafted[-1]], np.concatenate([states, own[-1:]])
        return drafted

    def _logits(self, x: Array, norm: str) -> Array:
        return self._rms(x, norm) @ self._tensors["lm_head.weight"].T

    def _rms(self, x: Array, name: str) -> Array:
        scale = np.sqrt((x * x).mean(axis=-1, keepdims=True) + self._stated["rms_norm_eps"])
        return x / scale * self._tensors[name]

    def _linear(self, name: str, x: Array) -> Array:
        bias = self._tensors.get(f"{name}.bias")
        y = x @ self._tensors[f"{name}.weight"].T
        return y if bias is None else y + bias

    def _layer(self, at: str, x: Array) -> Array:
        x = x + self._attention(f"{at}.self_attn", self._rms(x, f"{at}.input_layernorm.weight"))
        fed = self._rms(x, f"{at}.post_attention_layernorm.weight")
        gate = self._linear(f"{at}.mlp.gate_proj", fed)
        inner = gate / (1 + np.exp(-gate)) * self._linear(f"{at}.mlp.up_proj", fed)
        return x + self._linear(f"{at}.mlp.down_proj", inner)

    def _attention(self, at: str, x: Array) -> Array:
        n, size, heads = len(x), self._stated["head_dim"], self._stated["num_attention_heads"]
        q = self._turned(self._linear(f"{at}.q_proj", x).reshape(n, heads, size))
        k = self._turned(self._linear(f"{at}.k_proj", x).reshape(n, -1, size))
        v = self._linear(f"{at}.v_proj", x).reshape(n, -1, size)
        return self._linear(f"{at}.o_proj", self._mixed(q, k, v).reshape(n, -1))

    def _mixed(self, q: Array, k: Array, v: Array) -> Array:
        k, v = (np.repeat(each, q.shape[1] // each.shape[1], axis=1) for each in (k, v))
        scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(q.shape[-1])
        scores = np.where(np.tri(len(q), dtype=bool), scores, -np.inf)
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        return np.einsum("hij,jhd->ihd", shares, v)

    def _turned(self, x: Array) -> Array:
        return self._rotated(x, self._stated["rope_theta"])

    def _rotated(self, x: Array, theta: float) -> Array:
        size = x.shape[-1]
        angles = np.outer(np.arange(len(x)), theta ** (-np.arange(0, size, 2) / size))
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        left, right = np.split(x, 2, axis=-1)
        return np.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)
