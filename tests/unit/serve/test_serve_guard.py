"""Who may call a server, and what a request may not do."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from serving import Server
from waiting import LIMIT_S, until

from edgedec import GenerateOptions, Pipeline
from edgedec.decoding.emission import Emission
from edgedec.decoding.sampling import SamplingParams
from edgedec.errors import InputError
from edgedec.serve.errors import ApiError
from edgedec.serve.run import read_keys
from edgedec.serve.settings import Settings
from edgedec.serve.turns import News, Ticket, Turns, Work, joined

KEY = "a-key-of-this-test-0123456789"
BODY = {"model": "tiny", "prompt": "x", "max_tokens": 4, "temperature": 0}
# Ids of special tokens, any of which may end a text.
_ENDS = {str(token): -100 for token in (0, 1, 2, 3, 4, 340, 341)}
LONG = {**BODY, "max_tokens": 1900, "stream": True, "logit_bias": _ENDS}


@pytest.fixture(scope="module")
def locked(start: Callable[..., Any]) -> Iterator[Server]:
    with start("--allow-origin", "http://app.example", "--allow-host", "box.example", key=KEY) as s:
        yield s


def raw(server: Server, data: bytes, seconds: float = 10) -> bytes:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=seconds) as sock:
        sock.sendall(data)
        found = b""
        while more := sock.recv(65536):
            found += more
    return found


class TestKey:
    def test_it_is_demanded(self, locked: Server) -> None:
        assert locked.client().models.list().data
        for wrong in ("none", KEY + "x", KEY[:-1], "é"):
            headers = {"Authorization": f"Bearer {wrong}".encode()}
            found = locked.get("/v1/models", headers=headers)
            assert found.status_code == 401
            assert found.json()["error"]["code"] == "invalid_api_key"
        with pytest.raises(openai.AuthenticationError):
            locked.client(api_key="wrong").completions.create(model="tiny", prompt="x")
        for path in ("/metrics", "/edgedec/status", "/tokenize", "/nothing"):
            assert locked.get(path).status_code == 401
        for path in ("/health", "/", "/page/main.js", "/page/vendor/markdown-it.esm.min.mjs"):
            assert locked.get(path).status_code == 200

    def test_it_comes_from_a_file(self, start: Callable[..., Any], tmp_path: Path) -> None:
        file, other = tmp_path / "key", KEY[::-1]
        file.write_text(f"{KEY}\n{other}\n")
        with start("--api-key-file", str(file)) as server:
            assert server.get("/v1/models").status_code == 401
            for key in (KEY, other):
                assert server.client(api_key=key).models.list().data
            for wrong in (f"{KEY}\\n{other}", KEY + other):
                headers = {"Authorization": f"Bearer {wrong}"}
                assert server.get("/v1/models", headers=headers).status_code == 401

    @pytest.mark.parametrize("keys", ["short", f"{KEY}\nshort", f"{KEY}\n\n{KEY}x", ""])
    def test_one_that_is_too_short_is_refused(self, tmp_path: Path, keys: str) -> None:
        file = tmp_path / "key"
        file.write_text(keys)
        with pytest.raises(InputError, match="a key of at least 16 printable characters"):
            read_keys(file)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200), ("localhost:1234", 200), ("[::1]:80", 200), ("box.example:8080", 200),
        ("evil.example", 421), ("localhost.evil.example", 421), ("", 421),
        ("127.0.0.1.nip.io", 421), ("127.0.0.1/.evil.example", 421), ("[::1].evil", 421),
        ("evil.example@127.0.0.1", 421), ("127.0.0.1:80:80", 421), ("127.0.0.1?x", 421),
    ],
)  # fmt: skip
def test_a_foreign_name_is_refused(locked: Server, host: str, status: int) -> None:
    assert locked.get("/health", headers={"Host": host}).status_code == status


def test_only_listed_pages_may_call(locked: Server, server: Server) -> None:
    key = {"Authorization": f"Bearer {KEY}"}
    listed = locked.get("/v1/models", headers={**key, "Origin": "http://app.example"})
    assert listed.headers["access-control-allow-origin"] == "http://app.example"
    other = locked.get("/v1/models", headers={**key, "Origin": "http://evil.example"})
    assert other.status_code == 403
    assert "access-control-allow-origin" not in other.headers
    own = server.get("/health", headers={"Origin": server.url})
    assert own.status_code == 200
    for origin in ("http://app.example", "null"):
        assert server.get("/health", headers={"Origin": origin}).status_code == 403


def _post(server: Server, data: bytes, kind: str = "application/json") -> Any:
    import httpx

    headers = {"Content-Type": kind}
    return httpx.post(
        server.url + "/v1/completions", content=data, headers=headers, timeout=LIMIT_S
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a": NaN}',
        b'{"n": ' + b"9" * 10_000 + b"}",
    ],
)
def test_what_is_no_json_object_is_refused(server: Server, data: bytes) -> None:
    found = _post(server, data)
    assert found.status_code == 400
    assert found.json()["error"]["type"] == "invalid_request_error"


def test_headers_lock_answers_down(server: Server) -> None:
    for path in ("/", "/v1/models", "/nothing"):
        found = server.get(path).headers
        assert "default-src 'none'" in found["content-security-policy"]
        assert "unsafe" not in found["content-security-policy"]
        assert found["x-content-type-options"] == "nosniff"
        assert found["x-frame-options"] == "DENY"
        assert "server" not in found


def test_unknown_routes_and_methods_have_the_apis_shape(server: Server) -> None:
    assert server.get("/v1/nothing").json()["error"]["code"] == "not_found"
    found = server.get("/v1/completions")
    assert found.status_code == 405
    assert "message" in found.json()["error"]


@pytest.mark.parametrize(
    "path",
    [
        "/page/../settings.py",
        "/page/%2e%2e/guard.py",
        "/static/main.js",
        "/page/vendor/LICENSE.txt",
    ],
)
def test_no_other_file_is_served(server: Server, path: str) -> None:
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert raw(server, head.encode()).startswith(b"HTTP/1.1 404")


class TestQueue:
    def test_a_short_text_does_not_wait_for_a_long_one(self, server: Server) -> None:
        with server.client().completions.create(**LONG) as long:
            tokens = iter(long)
            next(tokens)
            assert server.client().completions.create(**BODY).choices
            # It is answered a moment before it is counted as ended; the long one goes on.
            until(lambda: server.figure("edgedec_running_requests") == 1)
            next(tokens)


class TestLeaving:
    @pytest.mark.parametrize("stream", [True, False])
    def test_a_client_that_leaves_ends_its_text(self, server: Server, stream: bool) -> None:
        body = json.dumps({**LONG, "stream": stream}).encode()
        host, port = server.url.removeprefix("http://").split(":")
        head = (
            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode()
        before = server.figure("edgedec_generated_tokens_total")
        with socket.create_connection((host, int(port))) as sock:
            sock.sendall(head + body)
            until(lambda: server.figure("edgedec_running_requests") == 1)
        until(lambda: server.figure("edgedec_running_requests") == 0)
        decoded = server.figure("edgedec_generated_tokens_total") - before
        assert decoded < LONG["max_tokens"]

    async def test_it_ends_within_a_round(self, bundle: Path) -> None:
        bias = {int(token): -100.0 for token in _ENDS}
        work = Work([5, 6, 7], GenerateOptions(1900, SamplingParams(logit_bias=bias)))
        with Pipeline.open(bundle, drafter="lookup", threads=1, parallel=2) as pipeline:
            turns = Turns(pipeline, Settings("tiny", parallel=2, queue=2))
            ticket = Ticket([work], timeout_s=60)
            late: list[Any] = []
            put = ticket.put

            def counted(events: Any) -> bool:
                if ticket.left:
                    late.append(events)
                return put(events)

            ticket.put = counted  # type: ignore[method-assign]
            turns.submit(ticket)
            assert await ticket.take()
            ticket.leave()
            while await ticket.take():
                pass
            turns.close()
            assert len(late) <= 1


async def test_rounds_are_sent_together_and_ends_at_once() -> None:
    """The first news wakes the client, those close after it wait for it, and an end does not."""

    def news(choice: int, token: int) -> News:
        return News(choice, [Emission(token, "x", "target")])

    ticket = Ticket([], timeout_s=10)
    first = asyncio.create_task(ticket.take())
    await asyncio.sleep(0)
    thread = threading.Thread(target=ticket.tell, args=(news(0, 1),))
    thread.start()
    assert len(await first) == 1
    thread.join()
    second = asyncio.create_task(ticket.take())
    await asyncio.sleep(0)
    for token in range(5):
        ticket.tell(news(0, token))
    await asyncio.sleep(0)
    assert not second.done()  # it comes by itself
    assert [len(one.events) for one in joined(await second)] == [5]
    third = asyncio.create_task(ticket.take())
    await asyncio.sleep(0)
    ticket.tell(news(0, 9))
    ticket.end()
    assert len(await third) == 1
    assert await ticket.take() == []
    mixed = [news(0, 1), news(1, 2), news(1, 3), news(0, 4)]
    assert [(one.choice, len(one.events)) for one in joined(mixed)] == [(0, 1), (1, 2), (0, 1)]


async def test_a_reader_too_slow_is_left_behind() -> None:
    """The text ends, what came before it is kept, and the decoding thread never waits."""
    ticket = Ticket([], timeout_s=10, most_unread=10)
    events = [Emission(1, "x", "target")] * 6
    thread = threading.Thread(target=lambda: [ticket.tell(News(0, events)) for _ in range(2)])
    thread.start()
    thread.join()
    assert ticket.left
    assert len(await ticket.take()) == 2
    with pytest.raises(ApiError, match="left 12 tokens unread"):
        await ticket.take()
    patient = Ticket([], timeout_s=10, most_unread=10)
    for _ in range(20):
        patient.tell(News(0, events))
        assert await patient.take()
    assert not patient.left
