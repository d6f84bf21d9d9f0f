"""Emits a decoder as a CoreML program: its functions, and the weights that they share.

For each width ``n`` there are ``top_n``, whose outputs are the largest logits of each row and their
ids, and ``logits_n``, with all of them; ``read_m`` reads a chunk of a prompt and returns no logits.
If rows are written by slicing, ``move_m`` moves the tokens of a branch together.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgedec.coreml.builder import FunctionBuilder, Value, integers
from edgedec.coreml.package import SUFFIX
from edgedec.coreml.program import Function
from edgedec.coreml.types import Kind, TensorType
from edgedec.coreml.writer import PackageWriter
from edgedec.export.coreml.attention import Attention, Slicing, cache_state
from edgedec.export.coreml.options import (
    MOVED_ROWS,
    ProgramOptions,
    check_decoder,
    facts,
    read_rows,
    slots,
)
from edgedec.export.coreml.parts import HALF, ProgramParts
from edgedec.export.coreml.rounded import WeightStore
from edgedec.export.facts import TOP_K
from edgedec.export.flow import Flow
from edgedec.export.quantize import Rounding
from edgedec.export.static_shapes import HIDDEN
from edgedec.export.tensors import TensorReader
from edgedec.models.decoder import DecoderSpec

FOLDER = f"model{SUFFIX}"


def write_program(
    spec: DecoderSpec,
    tensors: TensorReader,
    folder: Path,
    options: ProgramOptions,
    rounding: Rounding | None = None,
) -> dict[str, float]:
    """Write ``model.mlpackage`` into ``folder``; quantise by ``rounding``.

    Args:
        spec: the decoder, with the context that the cache must hold.
        rounding: rounds int4 and int8; None rounds to nearest.

    Returns:
        The relative error of each quantised tensor.

    Raises:
        UnsupportedArchitecture: no such program computes this decoder.
        InputError: an option does not fit it.

    """
    check_decoder(spec, options)
    with PackageWriter(folder / FOLDER) as writer:
        store = WeightStore(
            writer.blob, tensors, options.weights, options.block_size, options.head_bits, rounding
        )
        emitter = Emitter(spec, tensors, store, options)
        for rows in options.rows:
            for head in ("logits", "top"):
                writer.add(emitter.forward(f"{head}_{rows}", rows, head))
        writer.add(emitter.forward(f"read_{read_rows(spec)}", read_rows(spec), ""))
        if options.form == "slice":
            writer.add(emitter.move(min(MOVED_ROWS, slots(spec))))
        line = f"{options.name}, a decoder for edgedec ({options.form} form, {options.weights})"
        writer.save("top_1", line, facts(spec, options))
    return store.errors


class Emitter:
    """Writes functions of one decoder."""

    def __init__(
        self,
        spec: DecoderSpec,
        tensors: TensorReader,
        store: WeightStore,
        options: ProgramOptions,
    ) -> None:
        self._spec, self._tensors, self._store, self._options = spec, tensors, store, options

    def forward(self, name: str, rows: int, head: str) -> Function:
        """Return a function that computes ``rows`` tokens.

        Args:
            head: ``logits``, ``top``, or empty for neither.

        """
        parts = self._parts(name)
        b, spec = parts.builder, self._spec
        ids = b.input("ids", Kind.INT32, rows)
        asked = not parts.blends or spec.position_rows
        positions = b.input("positions", Kind.INT32, rows) if asked else None
        x = self._embedded(parts, ids)
        branch = self._positioned(parts, positions)
        attention = Attention(parts, rows, positions)
        flow = Flow(parts, attention.layer)
        for layer in range(spec.layers):
            x, branch = flow.layer(layer, x, branch)
        if not head:
            total = TensorType(HALF, (1, spec.hidden))
            summed = parts.add("final.sum", x, branch) if branch else x
            b.output(*b.operation(
                "reduce_sum", total, name="done", x=summed, axes=integers(0),
                keep_dims=np.bool_(True),
            ))  # fmt: skip
            return b.built()
        normed, _ = parts.norm_of_sum("final", "final.sum", x, branch, "final_norm")
        self._head(parts, normed, head)
        return b.built()

    def _parts(self, name: str) -> ProgramParts:
        return ProgramParts(
            self._spec, self._tensors, self._store, self._options, FunctionBuilder(name)
        )

    def _embedded(self, parts: ProgramParts, ids: Value) -> Value:
        spec, store = self._spec, self._store
        name = spec.name("embed")
        # A tied head is rounded after the layers, so its table is stored with it.
        stored = store.head(name) if spec.tied else store.table(name)
        rows = parts.builder.gather(parts.weight(stored), ids)
        return rows if spec.scales.embed == 1 else parts.scaled("embedded", rows, spec.scales.embed)

    def _positioned(self, parts: ProgramParts, positions: Value | None) -> Value | None:
        """Return the rows of a learned table of positions, where there is one."""
        spec = self._spec
        if not spec.position_rows:
            return None
        assert positions is not None
        name = spec.name("positions")
        table = self._tensors.rows(name, 0, min(spec.position_rows, spec.max_context))
        stored = self._store.half(name, table)
        return parts.builder.gather(parts.weight(stored), positions)

    def _head(self, parts: ProgramParts, x: Value, head: str) -> None:
        """Emit all logits of ``[n, hidden]``, or the largest of each row."""
        spec, b = self._spec, parts.builder
        stored, cap = parts.weight(self._store.head(spec.name("head"))), spec.scales.logit_cap
        mask = None
        if spec.vocab_used < spec.vocab_size:
            padding = np.zeros(spec.vocab_size, np.float32)
            padding[spec.vocab_used :] = HIDDEN
            mask = parts.weight(self._store.half("padding", padding))
        if not cap:
            logits = b.linear(x, stored, mask, "logits")
        else:  # the mask must follow the cap, which would make it finite
            free = parts.capped(b.linear(x, stored), cap)
            logits = parts.same("logits", free) if mask is None else parts.add("logits", free, mask)
        if head == "logits":
            b.output(logits)
            return
        k = min(TOP_K, spec.vocab_size)
        shape = (x.shape[0], k)
        b.output(*b.operation(
            "topk", TensorType(HALF, shape), TensorType(Kind.INT32, shape), name="top",
            x=logits, k=np.int32(k), axis=np.int32(1), ascending=np.bool_(False),
            sort=np.bool_(True), return_indices=np.bool_(True), output_indices_dtype="int32",
        ))  # fmt: skip

    def move(self, rows: int) -> Function:
        """Return a function that copies the tokens at ``source`` to ``begin`` and following."""
        parts = self._parts(f"move_{rows}")
        b, spec = parts.builder, self._spec
        source = b.input("source", Kind.INT32, rows)
        writes = Slicing(parts, rows)
        state = cache_state(parts)
        cache = b.read(state)
        moved = b.gather(cache, source, 2)
        b.write(state, writes.update(cache, (0, 0), (2 * spec.layers, spec.kv_heads), moved))
        b.output(b.operation("identity", source.type, name="done", x=source)[0])
        return b.built()
