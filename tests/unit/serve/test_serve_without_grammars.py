"""JSON on a server without llguidance: refused at once, by a status that clients do not repeat."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from served_here import ASKED, run, serving_here

from edgedec import Pipeline
from edgedec.errors import RuntimeUnavailable
from edgedec.serve import errors

MESSAGES = [{"role": "user", "content": "Hi"}]
JSON = {"type": "json_object"}


async def attempts(http: httpx.AsyncClient, **asked: Any) -> tuple[int, int]:
    """The status of a request of OpenAI's client, and how often it was sent."""
    sent: list[httpx.Request] = []

    async def count(request: httpx.Request) -> None:
        sent.append(request)

    http.event_hooks = {"request": [count]}
    client = openai.AsyncOpenAI(
        base_url="http://localhost/v1", api_key="none", http_client=http, max_retries=1
    )
    with pytest.raises(openai.APIStatusError) as caught:
        await client.chat.completions.create(messages=MESSAGES, **asked)  # type: ignore[call-overload]
    return caught.value.status_code, len(sent)


def test_a_request_for_json_is_not_repeated(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    monkeypatch.setattr(pipeline, "_grammars", None)

    async def check() -> None:
        async with serving_here(pipeline) as (_, http):
            assert await attempts(http, **ASKED, response_format=JSON) == (501, 1)
            refused = await http.post(
                "/v1/chat/completions",
                json={**ASKED, "messages": MESSAGES, "response_format": JSON},
            )
            error = refused.json()["error"]
            assert re.search(r"needs llguidance.*pip install.*\[grammar\]", error["message"])
            assert error["code"] == "package_not_installed"
            asked = {"model": "tiny", "messages": MESSAGES, "format": "json", "stream": False}
            assert (await http.post("/api/chat", json=asked)).status_code == 501

    run(check())


def test_the_control_what_may_pass_is_repeated(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same client sends it again where the error is not of a package that is missing."""
    lost = errors.of(RuntimeUnavailable("the device is busy"))
    assert lost.status == 503
    monkeypatch.setattr(errors, "of", lambda error: lost)
    monkeypatch.setitem(sys.modules, "llguidance", None)
    monkeypatch.setattr(pipeline, "_grammars", None)

    async def check() -> None:
        async with serving_here(pipeline) as (_, http):
            assert await attempts(http, **ASKED, response_format=JSON) == (503, 2)

    run(check())


def test_what_readme_installs_has_it(repository: Path) -> None:
    """`make demo`, and the extra of `edgedec serve`."""
    project = (repository / "pyproject.toml").read_text("utf-8")
    serve = re.search(r"^serve = \[(.*?)^\]", project, re.MULTILINE | re.DOTALL)
    assert serve is not None
    assert "edgedec-runtime[grammar]" in serve[1]
    makefile = (repository / "Makefile").read_text("utf-8")
    use = makefile.split("\n$(USE):")[1].split("\n\n")[0]
    installed = re.search(r"'\.\[([\w,]+)\]'", use)
    assert installed is not None
    assert "grammar" in installed[1].split(",")
