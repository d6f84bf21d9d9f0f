"""A published model for eight clients at once, in a control group of the memory that it has."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llama_cpp", reason="llama_cpp not installed: install the extra llamacpp")
pytest.importorskip("starlette", reason="starlette not installed: install the extra serve")
pytest.importorskip("openai", reason="openai not installed: install the extra dev")

from serving import Server, serving

from benchmarks.sections.control_group import ControlGroup, limited

pytestmark = [pytest.mark.slow, pytest.mark.cgroup]
LIMIT, CLIENTS, NEW = 400_000_000, 8, 4
GIVEN = "--threads", "1", "--plan", "none", "--drafter", "lookup"
# Memory is accounted for one text, however many there are.
BLIND = """
from edgedec.__main__ import main
from edgedec.memory.levels import Costs

of = Costs.of
Costs.of = lambda self, level, context, *, beside=(), **rest: of(self, level, context, **rest)
main()
"""


@pytest.fixture
def group() -> Iterator[ControlGroup]:
    with limited(LIMIT) as found:
        if found is None:
            pytest.skip("no control group can be made here")
        yield found


@pytest.fixture(scope="module")
def known(smollm2: Path) -> Path:
    """The model, whose settings for this processor are known: to find them takes contexts."""
    words = "generate", str(smollm2), "Hi", "-n", "4", "--threads", "1"
    subprocess.run([sys.executable, "-m", "edgedec", *words], check=True, capture_output=True)
    return smollm2


def prompt(client: int, count: int) -> list[int]:
    """Tokens that begin like no other client's, so that nothing is read once for two."""
    return [1000 + (client * 977 + place * place * 31) % 40_000 for place in range(count)]


def ask(server: Server, client: int, count: int) -> Any:
    given = {"model": "any", "prompt": prompt(client, count), "max_tokens": NEW, "temperature": 0}
    return server.post("/v1/completions", given, timeout=600)


def together(server: Server, low: float, high: float) -> tuple[int, set[int]]:
    """The most bytes that the process held while all clients were served, and their statuses.

    Their texts fill the context from the share ``low`` to ``high``.
    """
    room = server.get("/v1/models").json()["data"][0]["edgedec"]["max_context"]
    assert room >= 512
    step = (high - low) / (CLIENTS - 1)
    counts = [int(room * (low + step * client)) - NEW for client in range(CLIENTS)]
    Path(f"/proc/{server.pid}/clear_refs").write_text("5", "ascii")
    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = list(pool.map(lambda one: ask(server, *one), enumerate(counts)))
    assert server.process.poll() is None
    status = Path(f"/proc/{server.pid}/status").read_text("ascii")
    peak = next(int(line.split()[1]) for line in status.splitlines() if line[:6] == "VmHWM:")
    return 1024 * peak, {answer.status_code for answer in answers}


def test_eight_clients_stay_within_the_limit_and_none_is_refused(
    known: Path, group: ControlGroup
) -> None:
    python = [*group.entering, sys.executable, "-m", "edgedec"]
    memory = "--memory", f"{LIMIT // 10**6}MB"
    with serving(known, *GIVEN, *memory, python=python) as server:
        for low, high in (0.05, 0.1), (0.25, 0.9):
            held, statuses = together(server, low, high)
            print(f"{low} to {high} of the context: {held / 1e6:.0f} MB")
            assert statuses == {200}
            assert held <= LIMIT


def test_a_twin_that_counts_one_text_exceeds_the_limit(known: Path) -> None:
    memory = "--memory", f"{LIMIT // 10**6}MB"
    with serving(known, *GIVEN, *memory, python=[sys.executable, "-c", BLIND]) as server:
        held, statuses = together(server, 0.05, 0.1)
        print(f"{held / 1e6:.0f} MB, statuses {statuses}")
        assert held > 1.03 * LIMIT
