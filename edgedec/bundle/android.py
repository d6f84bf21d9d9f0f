"""Says what of a bundle would not run on Android, in the app of ``android_demo``.

The app has a build of ONNX Runtime of one version, and a reader of bundles that knows less than
edgedec: the format ``onnx``, byte pair encoding, chat pieces instead of Jinja.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from edgedec._support.fields import one_line
from edgedec.bundle.chat import Chat
from edgedec.bundle.folder import Bundle
from edgedec.bundle.onnx_wires import operators
from edgedec.text.portable import MAX_BYTES, unknown_parts
from edgedec.text.tokenizer import TOKENIZER, Tokenizer

# The version that the app is built with and that the lists below were tried on.
ONNX_RUNTIME = "1.29.0"
FORMAT = "onnx"
_MICROSOFT = "com.microsoft::"
# Operators of exported graphs. The full build of ONNX Runtime has more; these were tried.
OPERATORS = frozenset({
    "Add", "Cast", "Concat", "Expand", "Gather", "Gemm", "Identity", "LayerNormalization",
    "LessOrEqual", "Mul", "Range", "ReduceSum", "Reshape", "ScatterElements", "Shape",
    "SimplifiedLayerNormalization", "Softmax", "Split", "Sub", "Tanh", "TopK", "Unsqueeze", "Where",
    *(_MICROSOFT + name for name in (
        "FastGelu", "FusedMatMul", "GatherBlockQuantized", "Gelu", "GroupQueryAttention",
        "MatMulNBits", "MoE", "QMoE", "QuickGelu", "RotaryEmbedding", "SkipLayerNormalization",
        "SkipSimplifiedLayerNormalization")),
})  # fmt: skip
# The first version that computes an operator as exports use it, where that is a recent one: the
# name, the bits of its numbers (0: any), the version, and what to call it.
SINCE = (
    (_MICROSOFT + "MatMulNBits", 8, (1, 23), "8-bit weights"),
    (_MICROSOFT + "GroupQueryAttention", 8, (1, 27), "keys and values in int8"),
    (_MICROSOFT + "QMoE", 0, (1, 31), "quantised experts"),
)
# Java's buffers and maps of files hold fewer bytes than this.
MOST_FILE_BYTES = 1 << 31


@dataclass(frozen=True, slots=True)
class Fitness:
    """What was found.

    Attributes:
        problems: one line for each thing that would not run; none if all would.
        needs: what needs ONNX Runtime of some version or newer, and which.

    """

    problems: tuple[str, ...]
    needs: tuple[str, ...]


def fitness(bundle: Bundle, runtime: str = ONNX_RUNTIME) -> Fitness:
    """Look at a bundle's graphs, files, tokenizers and chat; BundleError if they are damaged."""
    found, needs = [*_chat(bundle), *_tokenizer(bundle), *_draft(bundle)], []
    for role in bundle.roles:
        variant = role.variants.get(FORMAT)
        if variant is None:
            formats = ", ".join(one_line(name) for name in role.variants)
            found.append(
                f"{role.role}: format {formats}, expected {FORMAT}: export with --format {FORMAT}"
            )
            continue
        used = operators(variant.path)
        found += [f"{role.role}: {clause}" for clause in _operators(used, runtime)]
        needs += [f"{role.role}: {clause}" for clause in _needs(used)]
        found += _large(bundle, variant.files)
    return Fitness(tuple(found), tuple(needs))


def _operators(used: set[tuple[str, int]], runtime: str) -> Iterator[str]:
    unknown = sorted({name for name, _ in used} - OPERATORS)
    for name in unknown:
        yield (
            f"the operator {one_line(name)} was not tried on ONNX Runtime {ONNX_RUNTIME}: export"
            " the bundle again"
        )
    has = tuple(int(part) for part in runtime.split(".")[:2])
    for version, what in _recent(used):
        if version > has:
            yield (
                f"{what} need ONNX Runtime {version[0]}.{version[1]}, the app has {runtime}: export"
                " with other options"
            )


def _needs(used: set[tuple[str, int]]) -> Iterator[str]:
    for version, what in _recent(used):
        yield f"{what} need ONNX Runtime {version[0]}.{version[1]} or newer"


def _recent(used: set[tuple[str, int]]) -> Iterator[tuple[tuple[int, int], str]]:
    for name, bits, version, what in SINCE:
        if any(op == name and bits in (0, stored) for op, stored in used):
            yield version, what


def _large(bundle: Bundle, files: tuple[str, ...]) -> Iterator[str]:
    for name in files:
        size = bundle.files[name].size_bytes
        if size >= MOST_FILE_BYTES:
            yield (
                f"{one_line(name)}: {size} bytes, expected fewer than {MOST_FILE_BYTES}: export"
                " with smaller weights"
            )


def _tokenizer(bundle: Bundle) -> Iterator[str]:
    tokenizer = bundle.target.tokenizer
    folder = tokenizer.relative_to(bundle.path)
    file = (folder / TOKENIZER).as_posix()
    # By the library, which fills in what a file leaves out.
    loaded = Tokenizer.read(
        lambda name, limit: bundle.read((folder / name).as_posix(), limit),
        tokenizer / TOKENIZER,
    )
    size = bundle.files[file].size_bytes
    if size > MAX_BYTES:
        yield f"{file}: {size} bytes, expected at most {MAX_BYTES}"
    for clause in unknown_parts(json.loads(loaded.backend.to_str())):
        yield f"{file}: {clause}"


def _draft(bundle: Bundle) -> Iterator[str]:
    target, draft = bundle.target, bundle.draft
    if draft is None:
        return
    columns = [role.dims.get("vocab_size") for role in (target, draft)]
    if draft.tokenizer_hash != target.tokenizer_hash:
        yield "draft: another tokenizer than the target's, so it would not draft there"
    elif columns[0] != columns[1]:
        yield f"draft: {columns[1]} columns of logits, expected the target's {columns[0]}"


def _chat(bundle: Bundle) -> Iterator[str]:
    chat = Chat.of(bundle)
    if chat.template and chat.pieces is None:
        yield (
            "chat: the template has no chat pieces, so only plain prompts can be continued: export"
            " the bundle again, unless pieces cannot say what the template does"
        )
