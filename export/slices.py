"""Runs parts of an exported graph, on the very bytes that were written.

Only the tensors that a part needs are loaded, and of embedding and head only some rows: a model
larger than memory can be checked layer by layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from edgedec._support.model_path import utf8
from edgedec.errors import ExportError, RuntimeUnavailable
from edgedec.export.graph import IR_VERSION

Array = npt.NDArray[Any]


def check_runtime(what: str, minor: int, instead: str) -> None:
    """Raise RuntimeUnavailable if the installed onnxruntime is older than 1.``minor``."""
    version = onnxruntime.__version__
    if tuple(int(part) for part in version.split(".")[:2]) < (1, minor):
        raise RuntimeUnavailable(
            f"{what} onnxruntime 1.{minor} or newer, this is {version}: upgrade it,"
            f" or use {instead}"
        )


class Slices:
    """The parts of a graph in a folder."""

    def __init__(self, folder: Path, name: str = "model.onnx") -> None:
        self._folder = folder
        self._model = onnx.load(folder / name, load_external_data=False)
        self._makers = {out: node for node in self._model.graph.node for out in node.output if out}
        self._tensors = {tensor.name: tensor for tensor in self._model.graph.initializer}
        options = onnxruntime.SessionOptions()
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", utf8(folder)
        )
        # Each part runs once, so threads should not spin after it.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        self._options = options

    def run(self, outputs: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """Compute values of the graph from other values of it.

        Args:
            outputs: names of values.
            feeds: values to compute from; what they depend on is not run.

        """
        nodes = self._needed(outputs, feeds)
        tensors = [
            self._tensors[name] for name in _inputs(nodes) if name in self._tensors.keys() - feeds
        ]
        return self._run(nodes, tensors, outputs, feeds)

    def head_rows(self, x: Array, head_size: int, rows: slice, out: str = "logits") -> Array:
        """Return ``out`` ``[n, stop - start]`` of some rows of the head, from ``[n, hidden]``."""
        return self._run_rows(out, {"final.flat": x}, head_size, rows)

    def embed_rows(self, ids: Array, vocab_size: int, rows: slice) -> Array:
        """Return embeddings ``[1, n, hidden]`` of ``ids`` ``[1, n]``, all within ``rows``."""
        return self._run_rows("embedded", {"input_ids": ids - rows.start}, vocab_size, rows)

    def _run_rows(
        self, output: str, feeds: Mapping[str, Array], vocab_size: int, rows: slice
    ) -> Array:
        """Run with these rows only of every table over the vocabulary."""
        nodes = [_copy(node) for node in self._needed([output], feeds)]
        tensors = []
        for name in _inputs(nodes):
            if name in self._tensors:
                stored = self._tensors[name]
                cut = list(stored.dims[:1]) == [vocab_size]
                tensors.append(self._cut(stored, rows) if cut else stored)
        for attribute in (a for node in nodes for a in node.attribute if a.name == "N"):
            attribute.i = rows.stop - rows.start
        return self._run(nodes, tensors, [output], feeds)[0]

    def _needed(self, outputs: Iterable[str], feeds: Mapping[str, Array]) -> list[onnx.NodeProto]:
        found: dict[str, onnx.NodeProto] = {}
        wanted = list(outputs)
        while wanted:
            name = wanted.pop()
            node = self._makers.get(name)
            if name not in feeds and node is not None and node.name not in found:
                found[node.name] = node
                wanted.extend(node.input)
        return [node for node in self._model.graph.node if node.name in found]

    def _run(
        self,
        nodes: Sequence[onnx.NodeProto],
        tensors: Sequence[onnx.TensorProto],
        outputs: Sequence[str],
        feeds: Mapping[str, Array],
    ) -> list[Array]:
        used = _inputs(nodes)
        given = {name: array for name, array in feeds.items() if name in used}
        inputs = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in given.items()
        ]
        results = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph(nodes, "slice", inputs, results, list(tensors))
        model = helper.make_model(
            graph, opset_imports=self._model.opset_import, ir_version=IR_VERSION
        )
        try:
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), self._options, providers=["CPUExecutionProvider"]
            )
            computed: list[Array] = session.run(list(outputs), given)
        except Exception as error:  # onnxruntime's own errors share no public base
            reason = " ".join(str(error).split())[:300]
            raise ExportError(
                f"onnxruntime {onnxruntime.__version__} does not run the exported graph: {reason}"
            ) from error
        return computed

    def _cut(self, stored: onnx.TensorProto, rows: slice) -> onnx.TensorProto:
        """Return the tensor with some of its rows only."""
        if not stored.external_data:
            return numpy_helper.from_array(numpy_helper.to_array(stored)[rows], stored.name)
        place = {entry.key: entry.value for entry in stored.external_data}
        dtype = helper.tensor_dtype_to_np_dtype(stored.data_type)
        columns = int(np.prod(stored.dims[1:]))
        first = int(place["offset"]) + rows.start * columns * dtype.itemsize
        count = (rows.stop - rows.start) * columns
        part = np.fromfile(self._folder / place["location"], dtype, count, offset=first)
        return numpy_helper.from_array(part.reshape(-1, *stored.dims[1:]), stored.name)


def _inputs(nodes: Iterable[onnx.NodeProto]) -> dict[str, None]:
    """Return the names of all values that nodes read, in order."""
    return dict.fromkeys(name for node in nodes for name in node.input if name)


def _copy(node: onnx.NodeProto) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy
