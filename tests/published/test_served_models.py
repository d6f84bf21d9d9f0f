"""Published models of one server within one limit: what is dropped gives its memory back."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("llama_cpp", reason="llama_cpp not installed: install the extra llamacpp")
pytest.importorskip("starlette", reason="starlette not installed: install the extra serve")
pytest.importorskip("openai", reason="openai not installed: install the extra dev")

from serving import Server, serving
from waiting import until

pytestmark = pytest.mark.slow
LIMIT = 700_000_000
GIVEN = "--threads", "1", "--plan", "none"


def asked(server: Server, name: str, **more: object) -> str:
    given = {"model": name, "prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}
    answer = server.post("/v1/completions", {**given, **more}, timeout=600)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["text"])


def loaded(server: Server) -> list[str]:
    return list(server.get("/edgedec/status").json()["loaded"])


def most(server: Server) -> int:
    """The most bytes that its process has held."""
    status = Path(f"/proc/{server.pid}/status").read_text("ascii")
    return next(1024 * int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's /proc")
def test_they_take_turns_in_the_memory(smollm2: Path, gemma3: Path) -> None:
    models = f"--models=demo,{smollm2},{gemma3}"
    names = ["demo", smollm2.stem, gemma3.stem]
    texts = []
    with serving(models, *GIVEN, "--memory", f"{LIMIT // 10**6}MB") as server:
        for name in (*names, *names):
            texts.append(asked(server, name))
            assert name in loaded(server)
        assert len(loaded(server)) < 3
        assert most(server) <= 1.03 * LIMIT
        asked(server, names[2], keep_alive=0)
        until(lambda: names[2] not in loaded(server))
        maps, file = Path(f"/proc/{server.pid}/maps"), str(gemma3.resolve())
        until(lambda: file not in maps.read_text("utf-8", "replace"))
        asked(server, names[2])
        assert file in maps.read_text("utf-8", "replace")  # the control
    assert texts[:3] == texts[3:]
    # The control: without the limit all stay, and hold more than it.
    with serving(models, *GIVEN) as server:
        assert [asked(server, name) for name in names] == texts[:3]
        assert sorted(loaded(server)) == sorted(names)
        assert most(server) > 1.03 * LIMIT
