"""Texts of many clients at once, of other tokens each, and the memory that a server held."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from serving import Server

NEW = 4
# Memory is accounted for one text, however many there are.
BLIND = """
from edgedec.__main__ import main
from edgedec.memory.levels import Costs

of = Costs.of
Costs.of = lambda self, level, context, *, beside=(), **rest: of(self, level, context, **rest)
main()
"""


def prompt(client: int, count: int, vocabulary: int) -> list[int]:
    """Tokens that begin like no other client's, so that nothing is read once for two."""
    first = min(1000, vocabulary // 4)
    return [
        first + (client * 977 + place * place * 31) % (vocabulary - first) for place in range(count)
    ]


def together(
    server: Server, clients: int, low: float, high: float, vocabulary: int
) -> tuple[int, list[Any]]:
    """The most bytes that the process held while all clients were served, and the answers.

    Their texts fill the context from the share ``low`` to ``high``.
    """

    def ask(client: int) -> Any:
        count = int(room * (low + (high - low) * client / max(1, clients - 1))) - NEW
        tokens = prompt(client, count, vocabulary)
        given = {"model": "any", "prompt": tokens, "max_tokens": NEW, "temperature": 0}
        return server.post("/v1/completions", given, timeout=600)

    room = server.get("/v1/models").json()["data"][0]["edgedec"]["max_context"]
    Path(f"/proc/{server.pid}/clear_refs").write_text("5", "ascii")
    with ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(ask, range(clients)))
    assert server.process.poll() is None
    return held(server), answers


def held(server: Server) -> int:
    """The most bytes that the process has held since it began, or since it was forgotten."""
    status = Path(f"/proc/{server.pid}/status").read_text("ascii")
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line[:6] == "VmHWM:")
