"""Writes an ONNX graph and streams its weights to an external file.

Only the current chunk is in memory. Large tensors start at multiples of a page, so that a runtime
can map them. Several graphs may share the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

OPSET = 21
IR_VERSION = 10
DATA_FILE = "model.onnx.data"
_PAGE = 4096
_INLINE_BYTES = 256

Array = npt.NDArray[Any]
Dims = Sequence[int | str]


class DataFile:
    """Tensors of one or several graphs; large ones are written to a separate file.

    Args:
        file: file for the large tensors.

    Attributes:
        tensors: all of them, by name.

    """

    def __init__(self, file: Path) -> None:
        self.tensors: dict[str, TensorProto] = {}
        self._name = file.name
        self._data = file.open("wb")

    def __enter__(self) -> DataFile:
        return self

    def __exit__(self, *details: object) -> None:
        self._data.close()

    def constant(self, name: str, array: Array) -> str:
        """Store a tensor, unless one of this name is stored already."""
        if name in self.tensors:
            return name
        if array.nbytes <= _INLINE_BYTES:
            self.tensors[name] = onnx.numpy_helper.from_array(array, name)
            return name
        return self.stream(name, array.dtype, array.shape, [array])

    def stream(
        self, name: str, dtype: npt.DTypeLike, dims: Sequence[int], parts: Iterable[Array]
    ) -> str:
        """Store a tensor that comes in parts, in C order."""
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self._store(name, kind, np.dtype(dtype), dims, parts)

    def stream_int4(self, name: str, dims: Sequence[int], parts: Iterable[Array]) -> str:
        """Store signed numbers of four bits that come in bytes, the first in the low half."""
        return self._store(name, TensorProto.INT4, np.dtype(np.uint8), dims, parts)

    def _store(
        self,
        name: str,
        kind: int,
        dtype: np.dtype[Any],
        dims: Sequence[int],
        parts: Iterable[Array],
    ) -> str:
        offset = self._align()
        for part in parts:
            self._data.write(np.ascontiguousarray(part, dtype).data)
        length = self._data.tell() - offset
        numbers = int(np.prod(dims))
        expected = -(-numbers // 2) if kind == TensorProto.INT4 else numbers * dtype.itemsize
        if length != expected:
            raise ValueError(f"{name}: {length} bytes were written for {expected}")
        tensor = TensorProto(
            name=name, data_type=kind, dims=dims, data_location=TensorProto.EXTERNAL
        )
        for key, value in (("location", self._name), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        self.tensors[name] = tensor
        return name

    def alias(self, name: str, stored: str, dims: Sequence[int]) -> str:
        """Add another name and shape for a stored tensor's bytes, without copying them."""
        self.tensors[name] = twin = TensorProto()
        twin.CopyFrom(self.tensors[stored])
        twin.name = name
        del twin.dims[:]
        twin.dims.extend(dims)
        return name

    def size(self, beginning: str) -> int:
        """Return the bytes in the file of tensors whose names begin so, shared ones once."""
        named = [tensor for name, tensor in self.tensors.items() if name.startswith(beginning)]
        places = [{one.key: one.value for one in tensor.external_data} for tensor in named]
        return sum({at["offset"]: int(at["length"]) for at in places if at}.values())

    def flush(self) -> None:
        """Flush all data to the operating system."""
        self._data.flush()

    def _align(self) -> int:
        self._data.write(bytes(-self._data.tell() % _PAGE))
        return self._data.tell()


class GraphWriter:
    """An ONNX graph under construction; use it as a context manager.

    Its folder gets ``model.onnx`` and the external data.
    """

    def __init__(
        self, folder: Path, name: str = "model.onnx", data: DataFile | None = None
    ) -> None:
        self._file = folder / name
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._made: set[str] = set()
        self._owns = data is None
        self.data = DataFile(folder / DATA_FILE) if data is None else data

    def __enter__(self) -> GraphWriter:
        return self

    def __exit__(self, *details: object) -> None:
        if self._owns:
            self.data.__exit__(*details)

    # -- values ---------------------------------------------------------------------------------

    def input(self, name: str, dtype: npt.DTypeLike, dims: Dims) -> str:
        """Declare a graph input."""
        self._inputs.append(_value(name, dtype, dims))
        return name

    def output(self, name: str, dtype: npt.DTypeLike, dims: Dims) -> None:
        """Declare that a value is a graph output."""
        self._outputs.append(_value(name, dtype, dims))

    def __contains__(self, name: str) -> bool:
        return name in self.data.tensors or name in self._made

    def constant(self, name: str, array: Array) -> str:
        """Store a tensor, unless one of this name is stored already."""
        return self.data.constant(name, array)

    def stream(
        self, name: str, dtype: npt.DTypeLike, dims: Sequence[int], parts: Iterable[Array]
    ) -> str:
        """Store a tensor that comes in parts, in C order."""
        return self.data.stream(name, dtype, dims, parts)

    def alias(self, name: str, stored: str, dims: Sequence[int]) -> str:
        """Add another name and shape for a stored tensor's bytes, without copying them."""
        return self.data.alias(name, stored, dims)

    # -- nodes ----------------------------------------------------------------------------------

    def node(self, op: str, inputs: Sequence[str], out: str, **attributes: Any) -> str:
        """Add a node with one output, named ``out`` (as is the node)."""
        return self.nodes(op, inputs, [out], **attributes)[0]

    def nodes(
        self, op: str, inputs: Sequence[str], out: Sequence[str], **attributes: Any
    ) -> Sequence[str]:
        """Add a node with several outputs. ``op`` is ``domain::Name`` outside ONNX's own."""
        domain, _, kind = op.rpartition("::")
        self._made.update(out)
        self._nodes.append(
            helper.make_node(kind, inputs, out, name=out[0], domain=domain, **attributes)
        )
        return out

    def copy(self, node: onnx.NodeProto) -> None:
        """Add a node of another graph, whose inputs have the same names here."""
        self._made.update(node.output)
        self._nodes.append(node)

    # -- the file -------------------------------------------------------------------------------

    def save(self, metadata: Mapping[str, str]) -> None:
        """Write the graph; ``metadata`` becomes its metadata_props."""
        used = {name for node in self._nodes for name in node.input}
        tensors = [tensor for name, tensor in self.data.tensors.items() if name in used]
        graph = helper.make_graph(self._nodes, "decoder", self._inputs, self._outputs, tensors)
        opsets = [helper.make_opsetid("", OPSET)]
        domains = sorted({node.domain for node in self._nodes} - {""})
        opsets += [helper.make_opsetid(domain, 1) for domain in domains]
        model = helper.make_model(
            graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="edgedec"
        )
        helper.set_model_props(model, dict(metadata))
        self.data.flush()
        self._file.write_bytes(model.SerializeToString())


def _value(name: str, dtype: npt.DTypeLike, dims: Dims) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_tensor_value_info(name, kind, list(dims))
