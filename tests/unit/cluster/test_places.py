"""How many workers a node of a cluster holds."""

from typing import Any

import pytest

from edgedec.cluster.run import places

GB = 10**9


def node(name: str, cpus: float, memory: float, *, alive: bool = True) -> dict[str, Any]:
    return {"NodeID": name, "Alive": alive, "NodeManagerHostname": name,
            "NodeManagerAddress": "10.0.0.1",
            "Resources": {"CPU": cpus, "memory": memory * GB}}  # fmt: skip


@pytest.mark.parametrize(
    ("threads", "needed", "expected"),
    [
        (None, GB, {"laptop": [8], "pi": [4]}),
        (1, GB, {"laptop": [1] * 8, "pi": [1] * 3}),  # the pi's memory holds three
        (4, GB, {"laptop": [4, 4], "pi": [4]}),
        (None, 4 * GB, {"laptop": [8], "pi": []}),
        (6, GB, {"laptop": [6], "pi": []}),
    ],
)
def test_a_node_holds_what_its_cores_and_memory_allow(threads, needed, expected) -> None:
    there = [node("laptop", 8, 16), node("pi", 4, 3), node("gone", 8, 16, alive=False)]
    found, refused = places(there, threads, needed)
    assert {
        name: [place.cores for place in found if place.node == name] for name in ("laptop", "pi")
    } == expected
    assert all(place.bytes == needed for place in found)
    assert len(found) == sum(map(len, expected.values()))
    assert [line.split()[0] for line in refused] == [
        name for name, own in expected.items() if not own
    ]


def test_a_head_without_cores_is_no_mistake() -> None:
    assert places([node("head", 0, 16)], None, GB) == ([], [])
