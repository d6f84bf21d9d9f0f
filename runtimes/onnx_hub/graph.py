"""A loaded graph with its cache as inputs and outputs, and its facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from edgedec._support.fields import one_line
from edgedec.bundle.onnx_file import ModelFile
from edgedec.bundle.onnx_wires import read_wires
from edgedec.bundle.ready_onnx import IDS, LOGITS, MASK, ROLES, TOTAL_LENGTH, ReadyFacts
from edgedec.errors import BundleError
from edgedec.runtimes._ort.metadata import damaged, parse, positive
from edgedec.runtimes.onnx_hub.cache import Group, PastCache, SharedCache

GRAPH_VERSION = 1
_Types = dict[str, np.dtype[Any]]
_REALS: _Types = {
    "tensor(float)": np.dtype(np.float32), "tensor(float16)": np.dtype(np.float16),
}  # fmt: skip
_WHOLES: _Types = {"tensor(int64)": np.dtype(np.int64), "tensor(int32)": np.dtype(np.int32)}
_ELSEWHERE = "export the model from its original checkpoint instead"


def own_facts(file: Path, stored: ModelFile) -> ReadyFacts:
    """Return the facts that edgedec's exporter wrote into a graph; BundleError if it did not."""
    where = str(file)
    found = parse(stored.metadata, where, GRAPH_VERSION)
    if found.get("style") != "optimum":
        raise BundleError(f"{where}: not a graph of the format optimum: export it again")
    try:
        columns = positive(found["vocab_size"])
        return ReadyFacts(
            name=str(found["name"]),
            vocab_size=columns,
            vocab_used=columns,  # columns that are no tokens are -inf in the graph
            max_context=positive(found["max_context"]),
            eos_ids=tuple(int(token) for token in found["eos_ids"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(where) from error


@dataclass(frozen=True, slots=True)
class Mode:
    """How a graph's passes are run.

    Attributes:
        shared: keys and values stay in place.
        multiple: a pass is padded to a multiple of so many rows, since kernels for a single row
            round otherwise.
        alone: each row has a pass of its own.

    """

    shared: bool
    multiple: int = 1
    alone: bool = False


@dataclass(frozen=True, slots=True)
class HubGraph:
    """An inference session and the facts of its graph; shared by all sessions of a model.

    Attributes:
        inference: its ONNX Runtime session.
        facts: what is known of it.
        mode: how its passes are run.
        presents: the output that each cache becomes.
        kv_dtype: of the numbers in caches.
        wholes: types of inputs that are no caches, by role.
        scalars: roles whose inputs have no dimension.
        last_only: a pass returns the logits of its last row alone.

    """

    inference: ort.InferenceSession
    facts: ReadyFacts
    mode: Mode
    groups: tuple[Group, ...]
    presents: Mapping[str, str]
    kv_dtype: np.dtype[Any]
    logits_dtype: np.dtype[Any]
    wholes: Mapping[str, np.dtype[Any]]
    scalars: frozenset[str]
    last_only: bool

    @classmethod
    def of(
        cls, inference: ort.InferenceSession, facts: ReadyFacts, where: str, mode: Mode
    ) -> HubGraph:
        """Find the roles of inputs and outputs.

        Raises:
            BundleError: one is missing, unknown or of another type.

        """
        inputs = {node.name: node for node in inference.get_inputs()}
        outputs = {node.name: node for node in inference.get_outputs()}
        roles = {role: facts.called(role) for role in ROLES if facts.called(role) in inputs}
        presents = pairs(facts, inputs)
        unknown = sorted(inputs.keys() - presents.keys() - set(roles.values()))
        missing = [facts.called(LOGITS), *presents.values()]
        lost = [name for name in missing if name not in outputs]
        counted = MASK in roles or TOTAL_LENGTH in roles
        if unknown or lost or not presents or IDS not in roles or not counted:
            names = [*unknown, *lost] or [f"no {IDS}, mask or cache"]
            raise BundleError(
                f"{where}: unexpected inputs or outputs ({one_line(', '.join(names[:4]))}):"
                f" {_ELSEWHERE}"
            )
        logits = outputs[facts.called(LOGITS)]
        if logits.shape[2:] != [facts.vocab_size] and not _any(logits.shape):
            raise BundleError(f"{where}: its metadata is not of its graph: {_ELSEWHERE}")
        caches = [inputs[name] for name in presents]
        kinds = {one.type for one in (*caches, *(outputs[name] for name in presents.values()))}
        if len(kinds) > 1 or not kinds <= _REALS.keys() or logits.type not in _REALS:
            raise BundleError(f"{where}: caches or logits of another type: {_ELSEWHERE}")
        wholes = {role: _WHOLES.get(inputs[name].type) for role, name in roles.items()}
        return cls(
            inference,
            facts,
            mode,
            _groups(list(presents), (node.shape for node in caches), facts, where),
            presents,
            _REALS[kinds.pop()],
            _REALS[logits.type],
            {role: _whole(role, kind, where) for role, kind in wholes.items()},
            frozenset(role for role, name in roles.items() if not inputs[name].shape),
            logits.shape[1:2] == [1],
        )

    @property
    def numbers(self) -> int:
        """Numbers that the caches keep of a token."""
        return sum(group.numbers for group in self.groups)

    @property
    def token_bytes(self) -> int:
        """Bytes of a token: twice its numbers where a pass reads one copy and writes another."""
        return (1 if self.mode.shared else 2) * self.numbers * self.kv_dtype.itemsize

    @property
    def names(self) -> list[tuple[str, str, Group]]:
        """Return input, output and group of each entry, in the order of a cache's addresses."""
        return [(name, self.presents[name], group) for group in self.groups for name in group.names]

    def new_cache(self, slots: int) -> PastCache | SharedCache:
        made = SharedCache if self.mode.shared else PastCache
        return made(self.groups, slots, self.kv_dtype)

    def rows(self, count: int, past: int) -> int:
        """Return the rows of a pass over ``count`` tokens behind ``past``, padding included."""
        rows = -(-count // self.mode.multiple) * self.mode.multiple
        return rows if past + rows <= self.facts.max_context else count


def shares(file: Path, inference: ort.InferenceSession, facts: ReadyFacts) -> bool:
    """Return whether one buffer may be past and present of each cache of a graph."""
    return read_wires(file).shares(pairs(facts, [node.name for node in inference.get_inputs()]))


def pairs(facts: ReadyFacts, names: Iterable[str]) -> dict[str, str]:
    """Return the output that each cache becomes, of the inputs that are caches."""
    found = {}
    for name in names:
        for past, present in facts.caches:
            front, _, back = past.partition("*")
            if name.startswith(front) and name.endswith(back) and len(name) >= len(past):
                found[name] = present.replace("*", name[len(front) : len(name) - len(back)])
                break
    return found


def _whole(role: str, kind: np.dtype[Any] | None, where: str) -> np.dtype[Any]:
    if kind is None:
        raise BundleError(f"{where}: {role} of another type than int64 or int32: {_ELSEWHERE}")
    return kind


def _any(shape: list[Any]) -> bool:
    """Return whether the last of three dimensions is not fixed."""
    return len(shape) == 3 and not isinstance(shape[2], int)


def _groups(
    names: list[str], shapes: Iterable[list[Any]], facts: ReadyFacts, where: str
) -> tuple[Group, ...]:
    """Group the caches of equal shape ``[batch, kv_heads, past, width]``."""
    known = {1: facts.kv_heads, 3: facts.head_dim}
    found: dict[tuple[int, int], list[str]] = {}
    for name, shape in zip(names, shapes, strict=True):
        sizes = [size if isinstance(size := shape[axis], int) else stated
                 for axis, stated in known.items()] if len(shape) == 4 else []  # fmt: skip
        if not sizes or not all(type(size) is int and size > 0 for size in sizes):
            raise BundleError(f"{where}: the cache {name} has the shape {shape}: {_ELSEWHERE}")
        found.setdefault((sizes[0], sizes[1]), []).append(name)
    return tuple(Group(tuple(group), *sizes) for sizes, group in found.items())
