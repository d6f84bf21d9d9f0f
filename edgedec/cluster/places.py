"""Decides how many workers each node of a cluster holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from edgedec._support.amounts import size


@dataclass(frozen=True, slots=True)
class Place:
    """Room for one worker.

    Attributes:
        node: Ray's id of the node.
        name: of the node, for people.
        cores: that Ray reserves there.
        bytes: of memory that Ray reserves there.

    """

    node: str
    name: str
    cores: int
    bytes: int


def places(
    nodes: Iterable[Mapping[str, Any]], threads: int | None, needed: int
) -> tuple[list[Place], list[str]]:
    """Return the places on the nodes that are alive, and a line for each node that has none.

    A node without cores, as a head that only directs, is passed over.

    Args:
        nodes: as ``ray.nodes()`` returns them.
        threads: cores of a worker, of which a node holds as many as fit; None is one worker with
            all cores of the node.
        needed: bytes of memory of a worker.

    """
    found, refused = [], []
    for node in nodes:
        cores, memory = (int(node["Resources"].get(one, 0)) for one in ("CPU", "memory"))
        if not node["Alive"] or not cores:
            continue
        name = named(node)
        own = threads or cores
        if own > cores:
            refused.append(f"{name} has {cores} cores for Ray, --threads {own} asks for more")
        elif needed > memory:
            refused.append(
                f"{name} has {size(memory)} of memory for Ray, the plan needs {size(needed)}:"
                " give a smaller --max-context, or start Ray there with more --memory"
            )
        count = min(cores // own, memory // max(needed, 1))
        found += [Place(node["NodeID"], name, own, needed)] * count
    return found, refused


def named(node: Mapping[str, Any]) -> str:
    """Return a node's name: its host's, with the address that tells two on one host apart."""
    return f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
