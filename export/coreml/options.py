"""Options of a CoreML program, and the facts in it for a runtime."""

from __future__ import annotations

from dataclasses import dataclass

from edgedec.errors import InputError, UnsupportedArchitecture
from edgedec.export import static_shapes
from edgedec.export.coreml.rounded import WEIGHTS
from edgedec.export.options import ROWS
from edgedec.models.decoder import DecoderSpec

GRAPH_VERSION = 1
FORMS = ("slice", "blend")
MOVED_ROWS = 16
# CoreML needs dimensions of states to be multiples of it (coremltools#2631).
_SLOTS = 32
_LARGEST_CONTEXT = 1 << 20


@dataclass(frozen=True, slots=True)
class ProgramOptions:
    """Options of a program.

    Attributes:
        weights: ``fp16``, ``int8``, ``int4`` or ``lut4``.
        form: ``slice`` writes rows of the cache at an index known at run time, for GPU and CPU;
            ``blend`` multiplies by a mask instead, for the Neural Engine, which supports static
            indices only.
        rows: widths of passes, ascending from 1.
        block_size: number of int4 weights that share a scale.
        head_bits: bits of a quantised head; None is those of ``weights``.

    """

    name: str
    eos_ids: tuple[int, ...] = ()
    weights: str = "fp16"
    form: str = "slice"
    rows: tuple[int, ...] = ROWS
    block_size: int = 32
    head_bits: int | None = None


def slots(spec: DecoderSpec) -> int:
    """Return the tokens that the cache holds: the context, rounded up."""
    return -(-spec.max_context // _SLOTS) * _SLOTS


def read_rows(spec: DecoderSpec) -> int:
    """Return the tokens of a prompt that one pass reads."""
    return min(static_shapes.READ_ROWS, slots(spec))


def check_decoder(spec: DecoderSpec, options: ProgramOptions) -> None:
    """Refuse a decoder that no such program computes.

    Raises:
        UnsupportedArchitecture: names the architecture and what is missing.
        InputError: a width is beyond the context.

    """
    if spec.experts is not None:
        raise UnsupportedArchitecture(
            f"{options.name} ({spec.architecture}) is a mixture of experts, which the coreml"
            " format cannot hold: try --format onnx or gguf"
        )
    if spec.max_context > _LARGEST_CONTEXT:
        raise UnsupportedArchitecture(
            f"{options.name} has a context of {spec.max_context} tokens, and a CoreML cache of"
            f" fixed size holds at most {_LARGEST_CONTEXT}: give --max-context"
        )
    if options.rows[-1] > slots(spec):
        raise InputError(
            f"--rows up to {options.rows[-1]}: expected at most the context of {slots(spec)}"
        )
    assert options.weights in WEIGHTS


def facts(spec: DecoderSpec, options: ProgramOptions) -> dict[str, object]:
    """Return the facts for a runtime, as stored in the program's metadata."""
    shared = static_shapes.facts(
        spec, options.name, options.eos_ids, options.weights, options.rows, slots(spec)
    )
    own = {"form": options.form, "moved_rows": min(MOVED_ROWS, slots(spec))}
    return {"graph_version": GRAPH_VERSION, **own, **shared}
