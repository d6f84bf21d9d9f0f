"""Gemma 4's assistants (E2B, E4B, 12B): layers of queries that read the target's keys and values.

Of a token, and the target's state ``h`` of the token before it, after the final norm:

    x = pre_projection . concat(embed(token), h)        with the target's scaled embedding
    x = a Gemma 4 layer(x)                              for each layer, with queries alone
    y = rms(x; norm)
    logits = embed_tokens . y                           with the assistant's own embedding
    h' = post_projection . y                            takes h's place at the next token

A layer reads the keys and values of the target's last layer of its kind that has its own, of all
tokens before the root; queries of a whole draft are at the root's position. With ordered embeddings
``y`` is compared with centroids, and only the tokens of the best clusters are scored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from edgedec.errors import CheckpointError
from edgedec.models import gemma4_text
from edgedec.models.config import Config, text_config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.heads.head import CENTROIDS, ENTRY, EXIT, HeadSpec, Wiring
from edgedec.models.sources import TensorSource

INSIDE = False
_KINDS = ("gemma4_assistant", "gemma4_unified_assistant")
_FOREIGN = "expected a head that was made for this target"


def matches(config: Mapping[str, Any]) -> bool:
    """Return whether this config.json describes such a head."""
    return config.get("model_type") in _KINDS


def spec(config: Mapping[str, Any], target: DecoderSpec) -> HeadSpec:
    """Return the head that this config.json describes, for a target."""
    c, text = Config(config), text_config(config)
    width = c.positive("backbone_hidden_size")
    if width != target.hidden:
        raise CheckpointError(
            f"the head reads states of {width} channels, the target has {target.hidden}: {_FOREIGN}"
        )
    alone = {"num_kv_shared_layers": 0, "attention_k_eq_v": False}
    layer = gemma4_text.spec({"hidden_size_per_layer_input": 0, **text, **alone})
    if layer.vocab_size != target.vocab_size:
        raise CheckpointError(
            f"the head drafts {layer.vocab_size} tokens, the target has {target.vocab_size}:"
            f" {_FOREIGN}"
        )
    borrows = tuple(_lender(layer, at, target) for at in range(layer.layers))
    sizes = tuple(dataclasses.replace(own, shares=-1) for own in layer.sizes)
    layer = dataclasses.replace(layer, sizes=sizes)
    return HeadSpec(
        kind="gemma4_assistant",
        taps=(target.layers,),
        layer=layer,
        target_vocab=target.vocab_size,
        carry="normed",
        join="product",
        fused=False,
        target_norm=True,
        borrows=borrows,
        width=width,
        routes=_routes(c, layer.vocab_size),
        stored=_stored(layer),
    )


def neighbours(spec: HeadSpec, layers: int) -> Iterator[Wiring]:
    """Yield nothing: no two tools write an assistant's configuration in different ways."""
    yield from ()


def _lender(layer: DecoderSpec, at: int, target: DecoderSpec) -> int:
    """Return the target's layer whose keys and values a layer reads."""
    own = [one for one in target.attending if target.lender(one) == one]
    found = [one for one in own if bool(target.windows[one]) == bool(layer.windows[at])]
    if not found or target.windows[found[-1]] != layer.windows[at]:
        raise CheckpointError(
            f"the head's layer {at} reads {layer.windows[at] or 'all'} tokens, which no layer of"
            f" the target keeps: {_FOREIGN}"
        )
    read, keys = layer.at(at).head_dim, target.at(found[-1])
    if keys.head_dim != read or layer.heads % keys.kv_heads:
        raise CheckpointError(
            f"the head's layer {at} has {layer.heads} heads of {read} channels, the target's keys"
            f" {keys.kv_heads} of {keys.head_dim}: {_FOREIGN}"
        )
    return found[-1]


def _routes(c: Config, vocab: int) -> tuple[int, int] | None:
    if not c.flag("use_ordered_embeddings"):
        return None
    count, used = c.positive("num_centroids", 2048), c.positive("centroid_intermediate_top_k", 32)
    if vocab % count or used > count:
        raise CheckpointError(
            f"config.json: {used} of {count} clusters of {vocab} tokens: expected clusters of one"
            " size, and at most all of them"
        )
    return count, used


def _stored(layer: DecoderSpec) -> dict[str, tuple[TensorSource, ...]]:
    found: dict[str, tuple[TensorSource, ...]] = {
        name: (source,) for name, source in layer.origins().items()
    }
    return found | {
        ENTRY: (TensorSource("pre_projection.weight"),),
        EXIT: (TensorSource("post_projection.weight"),),
        CENTROIDS: (TensorSource("masked_embedding.centroids.weight"),),
    }
