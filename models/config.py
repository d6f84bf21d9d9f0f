"""Reads a Hugging Face config.json: sizes are checked, what is not computed is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgedec.errors import CheckpointError, UnsupportedArchitecture
from edgedec.models.decoder import DecoderSpec
from edgedec.models.rope import read_rope

_REQUIRED = object()
# Beyond any decoder in sight; a config.json that says more is not to be multiplied out.
_LARGEST = 2**31 - 1


class Config:
    """The fields of a config.json, read with a check.

    Raises:
        CheckpointError: a field is missing or is no size.
        UnsupportedArchitecture: the file asks for arithmetic that is not written here.

    """

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw = raw

    def count(self, name: str, default: int | object = _REQUIRED) -> int:
        """A size. A missing or null field is ``default`` where there is one."""
        value = self.raw.get(name)
        if value is None:
            value = default
        if value is _REQUIRED:
            raise CheckpointError(f"config.json has no {name}")
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
            raise CheckpointError(f"config.json: {name} is {value!r}, expected a size")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """A yes or no."""
        value = self.raw.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise CheckpointError(f"config.json: {name} is {value!r}, expected true or false")
        return value

    def positive(self, name: str, default: int | object = _REQUIRED) -> int:
        """A size that cannot be 0."""
        value = self.count(name, default)
        if value == 0:
            raise CheckpointError(f"config.json: {name} is 0")
        return value

    def epsilon(self) -> float:
        """``rms_norm_eps``, 1e-6 where it is not given."""
        value = self.raw.get("rms_norm_eps", 1e-6)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
            raise CheckpointError(f"config.json: rms_norm_eps is {value!r}, expected a small > 0")
        return float(value)

    def decoder(self, *, windows: tuple[int, ...] = (), **traits: Any) -> DecoderSpec:
        """A spec from the fields that all these architectures share, and their traits."""
        activation = self.raw.get("hidden_act", "silu")
        if activation != "silu":
            raise UnsupportedArchitecture(f"activation {activation!r} is not known, only silu is")
        hidden, heads = self.positive("hidden_size"), self.positive("num_attention_heads")
        layers, vocab_size = self.positive("num_hidden_layers"), self.positive("vocab_size")
        windows = windows or (0,) * layers
        spec = DecoderSpec(
            architecture=str(self.raw.get("model_type")),
            hidden=hidden,
            ffn=self.positive("intermediate_size"),
            layers=layers,
            heads=heads,
            kv_heads=self.positive("num_key_value_heads", heads),
            head_dim=self.positive("head_dim", max(hidden // heads, 1)),
            vocab_size=vocab_size,
            vocab_used=self.positive("edgedec_vocab_used", vocab_size),
            max_context=self.positive("max_position_embeddings"),
            norm_epsilon=self.epsilon(),
            rope=read_rope(self.raw, 10_000.0),
            windows=windows,
            tied=self.flag("tie_word_embeddings"),
            **traits,
        )
        _check(spec)
        return spec


def _check(spec: DecoderSpec) -> None:
    if spec.heads % spec.kv_heads:
        raise CheckpointError(
            f"config.json: {spec.heads} query heads cannot share {spec.kv_heads} key heads"
        )
    if spec.head_dim % 2:
        raise CheckpointError(f"config.json: head_dim {spec.head_dim} is odd")
    if len(spec.windows) != spec.layers:
        raise CheckpointError(
            f"config.json: {len(spec.windows)} layer_types for {spec.layers} layers"
        )
    if not 0 < spec.vocab_used <= spec.vocab_size:
        raise CheckpointError(
            f"config.json: edgedec_vocab_used {spec.vocab_used} of {spec.vocab_size} tokens"
        )
