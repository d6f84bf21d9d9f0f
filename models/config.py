"""Reads a Hugging Face config.json: checks sizes and refuses unsupported features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgedec._support.fields import shown
from edgedec.errors import CheckpointError, UnsupportedArchitecture
from edgedec.models.decoder import DecoderSpec
from edgedec.models.mixers import MOST_TAPS
from edgedec.models.rope import Rope, read_rope
from edgedec.models.traits import Activation, Experts, Norm

_REQUIRED = object()
# Beyond any known decoder; refused before such sizes are multiplied.
_LARGEST = 2**31 - 1
# Of what has tensors of its own, whose names are listed.
_COUNTED = ("num_hidden_layers", "num_attention_heads", "num_experts", "num_local_experts")
_MOST = 10_000
# What a file may state for the whole model, beside what describes its text decoder.
_OF_ALL = ("tie_word_embeddings", "quantization_config")
_ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}


class Config:
    """The fields of a config.json, checked as they are read.

    Raises:
        CheckpointError: a field is missing or is not a size.
        UnsupportedArchitecture: the file needs operations that edgedec does not implement.

    """

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw = raw
        self.refuse("quantization_config", "its weights are quantised already: give the original")

    def count(self, name: str, default: int | object = _REQUIRED) -> int:
        """Return a size. A missing or null field is ``default`` if there is one."""
        value = self.raw.get(name)
        if value is None:
            value = default
        if value is _REQUIRED:
            raise CheckpointError(f"config.json has no {name}")
        largest = _MOST if name in _COUNTED else _LARGEST
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= largest:
            raise _wrong(name, value, f"a size of at most {largest}")
        return value

    def taps(self, name: str, default: int) -> int:
        """Return how many tokens a convolution reads."""
        found = self.count(name, default)
        if not 2 <= found <= MOST_TAPS:
            raise _wrong(name, found, f"2 to {MOST_TAPS}")
        return found

    def window(self, default: int = 0) -> int:
        """Return the tokens that a layer with a window sees; null is no window."""
        return Config({"sliding_window": default, **self.raw}).count("sliding_window", 0)

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a boolean."""
        value = self.raw.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise _wrong(name, value, "true or false")
        return value

    def positive(self, name: str, default: int | object = _REQUIRED) -> int:
        """Return a size above 0."""
        value = self.count(name, default)
        if value == 0:
            raise CheckpointError(f"config.json: {name} is 0")
        return value

    def factor(self, name: str, default: float) -> float:
        """Return a number above 0; ``default``, which may be 0.0, is returned if there is none."""
        value = self.raw.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
            raise _wrong(name, value, "a number > 0")
        return float(value)

    def norm(self, epsilon: str = "rms_norm_eps", default: float = 1e-6, **traits: Any) -> Norm:
        """Return the norms; ``epsilon`` names the field with their epsilon."""
        value = self.raw.get(epsilon, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
            raise _wrong(epsilon, value, "a small > 0")
        return Norm(float(value), **traits)

    def refuse(self, name: str, why: str = "edgedec does not support that") -> None:
        """Refuse a field that is set."""
        value = self.raw.get(name)
        if value:
            raise UnsupportedArchitecture(f"config.json: {name} is {shown(value)}, and {why}")

    def kinds(
        self,
        default: Sequence[bool] | None,
        known: tuple[str, str] = ("full_attention", "sliding_attention"),
    ) -> Sequence[bool]:
        """Return whether each layer is of the second kind; ``default`` if that is not stated."""
        kinds = self.raw.get("layer_types")
        if kinds is None and default is not None:
            return default
        if not isinstance(kinds, list) or any(kind not in known for kind in kinds):
            raise UnsupportedArchitecture(
                f"config.json: layer_types is {shown(kinds)}, expected {' and '.join(known)} only"
            )
        return [kind == known[1] for kind in kinds]

    def every(self, name: str, default: int) -> int:
        """Return after how many layers one is of the other kind: a number, or letters ("LLLG")."""
        value = self.raw.get(name)
        return len(value) if isinstance(value, str) and value else self.positive(name, default)

    def activation(self, field: str = "hidden_act") -> Activation:
        """Return the activation a field names; SiLU if it is not given."""
        name = self.raw.get(field) or "silu"
        if not isinstance(name, str) or name not in _ACTIVATIONS:
            known = ", ".join(sorted(_ACTIVATIONS))
            raise UnsupportedArchitecture(f"activation {shown(name)}: expected one of {known}")
        return _ACTIVATIONS[name]

    def rotary_dim(self, default: float, field: str = "partial_rotary_factor") -> int:
        """Return the rotated channels of a head, from the field with their share."""
        # Transformers 5 keeps it among the numbers of the rope.
        rope = self.raw.get("rope_parameters")
        inner = (
            Config(rope).factor("partial_rotary_factor", 0.0) if isinstance(rope, Mapping) else 0
        )
        share = inner or self.factor(field, default)
        if share > 1:
            raise _wrong(field, share, "at most 1")
        return int(self._head_dim() * share)

    def experts(self) -> Experts:
        """Return the mixture of experts that every layer has."""
        count, used = self.positive("num_experts"), self.positive("num_experts_per_tok")
        if used > count:
            raise CheckpointError(f"config.json: a token uses {used} experts of {count}")
        return Experts(count, used, self.flag("norm_topk_prob"))

    def _head_dim(self) -> int:
        heads = self.positive("num_attention_heads")
        return self.positive("head_dim", max(self.positive("hidden_size") // heads, 1))

    def _max_context(self, ropes: Sequence[Rope | None]) -> int:
        """Return the tokens of the longest text, by the scaling that all rotating layers have."""
        stated, kinds = self.positive("max_position_embeddings"), [rope for rope in ropes if rope]
        alike = bool(kinds) and all(rope == kinds[0] for rope in kinds)
        return kinds[0].longest_text(stated) if alike else stated

    def decoder(self, *, windows: tuple[int, ...] = (), **traits: Any) -> DecoderSpec:
        """Return a spec from the fields that all these architectures share, and their traits.

        What is not among ``traits`` is Llama's: RMS norms before attention and MLP, SiLU,
        heads that turn as a whole.
        """
        hidden, heads = self.positive("hidden_size"), self.positive("num_attention_heads")
        layers, vocab_size = self.positive("num_hidden_layers"), self.positive("vocab_size")
        if "rotary_dim" not in traits:
            if self.rotary_dim(1.0) != self._head_dim():
                raise UnsupportedArchitecture(
                    "config.json: partial_rotary_factor is not 1, which edgedec does not"
                    " support for this architecture"
                )
            traits["rotary_dim"] = self._head_dim()
        if "ropes" not in traits:
            traits["ropes"] = (read_rope(self.raw, 10_000.0, traits["rotary_dim"]),) * layers
        if "norm" not in traits:
            traits["norm"] = self.norm()
        if "activation" not in traits:
            traits["activation"] = self.activation()
        spec = DecoderSpec(
            architecture=str(self.raw.get("model_type")),
            hidden=hidden,
            ffn=self.positive("intermediate_size"),
            layers=layers,
            heads=heads,
            kv_heads=self.positive("num_key_value_heads", heads),
            head_dim=self._head_dim(),
            vocab_size=vocab_size,
            vocab_used=self.positive("edgedec_vocab_used", vocab_size),
            max_context=self._max_context(traits["ropes"]),
            windows=windows or (0,) * layers,
            tied=self.flag("tie_word_embeddings"),
            **traits,
        )
        check(spec)
        return spec


def text_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what describes the text decoder of a model with images, with the model's type."""
    kind, text = config.get("model_type"), config.get("text_config")
    if not isinstance(text, Mapping):
        raise CheckpointError(f"config.json has no text_config, which {kind} needs")
    of_all = {name: config[name] for name in _OF_ALL if config.get(name) is not None}
    return {**of_all, **text, "model_type": kind}


def _wrong(name: str, value: object, expected: str) -> CheckpointError:
    return CheckpointError(f"config.json: {name} is {shown(value)}, expected {expected}")


def check(spec: DecoderSpec) -> None:
    """Refuse sizes that do not fit one another."""
    if spec.heads % spec.kv_heads:
        raise CheckpointError(
            f"config.json: {spec.heads} query heads cannot share {spec.kv_heads} key heads"
        )
    if spec.head_dim % 2:
        raise CheckpointError(f"config.json: head_dim {spec.head_dim} is odd")
    if any(spec.ropes) and (spec.rotary_dim % 2 or spec.rotary_dim < 2):
        raise CheckpointError(
            f"config.json: {spec.rotary_dim} channels of a head cannot be rotated"
        )
    for name, found in (
        ("layer_types", spec.mixers or spec.windows),
        ("layers of windows", spec.windows),
        ("layers of positions", spec.ropes),
    ):
        if len(found) != spec.layers:
            raise CheckpointError(f"config.json: {len(found)} {name} for {spec.layers} layers")
    if spec.mixers and not spec.attending:
        raise CheckpointError("config.json: no layer attends, and edgedec needs one that does")
    if not 0 < spec.vocab_used <= spec.vocab_size:
        raise CheckpointError(
            f"config.json: edgedec_vocab_used {spec.vocab_used} of {spec.vocab_size} tokens"
        )
