"""The programs and the notebook of ``examples/`` run as their first lines say."""

from __future__ import annotations

import ast
import asyncio
import importlib
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from waiting import until

from edgedec import Pipeline, Stream
from edgedec.generation.queue import Queue

TESTED = {
    "speculative_loop.py", "openai_client.py", "asyncio_streams.py", "fastapi_app.py",
    "who_wrote_it.ipynb",
}  # fmt: skip
FIBONACCI = "def fibonacci(n):\n"


@pytest.fixture
def examples(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, from which programs are imported as if they were run there."""
    monkeypatch.syspath_prepend(str(repository / "examples"))
    return repository / "examples"


@pytest.fixture(scope="module")
def demo() -> Iterator[Pipeline]:
    with Pipeline.open("demo") as pipeline:
        yield pipeline


def imported(name: str) -> ModuleType:
    return importlib.reload(importlib.import_module(name))


def cells(notebook: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(notebook.read_text("utf-8"))["cells"]
    return [cell for cell in found if cell["cell_type"] == "code"]


def test_every_example_is_tested_and_described(examples: Path) -> None:
    found = {file.name for file in examples.iterdir() if file.suffix in (".py", ".ipynb")}
    assert found == TESTED
    described = (examples / "README.md").read_text("utf-8")
    assert set(re.findall(r"\w+\.(?:py|ipynb)", described)) == TESTED


def test_the_loop_prints_accepted_tokens_in_brackets(
    examples: Path, demo: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    imported("speculative_loop").main("demo", FIBONACCI, tokens=24)
    shown = capsys.readouterr().out
    text = FIBONACCI + demo.generate(FIBONACCI, max_new_tokens=24, draft_length=0).text
    assert re.sub(r"[\[\]]", "", shown).startswith(text)
    assert re.search(r"\[[^\]]+\]", shown)


def test_the_openai_client(examples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("openai")
    from serving import serving

    # Else a near-tie may fall either way: how much is drafted goes by measured time.
    with serving(Path("demo"), "--batch-invariant") as server:
        imported("openai_client").main(server.url)
    text, _, figures = capsys.readouterr().out.rpartition("\n\n")
    with Pipeline.open("demo", batch_invariant=True) as pipeline:
        assert text == pipeline.generate(FIBONACCI, max_new_tokens=48).text
    assert re.fullmatch(r"\d+ of \d+ drafted tokens were accepted\n", figures)


def test_two_texts_at_once(
    examples: Path,
    demo: Pipeline,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    submit, turn, begun = Queue.submit, Stream.turn, list[int]()

    def submitted(queue: Queue, *given: Any) -> None:
        submit(queue, *given)
        begun.append(1)

    def both(stream: Stream) -> Any:
        until(lambda: len(begun) >= 2)
        return turn(stream)

    monkeypatch.setattr(Queue, "submit", submitted)
    monkeypatch.setattr(Stream, "turn", both)
    asyncio.run(imported("asyncio_streams").main())
    texts = {"first": "", "second": ""}
    order = []
    for line in capsys.readouterr().out.splitlines():
        name, _, piece = line.partition(": ")
        texts[name] += ast.literal_eval(piece)
        order.append(name)
    assert texts["first"] == demo.generate(FIBONACCI, max_new_tokens=12).text
    assert texts["second"] == demo.generate("class Stack:\n", max_new_tokens=12).text
    assert order != sorted(order)


async def test_leaving_early_ends_the_generation(examples: Path, demo: Pipeline) -> None:
    task = asyncio.create_task(imported("asyncio_streams").show("one", demo, FIBONACCI))
    while not len(demo._queue.places):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not len(demo._queue.places)


def test_the_web_app(examples: Path, demo: Pipeline) -> None:
    pytest.importorskip("fastapi", reason="needs fastapi")
    from fastapi.testclient import TestClient

    web = imported("fastapi_app")
    with TestClient(web.app) as client:

        def answer(body: dict[str, Any]) -> Any:
            return client.post("/complete", json=body)

        asked = {"prompt": FIBONACCI, "max_new_tokens": 12}
        with ThreadPoolExecutor(2 * web.PARALLEL) as clients:
            answers = list(clients.map(answer, [asked] * 2 * web.PARALLEL))
        text = demo.generate(FIBONACCI, max_new_tokens=12).text
        assert [one.text for one in answers] == [text] * len(answers)
        assert answer({"prompt": ""}).status_code == 422
        too_long = answer({"prompt": "\u4e2d" * 3000})
        assert too_long.status_code == 400
        assert "the context holds" in too_long.json()["detail"]
        assert answer(asked).text == text


def test_the_notebook(examples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for cell in cells(examples / "who_wrote_it.ipynb"):
        exec(compile("".join(cell["source"]), "who_wrote_it.ipynb", "exec"), names)
    shown = capsys.readouterr().out
    assert re.search(r"\[[^\]]+\]", shown)
    assert re.search(r"\d+% of the drafted tokens were accepted", shown)
    assert shown.strip().splitlines()[-1].startswith("True ")


def test_the_notebook_has_no_outputs(examples: Path) -> None:
    for cell in cells(examples / "who_wrote_it.ipynb"):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
