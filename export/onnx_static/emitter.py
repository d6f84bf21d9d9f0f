"""Emits the whole decoder, once for each width."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgedec.errors import InputError, UnsupportedArchitecture
from edgedec.export import static_shapes
from edgedec.export.facts import TOP_K
from edgedec.export.flow import Flow
from edgedec.export.graph import DataFile, GraphWriter
from edgedec.export.onnx.options import GraphOptions
from edgedec.export.onnx_static.activations import IntegerActivations
from edgedec.export.onnx_static.attention import Attention
from edgedec.export.onnx_static.parts import StaticParts
from edgedec.export.onnx_static.weights import FORMAT, products
from edgedec.export.options import ROWS
from edgedec.export.quantize import Rounding
from edgedec.export.ranges import Ranges
from edgedec.export.static_shapes import HIDDEN
from edgedec.export.tensors import TensorReader
from edgedec.export.weights import Format
from edgedec.models.decoder import DecoderSpec

GRAPH_VERSION = 1
STYLE = "static"
GRAPH, READER, DATA = "static-{}.onnx", "static-read-{}.onnx", "static.data"


@dataclass(frozen=True, slots=True)
class StaticOptions(GraphOptions):
    """Options of graphs of static shape.

    Attributes:
        rows: widths of passes, ascending from 1.
        activations: ``int8`` or ``int16``, of products with int8 weights; None computes in fp32.

    """

    rows: tuple[int, ...] = ROWS
    activations: str | None = None


def write_graphs(
    spec: DecoderSpec,
    tensors: TensorReader,
    folder: Path,
    options: StaticOptions,
    rounding: Rounding | None = None,
    ranges: Ranges | None = None,
) -> dict[str, float]:
    """Write the graphs and their data into ``folder``; quantise by ``rounding``.

    Args:
        spec: the decoder, with the context that the cache must hold.
        rounding: rounds int4 and int8; None rounds to nearest.
        ranges: ranges of products, for integer activations.

    Returns:
        The relative error of each quantised tensor.

    Raises:
        UnsupportedArchitecture: no such graph computes this decoder.
        InputError: a width is beyond the context.

    """
    check_decoder(spec, options)
    errors: dict[str, float] = {}
    metadata = {"edgedec": json.dumps(facts(spec, options))}
    read = min(static_shapes.READ_ROWS, spec.max_context)
    widths = [(GRAPH, rows, True) for rows in options.rows]
    with DataFile(folder / DATA) as data:
        for name, rows, head in [*widths, (READER, read, False)]:
            with GraphWriter(folder, name.format(rows), data) as graph:
                store: Format = (
                    IntegerActivations(graph, tensors, errors, ranges)
                    if ranges
                    else products(options.form, graph, tensors, errors, rounding)
                )
                parts = StaticParts(spec, tensors, graph, store, options, rows, spec.max_context)
                emit(parts, head=head)
                graph.save(metadata)
    return errors


def check_decoder(spec: DecoderSpec, options: StaticOptions) -> None:
    """Refuse a decoder that no such graph computes, and a width beyond its context."""
    if spec.experts is not None:
        raise UnsupportedArchitecture(
            f"{options.name} ({spec.architecture}) is a mixture of experts, which graphs of fixed"
            " shape do not support: leave --static-rows out"
        )
    if options.rows[-1] > spec.max_context:
        raise InputError(
            f"--static-rows up to {options.rows[-1]}: expected at most the context of"
            f" {spec.max_context}"
        )


def facts(spec: DecoderSpec, options: StaticOptions) -> dict[str, object]:
    """Return the facts for a runtime, as stored in every graph's metadata."""
    shared = static_shapes.facts(
        spec, options.name, options.eos_ids, options.weights, options.rows, spec.max_context
    )
    activations = {"activations": options.activations} if options.activations else {}
    return {"graph_version": GRAPH_VERSION, "style": STYLE, **shared, **activations}


def files(spec: DecoderSpec, options: StaticOptions) -> tuple[str, ...]:
    """Return the names of the files that ``write_graphs`` writes, the main one first."""
    read = min(static_shapes.READ_ROWS, spec.max_context)
    return (*(GRAPH.format(rows) for rows in options.rows), READER.format(read), DATA)


def emit(parts: StaticParts, *, head: bool) -> None:
    """Write a decoder into a graph, with or without its head."""
    g, spec = parts.graph, parts.spec
    ids = g.input("ids", np.int32, (parts.rows,))
    x: str = _embedded(parts, ids)
    branch: str | None = None
    if spec.position_rows:
        branch = _positioned(parts, g.input("positions", np.int32, (parts.rows,)))
    flow = Flow[str](parts, Attention(parts).layer)
    for layer in range(spec.layers):
        x, branch = flow.layer(layer, x, branch)
    if head:
        normed, _ = parts.norm_of_sum("final", "final.sum", x, branch, "final_norm")
        _head(parts, normed)


def _embedded(parts: StaticParts, ids: str) -> str:
    spec = parts.spec
    scaled = spec.scales.embed != 1
    out = "embedded.rows" if scaled else "embedded"
    rows = parts.store.embed(ids, out, spec.name("embed"), spec.tied)
    return parts.scaled("embedded", rows, spec.scales.embed) if scaled else rows


def _positioned(parts: StaticParts, positions: str) -> str:
    """Return the rows of a learned table of positions."""
    spec, name = parts.spec, parts.spec.name("positions")
    table = parts.tensors.rows(name, 0, min(spec.position_rows, spec.max_context))
    stored = parts.graph.constant(name, table)
    return parts.graph.node("Gather", [stored, positions], "positioned")


def _head(parts: StaticParts, x: str) -> None:
    """Emit the logits of ``[n, hidden]``, and the largest of each row."""
    g, spec, cap = parts.graph, parts.spec, parts.spec.scales.logit_cap
    mask = None
    if spec.vocab_used < spec.vocab_size:
        padding = np.zeros(spec.vocab_size, np.float32)
        padding[spec.vocab_used :] = HIDDEN
        mask = g.constant("padding", padding)
    table = spec.name("head")
    if not cap:
        logits = parts.store.head(x, "logits", table, mask)
    else:  # the mask must follow the cap, which would make it finite
        free = parts.store.head(x, "logits.free", table, None)
        logits = parts.capped("logits.capped" if mask else "logits", free, cap)
        logits = parts.add("logits", logits, mask) if mask else logits
    k = min(TOP_K, spec.vocab_size)
    count = g.constant("top_k", np.array([k], np.int64))
    g.nodes("TopK", [logits, count], ["top_logits", "top_ids"], axis=-1, largest=1, sorted=1)
    g.output("logits", np.float32, (parts.rows, spec.vocab_size))
    g.output("top_logits", np.float32, (parts.rows, k))
    g.output("top_ids", np.int64, (parts.rows, k))


__all__ = ["DATA", "FORMAT", "GRAPH", "READER", "StaticOptions", "files", "write_graphs"]
