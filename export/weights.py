"""Storage and products of weights: a class for plain and one for quantised formats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from edgedec.errors import InputError
from edgedec.export.graph import GraphWriter
from edgedec.export.quantize import FORMATS, Blocks, ByteArray, PlainRounding, Rounding, WeightForm
from edgedec.export.slices import check_runtime
from edgedec.export.tensors import (
    FloatArray,
    InterleavedTensors,
    TensorReader,
    blocks_of,
    chunks,
    read,
)
from edgedec.models.traits import Experts


def joined(
    tensors: TensorReader, out: str, weights: Sequence[str]
) -> list[tuple[str, TensorReader]]:
    """Return the kernel's two matrices of a mixture: gate and up interleaved, and down."""
    gate, up, down = weights
    return [(f"{out}.gate_up", InterleavedTensors(tensors, gate, up)), (down, tensors)]


def interleaved(parts: Sequence[Blocks]) -> Iterator[Blocks]:
    """Interleave the rows of two matrices: ``parts`` are those of one, then of the other."""
    half = len(parts) // 2
    for first, second in zip(parts[:half], parts[half:], strict=True):
        packed = np.stack((first.packed, second.packed), axis=1)
        scales = np.stack((first.scales, second.scales), axis=1)
        yield Blocks(
            packed.reshape(-1, *first.packed.shape[1:]),
            scales.reshape(-1, first.scales.shape[1]),
            first.squared_error + second.squared_error,
            first.squared_weight + second.squared_weight,
        )


def stacked(shape: Sequence[int], kind: Experts) -> tuple[int, int, int]:
    """Return ``[experts, rows, columns]`` from the shape of experts stacked by rows."""
    return kind.count, shape[0] // kind.count, shape[1]


def kernel_form(kind: Experts, renormalised: bool = True) -> dict[str, str | int | float]:
    """Return attributes of the kernels: swiglu with alpha 1 and beta 0 is ``silu(gate) * up``."""
    return {
        "k": kind.used,
        "normalize_routing_weights": int(renormalised),
        "activation_type": "swiglu",
        "swiglu_fusion": 1,
        "activation_alpha": 1.0,
        "activation_beta": 0.0,
    }


MICROSOFT = "com.microsoft::"
# Of onnxruntime's minor versions: since then QMoE takes activations in int8, several times faster.
_EXPERTS_SINCE = 31
_LAST = np.array([-1], np.int64)


class Format(Protocol):
    """Emits the products of a decoder. ``errors`` has the relative error of each tensor."""

    errors: dict[str, float]

    def linear(self, x: str, out: str, weights: Sequence[str], biases: Sequence[str]) -> str:
        """Emit ``x @ concatenate(weights).T + concatenate(biases)`` on ``[1, n, in]``."""
        ...

    def embed(self, ids: str, out: str, table: str, shared: bool) -> str:
        """Emit the lookup of the table's rows: ``[1, n]`` ids to ``[1, n, hidden]`` float32.

        ``shared``: the head will multiply by this very table, so it is stored once.
        """
        ...

    def head(self, x: str, out: str, table: str, mask: str | None) -> str:
        """Emit ``[r, hidden]`` to ``[r, vocab]``, plus ``mask`` ``[vocab]`` if there is one."""
        ...

    def mixture(self, x: str, logits: str, out: str, weights: Sequence[str], kind: Experts) -> str:
        """Emit the mixture of experts for each row of ``[1, n, hidden]``.

        ``logits`` ``[n, count]`` are the router's; ``weights`` name gate, up and down, the
        matrices of all experts one under the other.
        """
        ...


class Plain:
    """fp32, or fp16 as a storage format.

    ONNX Runtime's CPU kernels compute in float32. An fp16 matrix is stored as such and cast;
    the cast is folded when the model is loaded: half the file, the same memory as fp32. Only
    the embedding stays fp16 in memory: its rows are cast after they are looked up.
    """

    def __init__(self, graph: GraphWriter, tensors: TensorReader, half: bool) -> None:
        self.errors: dict[str, float] = {}
        self._graph, self._tensors = graph, tensors
        self._half = half

    def linear(self, x: str, out: str, weights: Sequence[str], biases: Sequence[str]) -> str:
        g = self._graph
        stored = self._table(f"{out}.weight", weights)
        product = f"{out}.product" if biases else out
        # Weights stay [out, in], as checkpoints have them; they are packed at loading anyway.
        g.node(MICROSOFT + "FusedMatMul", [x, self._whole(stored)], product, transB=1)
        if not biases:
            return out
        return g.node("Add", [product, _joined(g, self._tensors, out, biases)], out)

    def embed(self, ids: str, out: str, table: str, shared: bool) -> str:
        stored = self._table(table, [table])
        if not self._half:
            return self._graph.node("Gather", [stored, ids], out, axis=0)
        rows = self._graph.node("Gather", [stored, ids], f"{out}.half", axis=0)
        return self._graph.node("Cast", [rows], out, to=1)

    def head(self, x: str, out: str, table: str, mask: str | None) -> str:
        # Gemm reads [out, in] as it is: a tied embedding is stored once.
        inputs = [x, self._whole(self._table(table, [table]))] + ([mask] if mask else [])
        return self._graph.node("Gemm", inputs, out, transB=1)

    def mixture(self, x: str, logits: str, out: str, weights: Sequence[str], kind: Experts) -> str:
        g, inputs = self._graph, []
        for stored, tensors in joined(self._tensors, out, weights):
            self._table(stored, [stored], tensors)
            stack = g.alias(f"{stored}.stack", stored, stacked(tensors.shape(stored), kind))
            inputs.append(self._whole(stack))
        inputs = [x, logits, inputs[0], "", inputs[1]]
        if kind.renormalised:
            return g.node(MICROSOFT + "MoE", inputs, out, **kernel_form(kind))
        # onnxruntime 1.31 returns zeros if it writes over its input and does not renormalise. So
        # it renormalises, and the product undoes that.
        mean = g.node(MICROSOFT + "MoE", inputs, f"{out}.mean", **kernel_form(kind))
        shares = g.node("Softmax", [logits], f"{out}.shares", axis=-1)
        count = g.constant(f"experts.{kind.used}", np.array([kind.used], np.int64))
        largest, _ = g.nodes("TopK", [shares, count], [f"{out}.largest", f"{out}.chosen"])
        total = g.node("ReduceSum", [largest, g.constant("last", _LAST)], f"{out}.total")
        return g.node("Mul", [mean, total], out)

    def _table(self, stored: str, names: Sequence[str], tensors: TensorReader | None = None) -> str:
        """Write tensors, one under the other, unless that was done; ``[rows, in]``."""
        if stored in self._graph:
            return stored
        tensors = tensors or self._tensors
        parts, shape = chunks(tensors, names), _stacked(tensors, names)
        if not self._half:
            return self._graph.stream(stored, np.float32, shape, parts)
        halves = (halved(names[0], part) for part in parts)
        return self._graph.stream(stored, np.float16, shape, halves)

    def _whole(self, stored: str) -> str:
        if not self._half:
            return stored
        whole = f"{stored}.float32"
        if whole not in self._graph:
            self._graph.node("Cast", [stored], whole, to=1)
        return whole


class _Stored(NamedTuple):
    """A quantised matrix in the graph: of so many bits, in blocks of so many weights."""

    name: str
    rows: int
    columns: int
    bits: int
    block: int


class Quantized:
    """int4 or int8 in blocks along the input channels, through MatMulNBits.

    The embedding is looked up in the head's own bytes where the two are tied, else in int8.
    """

    def __init__(
        self,
        graph: GraphWriter,
        tensors: TensorReader,
        form: WeightForm,
        rounding: Rounding,
    ) -> None:
        self.errors: dict[str, float] = {}
        self._graph, self._tensors, self._rounding = graph, tensors, rounding
        self._form = form
        self._head_bits = form.head_bits or form.bits

    def linear(self, x: str, out: str, weights: Sequence[str], biases: Sequence[str]) -> str:
        runs = [list(run) for _, run in groupby(weights, self._form.bits_of)]
        if len(runs) == 1:
            return self._stacked(x, out, weights, biases)
        # One kernel multiplies weights of one number of bits.
        parts, biases = [], list(biases)
        for number, run in enumerate(runs):
            own, biases = biases[: len(run)], biases[len(run) :]
            parts.append(self._stacked(x, f"{out}.part.{number}", run, own))
        return self._graph.node("Concat", parts, out, axis=-1)

    def _stacked(self, x: str, out: str, weights: Sequence[str], biases: Sequence[str]) -> str:
        bias = _joined(self._graph, self._tensors, out, biases) if biases else ""
        stored = weights[0] if len(weights) == 1 else f"{out}.weight"
        done = self._store(stored, weights, self._form.bits_of(weights[0]))
        return self._multiplied(x, out, done, bias)

    def head(self, x: str, out: str, table: str, mask: str | None) -> str:
        done = self._store(table, [table], self._head_bits, head=True)
        return self._multiplied(x, out, done, mask or "")

    def embed(self, ids: str, out: str, table: str, shared: bool) -> str:
        g = self._graph
        rows, hidden = self._tensors.shape(table)
        bits, stored = (self._head_bits, table) if shared else (8, "embedding")
        if hidden % self._block_of([table], bits):
            # Blocks padded at the end of each row: the lookup has no way to leave them out.
            half = g.stream(
                f"{table}.half", np.float16, (rows, hidden), chunks(self._tensors, [table])
            )
            return g.node("Cast", [g.node("Gather", [half, ids], f"{out}.half")], out, to=1)
        done = self._store(stored, [table], bits)
        flat = g.alias(f"{stored}.rows", f"{stored}.packed", (rows, hidden * bits // 8))
        return g.node(
            MICROSOFT + "GatherBlockQuantized",
            [flat, ids, f"{stored}.scales"],
            out,
            bits=bits,
            block_size=done.block,
            gather_axis=0,
            quantize_axis=1,
        )

    def mixture(self, x: str, logits: str, out: str, weights: Sequence[str], kind: Experts) -> str:
        check_runtime("quantised experts need", _EXPERTS_SINCE, "--weights fp16")
        g, inputs = self._graph, []
        gate, up, down = weights
        bits, block = self._form.bits_of(down), self._form.block_size
        for stored, parts in ((f"{out}.gate_up", (gate, up)), (down, (down,))):
            rows, columns = _stacked(self._tensors, parts)
            if columns % block:
                raise InputError(
                    f"experts of {columns} channels cannot be cut into blocks of {block}:"
                    f" try --block-size {max(columns & -columns, 16)}, or --weights fp16"
                )
            self._store(stored, parts, bits, block=block, mixed=len(parts) > 1)
            packed = stacked((rows, columns * bits // 8), kind)
            scales = stacked((rows, columns // block), kind)
            inputs += [
                g.alias(f"{stored}.packed.stack", f"{stored}.packed", packed),
                g.alias(f"{stored}.scales.stack", f"{stored}.scales", scales),
                "",
            ]
        # Without weights of its own the kernel takes the chosen logits' softmax.
        shares = g.node("Softmax", [logits], f"{out}.shares", axis=-1)
        return g.node(
            MICROSOFT + "QMoE",
            [x, logits, *inputs, *[""] * 6, shares],
            out,
            expert_weight_bits=bits,
            block_size=block,
            accuracy_level=4,
            **kernel_form(kind, kind.renormalised),
        )

    def _multiplied(self, x: str, out: str, stored: _Stored, bias: str) -> str:
        inputs = [x, f"{stored.name}.packed", f"{stored.name}.scales"]
        return self._graph.node(
            MICROSOFT + "MatMulNBits",
            [*inputs, "", "", bias] if bias else inputs,
            out,
            N=stored.rows,
            K=stored.columns,
            bits=stored.bits,
            block_size=stored.block,
            # Activations in int8: levels below are many times slower on this provider.
            accuracy_level=4,
        )

    def _block_of(self, weights: Sequence[str], bits: int) -> int:
        """Return the block of a matrix; what a source holds in the usual ones stays in those."""
        usual = self._form.block_size
        if any(blocks_of(self._tensors, name, bits, usual) for name in weights):
            return usual
        return self._form.block_of(bits, self._tensors.shape(weights[0])[1])

    def _store(
        self,
        name: str,
        weights: Sequence[str],
        bits: int,
        *,
        block: int | None = None,
        head: bool = False,
        mixed: bool = False,
    ) -> _Stored:
        """Quantise and write.

        ``mixed``: a row of each of the matrices in turn, not one matrix under the other.
        """
        tensors = self._tensors
        rows, columns = _stacked(tensors, weights)
        block = block or self._block_of(weights, bits)
        stored = _Stored(name, rows, columns, bits, block)
        if name in self.errors:
            return stored
        scales: list[FloatArray] = []
        squares = np.zeros(2)

        def packed() -> Iterator[ByteArray]:
            rounding = self._rounding.head if head else self._rounding.blocks
            parts = rounding(tensors, weights, bits, block)
            for done in interleaved(list(parts)) if mixed else parts:
                scales.append(done.scales)
                squares[:] += done.squared_error, done.squared_weight
                yield done.packed

        dims = (rows, -(-columns // block), block * bits // 8)
        self._graph.stream(f"{name}.packed", np.uint8, dims, packed())
        self._graph.constant(f"{name}.scales", np.concatenate(scales))
        self.errors[name] = float(np.sqrt(squares[0] / max(squares[1], 1e-30)))
        return stored


def make_format(
    form: WeightForm, graph: GraphWriter, tensors: TensorReader, rounding: Rounding | None = None
) -> Format:
    """Return the format of this name; raises InputError if there is none."""
    name = form.name
    if name not in FORMATS:
        raise InputError(f"weights {name!r} is not a format: expected one of {', '.join(FORMATS)}")
    if name in ("fp16", "fp32"):
        return Plain(graph, tensors, half=name == "fp16")
    return Quantized(graph, tensors, form, rounding or PlainRounding())


def _stacked(tensors: TensorReader, names: Sequence[str]) -> tuple[int, int]:
    """Return rows and columns of stacked matrices."""
    return sum(tensors.shape(name)[0] for name in names), tensors.shape(names[0])[1]


def halved(name: str, values: FloatArray) -> npt.NDArray[np.float16]:
    """Return numbers in fp16.

    Raises:
        InputError: some are beyond it.

    """
    with np.errstate(over="raise"):
        try:
            return values.astype(np.float16)
        except FloatingPointError:
            raise InputError(
                f"{name} holds values beyond fp16: use --weights fp32, int8 or int4"
            ) from None


def _joined(graph: GraphWriter, tensors: TensorReader, out: str, names: Sequence[str]) -> str:
    whole = np.concatenate([read(tensors, name) for name in names])
    return graph.constant(f"{out}.bias", whole)
