"""Describes a GGUF header, for ``edgedec inspect``."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgedec._support.fields import one_line
from edgedec.gguf.header import GgufHeader


def describe(header: GgufHeader) -> list[tuple[str, str]]:
    """Return rows of a name and a value, each one line of bounded length."""
    licence = header.text("general.license") or "unstated"
    shares = ", ".join(f"{kind} {share:.0%}" for kind, share in header.shares.items())
    contents = (
        f"version {header.version}, {len(header.metadata)} entries, {len(header.tensors)} tensors"
    )
    rows = [
        ("file", str(header.path)),
        ("name", header.name),
        ("architecture", header.architecture or "unstated"),
        ("parameters", f"{header.parameters:,}"),
        ("weights", f"{header.quantisation} ({shares or 'no tensors'})"),
        ("weight bytes", f"{header.weight_bytes:,}"),
        ("context", _count(header.context_length)),
        ("vocabulary", f"{_count(header.vocab_size)} tokens, {_tokenizer(header)}"),
        ("chat template", "yes" if header.text("tokenizer.chat_template") else "no"),
        ("licence", licence),
        ("GGUF", contents),
    ]
    if (count := header.number("split.count", 0)) > 1:
        rows.insert(1, ("part", f"{header.number('split.no', 0) + 1} of {count}, this one alone:"))
    return [(name, one_line(value)) for name, value in rows]


def as_json(header: GgufHeader) -> dict[str, Any]:
    """Return the header without its long lists, as JSON."""
    return {
        "path": one_line(str(header.path)),
        "size_bytes": header.size_bytes,
        "version": header.version,
        "name": one_line(header.name),
        "architecture": one_line(header.architecture),
        "parameters": header.parameters,
        "weight_bytes": header.weight_bytes,
        "quantisation": header.quantisation,
        "shares": {kind: round(share, 6) for kind, share in header.shares.items()},
        "context_length": header.context_length,
        "vocab_size": header.vocab_size,
        "metadata": {one_line(key): _plain(value) for key, value in header.metadata.items()},
    }


def _count(number: int | None) -> str:
    return "unstated" if number is None else f"{number:,}"


def _tokenizer(header: GgufHeader) -> str:
    kind = header.text("tokenizer.ggml.model") or "no tokenizer"
    cut = header.text("tokenizer.ggml.pre")
    return f"{kind}, cut as {cut}" if cut else kind


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, list | np.ndarray):
        few = value[:8] if isinstance(value, list) else value[:8].tolist()
        kept = [_plain(item) for item in few]
        return kept if len(value) <= len(kept) else {"elements": len(value), "first": kept}
    # JSON has no infinities.
    return one_line(str(value)) if isinstance(value, float) and not np.isfinite(value) else value
