"""Recognises, by the names of files, decoders that others exported to ONNX, and what means one."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from itertools import islice
from pathlib import Path

from edgedec._support.fields import json_object

# The configuration of onnxruntime-genai, the end of a graph's name, and graphs of the others.
GENAI, ONNX = "genai_config.json", ".onnx"
GENAI_LABEL = "genai"
_MANIFEST, _CONFIG = "manifest.json", "config.json"
_GRAPH = re.compile(
    r"(?:onnx/)?(?:model|decoder_model_merged|decoder_with_past_model)(?:_(\w+))?\.onnx"
)
_PREFERRED = ("q4", "fp32", "quantized", "int8", "uint8", "bnb4", "q4f16", "fp16")
_MOST_JSON, _MOST_FILES = 1 << 20, 10_000


def ready_onnx(word: str | os.PathLike[str]) -> tuple[Path, str | None] | None:
    """Return the folder and the graph that a word means, of decoders that others exported.

    ``FOLDER``, ``FOLDER:q4`` or a graph's file; the graph is None where the folder alone is named.
    None for anything else, a checkpoint with graphs beside it among them.
    """
    path = Path(word)
    try:
        if path.is_dir():
            checkpoint = any(path.glob("*.safetensors"))
            return None if checkpoint or not ready_graphs(path) else (path, None)
        if path.is_file():
            return _of_file(path) if path.suffix == ONNX else None
        before, _, which = str(word).rpartition(":")
        folder = Path(before)
        there = before and folder.is_dir() and ready_graphs(folder)
    except (OSError, ValueError):  # unreadable, longer than a path may be, or with a null byte
        return None
    return (folder, which) if there else None


def _of_file(path: Path) -> tuple[Path, str] | None:
    around = [path.parent.parent] if path.parent.name == "onnx" else []
    for folder in (*around, path.parent):
        name = path.relative_to(folder).as_posix()
        if name in ready_graphs(folder).values():
            return folder, name
    return None


def ready_graphs(folder: Path) -> dict[str, str]:
    """Return the graphs of decoders that others exported into a folder: files in it, by label.

    A label says how weights are stored: ``q4`` for ``onnx/model_q4.onnx``, ``fp32`` for
    ``model.onnx``.
    """
    if (folder / _MANIFEST).exists():
        return {}
    if (folder / GENAI).is_file():
        return {GENAI_LABEL: _genai_graph(folder)}
    if not (folder / _CONFIG).is_file():
        return {}
    return graphs_of(
        f"{place}{path.name}"
        for place in ("onnx/", "")
        for path in islice((folder / place).glob(f"*{ONNX}"), _MOST_FILES)
    )


def graphs_of(files: Iterable[str]) -> dict[str, str]:
    """Return the graphs of decoders among a folder's files, by label."""
    found: dict[str, str] = {}
    for name in sorted(files, reverse=True):  # those in the folder onnx before others
        if graph := _GRAPH.fullmatch(name):
            found.setdefault(graph[1] or "fp32", name)
    return found


def first_graph(labels: Collection[str]) -> str | None:
    """Return the label of the graph that is taken unasked; None if that is not clear.

    The quickest on a processor come first; half precision is converted there in every pass, and
    int8 is often scaled by a whole pass, so that it verifies nothing.
    """
    known = next((label for label in _PREFERRED if label in labels), None)
    for_processor = [label for label in labels if "cpu" in label.lower()]
    few = [*labels] if len(labels) == 1 else for_processor
    return known or (few[0] if len(few) == 1 else None)


def _genai_graph(folder: Path) -> str:
    """Return the name of the graph that a genai_config.json states; it may not be there."""
    with (folder / GENAI).open("rb") as stream:
        found: object = json_object(stream.read(_MOST_JSON))
    for name in ("model", "decoder", "filename"):
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, str) else f"model{ONNX}"
