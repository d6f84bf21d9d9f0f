"""Opens an exported graph on OpenVINO: translation, threads, number formats."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov
from openvino import opset13 as op
from openvino.frontend.onnx import ConversionExtension

from edgedec._support.files import check_regular
from edgedec.bundle.onnx_file import ModelFile
from edgedec.errors import BundleError, RuntimeUnavailable
from edgedec.runtimes._ort.saved import locations
from edgedec.runtimes.onnx.graph import Graph, GraphFacts
from edgedec.runtimes.onnx.openvino import attention, products
from edgedec.runtimes.onnx.openvino.cache import GrowingCache

DEVICE = "CPU"
OUTPUTS = ("logits", "top_logits", "top_ids")
# A prefill pass has at least and at most this many rows; more take memory and save no time.
LEAST_ROWS, WIDEST = 8, 64
# Most bytes of attention scores in such a pass.
_SCORE_BYTES = 32 << 20
# Inputs that are lengths in ONNX Runtime's attention, and their replacements here.
_LENGTHS = {"seqlens_k": "places", "total_sequence_length": "blocks"}
# Tensor that sliding windows compare with positions; in ONNX Runtime's graph, the slot numbers.
_SLOTS = "window.slots"
# Prefixes of error lines that only say where the error was raised.
_SOURCES = ("Exception from", "Check '", "FrontEnd API", "Summary", "Model wasn't")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenVinoGraph(Graph):
    """A compiled graph; shared by all sessions of a model.

    Attributes:
        inputs: names of the inputs of a pass.
        cache_names: names of the cache's tensors, in the order of the rows of ``GrowingCache``.
        query_heads: number of query heads in all layers together.
        weights: their memory, which the compiled graph reads in place.

    """

    inputs: tuple[str, ...]
    cache_names: tuple[str, ...]
    query_heads: int
    weights: tuple[npt.NDArray[Any], ...]

    @property
    def score_bytes(self) -> int:
        """Bytes of attention scores per row and slot; OpenVINO keeps those of all layers."""
        return 2 * self.query_heads * 4

    def rows_at(self, past: int) -> int:
        """Return the rows of a prefill pass after ``past`` tokens."""
        return max(LEAST_ROWS, min(WIDEST, _SCORE_BYTES // (self.score_bytes * (past + WIDEST))))

    def new_cache(self, slots: int) -> GrowingCache:
        facts = self.facts
        shape = (2 * facts.layers, facts.kv_heads, slots, self.kv_width)
        return GrowingCache(shape, self.kv_dtype)


def open_graph(file: Path, stored: ModelFile, facts: GraphFacts, threads: int) -> OpenVinoGraph:
    """Load a graph. Its external data must have been checked: see ``edgedec.bundle.onnx_file``.

    Args:
        stored: its contents, from ``read_model_file``.
        threads: threads of a pass.

    Raises:
        BundleError: its inputs or outputs are not those of an exported graph.
        RuntimeUnavailable: OpenVINO cannot translate or compile it.

    """
    try:
        check_regular([file.parent / name for name in locations(stored)])
    except OSError as error:
        raise BundleError(f"{file}: its weights cannot be read: {error}") from None
    try:
        with products.taken() as weights:
            model = _reading_only(_core().read_model(file), facts, str(file))
        mixed = [_width(model, f"layers.{layer}.attention") for layer in range(facts.layers)]
        compiled = _core().compile_model(model, DEVICE, properties(threads, facts.block_size))
    except (BundleError, RuntimeUnavailable):
        raise
    except Exception as error:  # OpenVINO's own errors share no public base
        raise RuntimeUnavailable(f"{file}: OpenVINO cannot run it: {reason(error)}") from error
    names = [port.any_name for port in compiled.inputs]
    heads = sum(width // facts.head_dim for width in mixed)
    caches = _cache_names(facts, "past")
    return OpenVinoGraph(
        inference=compiled,
        facts=facts,
        kv_dtype=np.dtype(np.float32),
        kv_width=facts.head_dim,
        inputs=tuple(name for name in names if name not in caches),
        cache_names=tuple(caches),
        query_heads=heads,
        weights=tuple(weights),
    )


@functools.cache
def _core() -> ov.Core:
    """Return OpenVINO with our translations of operators."""
    core = ov.Core()
    for operator, translate in {**attention.TRANSLATIONS, **products.TRANSLATIONS}.items():
        core.add_extension(ConversionExtension(operator, attention.DOMAIN, translate))
    return core


def properties(threads: int, block: int | None) -> dict[str, str | int | bool]:
    """Return the properties to compile models with.

    Args:
        threads: threads of a pass.
        block: weights that share a scale; None if weights are not quantised.

    """
    return {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        # The draft may run at the same time, and only ``LoadOptions.cores`` pins threads.
        "ENABLE_CPU_PINNING": False,
        # Its default on some processors is bfloat16.
        "INFERENCE_PRECISION_HINT": "f32",
        # Blocks of activations as long as those of the weights: others are half as fast.
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": block or 0,
    }


def _reading_only(model: ov.Model, facts: GraphFacts, where: str) -> ov.Model:
    """Return a graph whose new keys and values are one output, ``[2 * layers, kv_heads, n, dim]``.

    Raises:
        BundleError: it has other inputs or outputs than an exported graph.

    """
    results = {name: result for result in model.get_results() for name in _names(result)}
    written = _cache_names(facts, "present")
    inputs = {name: each for each in model.get_parameters() for name in each.output(0).get_names()}
    if not {*OUTPUTS, *written} <= set(results) or not set(_cache_names(facts, "past")) <= set(
        inputs
    ):
        raise BundleError(f"{where}: unexpected inputs or outputs: export it again")
    for name in written:
        model.remove_result(results[name])
    rows = op.concat([results[name].input_value(0) for name in written], axis=0)
    rows.output(0).set_names({"written"})
    model.add_results([op.result(rows)])
    slots = next((each for each in model.get_ops() if _SLOTS in _names(each)), None)
    if slots is not None:
        given = op.parameter([-1], np.int64, name="slots")
        given.output(0).set_names({"slots"})
        for target in list(slots.output(0).get_target_inputs()):
            target.replace_source_output(given.output(0))
        model.add_parameters([given])
    for name, other in _LENGTHS.items():
        if name in inputs:
            inputs[name].set_partial_shape(ov.PartialShape([-1]))
            inputs[name].output(0).set_names({other})
    model.validate_nodes_and_infer_types()
    return model


def _width(model: ov.Model, name: str) -> int:
    """Return the last dimension of a tensor, which has rows of its own if attention is padded."""
    found = next(each for each in model.get_ops() if {name, f"{name}.rows"} & _names(each))
    width: int = found.output(0).get_partial_shape()[-1].get_length()
    return width


def _names(node: ov.Node) -> set[str]:
    """Return the tensor names of a node's outputs; for a result node, of its input."""
    values = [node.output(0)] if node.get_output_size() else []
    values += [node.input_value(0)] if node.get_type_name() == "Result" else []
    return {name for value in values for name in value.get_names()}


def _cache_names(facts: GraphFacts, time: str) -> list[str]:
    parts = ("key", "value")
    return [f"{time}_{part}_{layer}" for layer in range(facts.layers) for part in parts]


def reason(error: Exception) -> str:
    """Return the line of an OpenVINO error that states the cause."""
    lines = [line.strip().removeprefix("-- ") for line in str(error).splitlines()]
    for line in lines:
        before, found, after = line.partition("ValueError: ")
        if found or "No conversion rule" in line:
            return after or before
    causes = [line for line in lines if line and not line.startswith(_SOURCES)]
    return causes[0] if causes else type(error).__name__
