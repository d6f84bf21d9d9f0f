"""Checks by its header that llama.cpp can decode with a file, and finds its other parts."""

from __future__ import annotations

import re
from pathlib import Path

from edgedec._support.fields import one_line
from edgedec.errors import BundleError
from edgedec.gguf.header import GgufHeader

MAX_PARTS = 1 << 10
MAX_CONTEXT = 1 << 30
# llama.cpp's own pattern (`llama_split_path`).
_PART = re.compile(r"(?P<stem>.*)-(?P<no>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


def decodable_parts(header: GgufHeader) -> list[Path]:
    """Return all files of a model that can decode: one, or the parts of a split one in order.

    Raises:
        BundleError: the file holds no language model's weights (a vocabulary alone, an
            adapter), is not the first part, or a part is missing or damaged.

    """
    kind = header.text("general.type") or "model"
    if kind != "model":
        raise _wrong(
            header, f"it holds {one_line(kind)!r} instead of a model: give the model's GGUF"
        )
    if not header.architecture:
        raise _wrong(header, "it names no architecture: give a language model's GGUF")
    if not header.flag(f"{header.architecture}.attention.causal", True):
        raise _wrong(
            header, "its tokens read later ones as well (an embedding model): give a decoder's GGUF"
        )
    found = _parts(header)
    context = header.metadata.get(f"{header.architecture}.context_length", 1)
    if not isinstance(context, int) or not 0 < context <= MAX_CONTEXT:
        raise _wrong(header, f"its context length is {one_line(str(context))}: it is damaged")
    if not header.tensors and len(found) == 1:
        raise _wrong(header, "it holds a vocabulary only, no weights: give the whole model")
    return found


def named_parts(path: Path) -> list[Path]:
    """Return the files that llama.cpp opens for a path: itself, and other parts by their names."""
    named = _PART.fullmatch(path.name)
    if named is None:
        return [path]
    others = [_part(path, named, no) for no in range(1, min(int(named["count"]), MAX_PARTS) + 1)]
    return [other for other in others if other.exists()] or [path]


def _part(path: Path, named: re.Match[str], no: int) -> Path:
    return path.with_name(f"{named['stem']}-{no:05}-of-{named['count']}.gguf")


def _parts(header: GgufHeader) -> list[Path]:
    count, no = header.number("split.count", 0), header.number("split.no", 0)
    if count <= 1:
        return [header.path]
    named = _PART.fullmatch(header.path.name)
    if count > MAX_PARTS or named is None or int(named["count"]) != count:
        raise _wrong(
            header,
            f"it is one of {count} parts, expected a name ending in -00001-of-{count:05}.gguf",
        )
    files = [_part(header.path, named, part) for part in range(1, count + 1)]
    for part, file in enumerate(files):
        if not file.exists():
            raise _wrong(
                header, f"part {part + 1} of {count} is missing: put {file.name} next to it"
            )
    if no != 0:
        raise _wrong(header, f"it is part {no + 1} of {count}: give the first, {files[0].name}")
    for part, file in enumerate(files[1:], 1):
        other = GgufHeader.read(file)
        if (other.number("split.no", -1), other.number("split.count", -1)) != (part, count):
            raise _wrong(other, f"expected part {part + 1} of {count}: copy the parts again")
    return files


def _wrong(header: GgufHeader, message: str) -> BundleError:
    return BundleError(f"{one_line(str(header.path))}: {message}")
