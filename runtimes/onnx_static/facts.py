"""The exporter's facts of graphs of static shape, checked against the graphs themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgedec._support.fields import Fields, one_line
from edgedec.errors import BundleError
from edgedec.runtimes._ort.metadata import parse
from edgedec.runtimes._static.facts import StaticShapeFacts, stated

GRAPH_VERSION = 1
MODEL_FILE = "static-1.onnx"
_STYLE = "static"
_ACTIVATIONS = ("", "int8", "int16")

# A type as ONNX Runtime names it, and extents.
Shape = tuple[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class StaticFacts(StaticShapeFacts):
    """Facts of the graphs; see ``edgedec.export.onnx_static``.

    Attributes:
        activations: ``int8`` or ``int16`` where products multiply integers; else empty.

    """

    activations: str = ""

    @classmethod
    def parse(cls, metadata: Mapping[str, str], where: str) -> StaticFacts:
        """Read the metadata of one of the graphs.

        Raises:
            BundleError: not written by this exporter, by a newer one, or damaged.

        """
        found = parse(metadata, where, GRAPH_VERSION)
        if found.get("style") != _STYLE:
            raise BundleError(f"{where}: not a graph of static shape: export it again")
        fields = Fields(found, where)
        activations = found.get("activations", "")
        if activations not in _ACTIVATIONS:
            raise fields.wrong("activations", "int8 or int16")
        facts = cls(**stated(fields), activations=activations)
        facts.check(fields)
        return facts

    def graph_files(self, folder: Path) -> dict[str, Path]:
        """Return the graphs' files: by width, and ``read`` for the one that reads prompts."""
        found = {str(rows): folder / f"static-{rows}.onnx" for rows in self.rows}
        return {**found, "read": folder / f"static-read-{self.read_rows}.onnx"}

    @property
    def layers(self) -> int:
        return self.cache[0] // 2

    def inputs(self, rows: int) -> dict[str, Shape]:
        """Return what a session gives a graph that computes ``rows`` tokens."""
        _, heads, slots, width = self.cache
        found: dict[str, Shape] = {"ids": ("tensor(int32)", (rows,))}
        if self.positions:
            found["positions"] = ("tensor(int32)", (rows,))
        for index, rope in enumerate(self.ropes):
            angles = ("tensor(float)", (rows, len(rope.frequencies)))
            found |= {f"cos_{index}": angles, f"sin_{index}": angles}
        for window in self.windows:
            name = f"bias_{window}" if window else "bias"
            found[name] = ("tensor(float)", (1, rows, slots + rows))
        for name in self.caches("past_"):
            found[name] = ("tensor(float)", (heads, slots, width))
        return found

    def outputs(self, rows: int, *, head: bool) -> dict[str, Shape]:
        """Return what such a graph returns."""
        _, heads, _, width = self.cache
        found: dict[str, Shape] = {}
        if head:
            found["logits"] = ("tensor(float)", (rows, self.vocab_size))
            found["top_logits"] = ("tensor(float)", (rows, self.top_k))
            found["top_ids"] = ("tensor(int64)", (rows, self.top_k))
        for name in self.caches(""):
            found[name] = ("tensor(float)", (heads, rows, width))
        return found

    def caches(self, prefix: str) -> Iterator[str]:
        """Yield the names of keys and values, in the order of the cache's entries."""
        for layer in range(self.layers):
            yield f"{prefix}key_{layer}"
            yield f"{prefix}value_{layer}"


def check_graph(inference: Any, facts: StaticFacts, rows: int, head: bool, where: Path) -> None:
    """Check that a loaded graph has the inputs and outputs that its facts promise.

    Raises:
        BundleError: names one that differs.

    """
    sides = (
        (inference.get_inputs(), facts.inputs(rows)),
        (inference.get_outputs(), facts.outputs(rows, head=head)),
    )
    for nodes, expected in sides:
        found = {node.name: (node.type, tuple(node.shape)) for node in nodes}
        for name in sorted(found.keys() | expected.keys()):
            if found.get(name) != expected.get(name):
                raise BundleError(
                    f"{where}: {one_line(name)} is {_shown(found.get(name))}, its facts say"
                    f" {_shown(expected.get(name))}: damaged, export it again"
                )


def _shown(shape: Shape | None) -> str:
    return "missing" if shape is None else one_line(f"{shape[0][7:-1]}{list(shape[1])}")
