"""Opens a graph with streamed weights."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnxruntime as ort

from edgedec.bundle.protobuf import Damaged, fields
from edgedec.errors import BundleError, InputError, PassFailed, RuntimeUnavailable
from edgedec.hardware.resident import release_free
from edgedec.runtimes._ort.devices import CPU
from edgedec.runtimes._ort.opening import one_line, session_options
from edgedec.runtimes.onnx.streaming import pages
from edgedec.runtimes.onnx.streaming.chain import Chain
from edgedec.runtimes.onnx.streaming.pager import Pager, Stretch, streamed_bytes
from edgedec.runtimes.onnx.streaming.pages import PAGE, Source, Span
from edgedec.runtimes.onnx.streaming.prepared import BlockFiles, prepared

# Smaller tensors, such as norms, are left to ONNX Runtime.
_LEAST = 1 << 16
_OPENING = threading.Lock()
Range = tuple[int, int]


def open_streamed(file: Path, threads: int, memory: int, providers: Sequence[str]) -> Chain:
    """Load a graph with at most ``memory`` bytes of its weights in memory at once.

    Raises:
        InputError: a provider other than the CPU's was given.
        BundleError: the graph cannot be split into blocks.
        MemoryBudgetError: names the least memory that is enough.
        RuntimeUnavailable: the system, or ONNX Runtime, does not map weights.

    """
    if any(provider != CPU for provider in providers):
        raise InputError("weights can be streamed on the CPU only: leave out --provider")
    pages.require()
    blocks = prepared(file)
    wanted = _wanted(blocks)
    streamed = streamed_bytes([_size(ranges) for ranges in wanted], memory)
    sessions, stretches = [], []
    try:
        for block, ranges, most in zip(blocks, wanted, streamed, strict=True):
            source = Source(block.weights)
            stretches.append(Stretch(source, ()))
            with _OPENING:  # so that mappings of these files belong to this session
                sessions.append(_session(block, threads, file))
                spans = _mapped(block, ranges)
                for span in spans:
                    pages.own(span)
            release_free()  # a session packs its weights before it maps them
            stretches[-1] = Stretch(source, tuple(_settle(source, spans, most)))
    except (OSError, PassFailed) as error:
        _close(stretches)
        raise RuntimeUnavailable(f"{file}: its blocks cannot be read: {error}") from error
    except BaseException:
        _close(stretches)
        raise
    return Chain(sessions, Pager(stretches))


def block_sizes(file: Path) -> list[int]:
    """Return the bytes of each block that can be streamed.

    Raises:
        BundleError, RuntimeUnavailable: see ``open_streamed``.

    """
    return [_size(ranges) for ranges in _wanted(prepared(file))]


def _size(ranges: Sequence[Range]) -> int:
    return sum(end - begin for begin, end in ranges)


def _close(stretches: Sequence[Stretch]) -> None:
    for stretch in stretches:
        stretch.source.close()


def _session(block: BlockFiles, threads: int, file: Path) -> ort.InferenceSession:
    options = session_options(threads)
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    # With an arena every block would keep the memory of its widest pass.
    options.enable_cpu_mem_arena = False
    try:
        return ort.InferenceSession(str(block.graph), options, [CPU])
    except Exception as error:  # ONNX Runtime's own errors share no public base
        raise BundleError(f"{file}: a block of it cannot be loaded: {one_line(error)}") from error


def _settle(source: Source, spans: Sequence[Span], most: int) -> Iterator[Span]:
    """Yield the first ``most`` bytes, which are streamed; read the others, which stay resident."""
    for span in spans:
        streamed, kept = span.split(most)
        most -= sum(part.length for part in streamed)
        for part in streamed:
            pages.enlarge(part)
        for part in kept:
            source.fill(part)
            pages.lock(part)  # if this user may not lock, it is still anonymous memory
        yield from streamed


def _mapped(block: BlockFiles, ranges: Sequence[Range]) -> list[Span]:
    """Return where ONNX Runtime has mapped these ranges, in their order in the file."""
    found: list[Span] = []
    maps = pages.mapped(block.weights)
    for begin, end in ranges:
        inside = []
        for span in maps:
            low, high = max(begin, span.offset), min(end, span.offset + span.length)
            if low < high:
                inside.append(Span(span.address + low - span.offset, low, high - low))
        if sum(span.length for span in inside) < end - begin:
            raise RuntimeUnavailable(
                f"ONNX Runtime {ort.__version__} did not map {block.weights}: upgrade it, or leave"
                " --weight-memory out"
            )
        found += inside
    return sorted(found, key=lambda span: span.offset)


# -- ranges to page -----------------------------------------------------------------------------


def _wanted(blocks: Sequence[BlockFiles]) -> list[list[Range]]:
    """Return the ``paged_ranges`` of each block.

    Raises:
        RuntimeUnavailable: a block was removed meanwhile, or ONNX Runtime wrote something unknown.

    """
    found = []
    for block in blocks:
        try:
            found.append(paged_ranges(block.graph))
        except OSError as error:
            raise RuntimeUnavailable(
                f"{block.graph} cannot be read ({error.strerror}): load the model again"
            ) from None
        except (Damaged, LookupError, StopIteration, ValueError):
            raise RuntimeUnavailable(
                f"{block.graph}: ONNX Runtime {ort.__version__} wrote packed weights in an unknown"
                " form: install another version of it, or leave --weight-memory out"
            ) from None
    return found


def paged_ranges(graph: Path) -> list[Range]:
    """Return the ranges, in whole pages, of a block's packed and other large weights.

    Tables of which a pass reads a few rows, such as embeddings, and scales, which packed weights
    contain, are left to the page cache.
    """
    nodes, tensors = _read(graph)
    packed = {name for name, (_, prepacked) in tensors.items() if prepacked}
    found: list[Range] = []
    for name, (stored, prepacked) in tensors.items():
        if prepacked:
            found += prepacked
            continue
        readers = [(kind, inputs) for kind, inputs in nodes if name in inputs]
        by_rows = any(kind in _BY_ROWS for kind, _ in readers)
        scales = any(packed & set(inputs) for _, inputs in readers)
        if stored is not None and stored[1] - stored[0] >= _LEAST and not by_rows and not scales:
            found.append(stored)
    return _whole_pages(found)


_BY_ROWS = ("Gather", "GatherBlockQuantized", "GroupQueryAttention", "RotaryEmbedding")
Tensor = tuple[Range | None, list[Range]]


def _whole_pages(ranges: Sequence[Range]) -> list[Range]:
    """Return the pages that hold these ranges, each page once."""
    found: list[Range] = []
    for begin, end in sorted(ranges):
        begin, end = begin // PAGE * PAGE, -(-end // PAGE) * PAGE
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def _read(path: Path) -> tuple[list[tuple[str, list[str]]], dict[str, Tensor]]:
    """Return nodes as operator and inputs, and external initializers by name."""
    nodes: list[tuple[str, list[str]]] = []
    tensors: dict[str, Tensor] = {}
    model = memoryview(path.read_bytes())
    graph = next(value for number, value in fields(model) if number == 7 and value is not None)
    for number, value in fields(graph):
        if value is None:
            continue
        if number == 1:
            kind = "".join(_texts(value, 4))
            nodes.append((kind, _texts(value, 1)))
        elif number == 5:
            entries = [v for n, v in fields(value) if n == 13 and v is not None]
            pairs = {_texts(e, 1)[0]: _texts(e, 2)[0] for e in entries}
            if pairs:
                tensors["".join(_texts(value, 8))] = _ranges(pairs)
    return nodes, tensors


def _ranges(pairs: dict[str, str]) -> Tensor:
    """Return the ranges of a tensor's own bytes and of its packed forms."""
    begin, length = int(pairs.get("offset", "0")), int(pairs["length"])
    packed = []
    for key, value in pairs.items():
        if key.startswith("prepacked"):
            for blob in value.split("|")[1:]:
                at, size, _ = blob.split(";")
                packed.append((int(at), int(at) + int(size)))
    return (begin, begin + length), packed


def _texts(data: memoryview, wanted: int) -> list[str]:
    return [str(v, "utf-8") for n, v in fields(data) if n == wanted and v is not None]
