"""Options of a graph, and its metadata."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from edgedec.export.facts import TOP_K, model_facts
from edgedec.export.quantize import WeightForm
from edgedec.export.tensors import FloatArray
from edgedec.models.decoder import DecoderSpec

# Graphs whose layers keep more than keys and values have the second; the third if they recur, or if
# their heads differ by layer.
GRAPH_VERSION, STATES_VERSION, LATEST_VERSION = 1, 2, 3
KV_TYPES = {"fp32": np.float32, "int8": np.int8}


@dataclass(frozen=True, slots=True)
class GraphOptions:
    """Options of a graph.

    Attributes:
        name: name of the model, for reports.
        eos_ids: tokens that end a text.
        weights: ``int4``, ``int8``, ``fp16`` or ``fp32``.
        kv: ``fp32`` or ``int8``.
        block_size: number of weights that share a scale.
        max_context: positions of the rotary tables; None is the model's own context.
        own_rows: attention takes its own list of rows, so that it can be padded separately.
        padding_asked: whoever exports it wants passes padded, whatever that costs.
        head_bits: bits of a quantised head, and of a tied embedding; None is those of ``weights``.
        raised: matrices of an int4 graph that are stored in int8.
        raised_block: as in ``WeightForm``.
        taps: layers before which the residual stream is an output, ascending; the number of layers
            stands for the stream after the last one.
        drafted: of a draft, the tokens that its head has rows for, ascending; empty for all.
        kv_scales: scales of keys and values by layer, ``[kv_heads, head_dim]``; for int8.

    """

    name: str
    eos_ids: tuple[int, ...] = ()
    weights: str = "int4"
    kv: str = "fp32"
    block_size: int = 32
    max_context: int | None = None
    own_rows: bool = False
    padding_asked: bool = True
    head_bits: int | None = None
    raised: frozenset[str] = field(default=frozenset(), repr=False)
    raised_block: int | None = None
    taps: tuple[int, ...] = ()
    drafted: tuple[int, ...] = field(default=(), repr=False)
    kv_scales: tuple[tuple[FloatArray, FloatArray], ...] = field(default=(), repr=False)

    @property
    def form(self) -> WeightForm:
        """The form of its weights."""
        return WeightForm(
            self.weights, self.block_size, self.head_bits, self.raised, self.raised_block
        )


def context(spec: DecoderSpec, options: GraphOptions) -> int:
    """Return the number of tokens that the graph has positions for."""
    return spec.within(options.max_context).max_context


def tap_name(spec: DecoderSpec, tap: int) -> str:
    """Return the name of the value that holds the residual stream before a layer."""
    if tap == spec.layers:
        return "states.last"
    return f"layers.{tap}.entry" if spec.residual == "sequential" else f"layers.{tap}.stream"


def metadata(spec: DecoderSpec, options: GraphOptions) -> dict[str, object]:
    """Return the facts for a runtime, as stored in the graph's metadata_props."""
    states = kept_rows(spec)
    version = STATES_VERSION if states else GRAPH_VERSION
    return {
        "graph_version": LATEST_VERSION if spec.recurs or spec.sizes else version,
        **model_facts(spec, options.name, options.eos_ids, options.weights, context(spec, options)),
        "windows": list(spec.windows) if any(spec.windows) else None,
        "kv": options.kv,
        **({"states": states, "kv_layers": len(spec.attending)} if states else {}),
        **(_varied(spec) if spec.sizes else {}),
        "block_size": options.block_size,
        **({} if options.padding_asked or not options.own_rows else {"padding": "where cheap"}),
        **({"taps": {tap_name(spec, tap): tap for tap in options.taps}} if options.taps else {}),
        **_drafted(len(options.drafted)),
    }


def _varied(spec: DecoderSpec) -> dict[str, object]:
    """Return each layer's heads, the layer whose keys it reads, and the sizes of the caches."""
    heads = [[own.kv_heads, own.head_dim] for own in spec.sizes]
    lenders = [spec.lender(layer) for layer in range(spec.layers)]
    kept = {"kv_layers": len(spec.caching), "kv_channels": spec.kv_channels}
    return {"varied": {"heads": heads, "lenders": lenders}, **kept}


def _drafted(count: int) -> dict[str, object]:
    return {"draft_vocab": count, "top_k": min(TOP_K, count)} if count else {}


def kept_rows(spec: DecoderSpec) -> dict[str, object] | None:
    """Return what a runtime keeps for layers without keys and values; None if there are none.

    Their numbers, in order; how many tokens before a pass they read; the width of a token's row;
    the shape of a layer's state, if it has one.
    """
    kinds = {layer: kind for layer, kind in enumerate(spec.mixers) if kind is not None}
    if not kinds:
        return None
    (kind,) = set(kinds.values())
    state = {"state": list(kind.state)} if kind.state else {}
    return {"layers": list(kinds), "rows": kind.kept, "width": kind.width(spec.hidden), **state}
