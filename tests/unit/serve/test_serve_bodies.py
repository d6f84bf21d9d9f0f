"""Bodies: what all of them hold, what JSON may hold, and what errors repeat of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from served_here import ASKED, serving_here
from starlette.requests import ClientDisconnect, Request

from edgedec import Pipeline
from edgedec.serve import body
from edgedec.serve.errors import Answer, ApiError
from edgedec.serve.settings import Limits
from edgedec.serve.shared import Bodies

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


class TestStructure:
    """Python parses JSON without a pause, so what takes it long is refused first."""

    @pytest.mark.parametrize("unit", ['{"":0}', "[]", '""', "0.5", "1", '"\\""', '"\\\\"'])
    def test_many_values_are_refused_unparsed(
        self, monkeypatch: pytest.MonkeyPatch, unit: str
    ) -> None:
        monkeypatch.setattr(body.json, "loads", lambda *given, **options: pytest.fail("parsed"))
        raw = f'{{"a": [{",".join([unit] * 600_000)}]}}'.encode()
        with pytest.raises(ApiError, match="values"):
            body.parsed(raw)

    @pytest.mark.parametrize("text", ["[{,}]" * 100_000, '"' * 100_000, "\\" * 99_999, '\\"' * 9])
    def test_texts_may_hold_anything(self, text: str) -> None:
        given = {"a": text, "b": ["x" * body._MOST_PARTS]}
        assert body.parsed(json.dumps(given).encode()) == given

    def test_values_up_to_the_limit_are_taken(self) -> None:
        given = {"prompt": list(range(1000, 1000 + body.MOST_VALUES))}
        assert body.parsed(json.dumps(given).encode()) == given

    @given(value=JSON, ascii_=st.booleans())
    def test_no_structure_hides_in_a_text(self, value: Any, ascii_: bool) -> None:
        """What is counted outside of texts is what JSON itself has there."""
        raw = json.dumps({"a": value}, ensure_ascii=ascii_).encode("utf-8", "surrogatepass")

        def parts(one: Any) -> int:
            inner = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
            return isinstance(one, (dict, list)) + sum(map(parts, inner))

        monkeypatch = pytest.MonkeyPatch()
        with monkeypatch.context() as patch:
            patch.setattr(body, "_MOST_PARTS", exact := parts({"a": value}))
            assert body._is_plain(raw, 1 << 30)
            patch.setattr(body, "_MOST_PARTS", exact - 1)
            assert not body._is_plain(raw, 1 << 30) or len(raw) <= exact - 1


def arriving(*chunks: bytes, then: Awaitable[Any] | None = None) -> Request:
    """A request whose body comes in these chunks, and then stays unfinished or is left."""
    left = list(chunks)

    async def receive() -> dict[str, Any]:
        if left:
            return {"type": "http.request", "body": left.pop(0), "more_body": True}
        if then is None:
            return {"type": "http.request", "body": b"", "more_body": False}
        await then
        return {"type": "http.disconnect"}

    return Request({"type": "http", "method": "POST", "headers": []}, receive)


async def rounds() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class TestBodies:
    LIMITS = Limits(body_bytes=100)

    async def test_the_oldest_unfinished_one_gives_way(self) -> None:
        never = asyncio.get_running_loop().create_future()
        bodies = Bodies(self.LIMITS, most=250)
        silent = []
        for _ in range(4):
            stays = arriving(b"x" * 80, then=asyncio.shield(never))
            silent.append(asyncio.create_task(bodies.receive(stays)))
            await rounds()
        assert [one.done() for one in silent] == [True, False, False, False]
        with pytest.raises(ApiError) as refused:
            await silent[0]
        assert (refused.value.status, refused.value.code) == (503, "insufficient_memory")
        assert refused.value.retry_s
        # Who sends all that it has is served, however many stay unfinished.
        assert await bodies.receive(arriving(b"y" * 60, b"y" * 30)) == b"y" * 90
        bodies.close()
        ended = await asyncio.gather(*silent, return_exceptions=True)
        assert [one.code for one in ended if isinstance(one, ApiError)] == [
            "insufficient_memory", "insufficient_memory", "shutting_down", "shutting_down",
        ]  # fmt: skip
        assert bodies._held == 0

    async def test_what_waits_to_be_parsed_counts(self) -> None:
        bodies = Bodies(self.LIMITS, most=100)
        raw = await bodies.receive(arriving(b"x" * 90))
        with bodies.counted(raw), pytest.raises(ApiError, match="other requests fill"):
            await bodies.receive(arriving(b"y" * 20))
        assert await bodies.receive(arriving(b"y" * 20)) == b"y" * 20

    @pytest.mark.parametrize(("declared", "chunks"), [(60, (20, 40)), (0, (60,))])
    async def test_nobody_gives_way_to_a_body_that_would_not_fit_even_so(
        self, declared: int, chunks: tuple[int, ...]
    ) -> None:
        never = asyncio.get_running_loop().create_future()
        bodies = Bodies(self.LIMITS, most=100)
        raw = await bodies.receive(arriving(b"x" * 50))
        with bodies.counted(raw):
            stays = arriving(b"y" * 40, then=asyncio.shield(never))
            older = asyncio.create_task(bodies.receive(stays))
            await rounds()
            large = arriving(*(b"z" * count for count in chunks))
            if declared:
                large.scope["headers"] = [(b"content-length", b"%d" % declared)]
            with pytest.raises(ApiError, match="other requests fill"):
                await bodies.receive(large)
            await rounds()
            assert not older.done()
            # The control: one that fits then.
            assert await bodies.receive(arriving(b"z" * 20, b"z" * 25)) == b"z" * 45
            with pytest.raises(ApiError, match="other requests fill"):
                await older
        assert bodies._held == 0

    @pytest.mark.parametrize("how", ["leaves", "late", "large"])
    async def test_memory_of_a_body_that_fails_is_given_back(self, how: str) -> None:
        limits = Limits(body_bytes=100, body_s=0.01 if how == "late" else 30)
        loop = asyncio.get_running_loop()
        then = loop.create_future()
        if how == "leaves":
            then.set_result(None)
        bodies = Bodies(limits, most=250)
        chunks = [b"x" * 80] * (2 if how == "large" else 1)
        expected: Any = ClientDisconnect if how == "leaves" else ApiError
        with pytest.raises(expected) as failed:
            await bodies.receive(arriving(*chunks, then=then))
        assert bodies._held == 0
        seen: Any = failed.value
        while seen is not None:  # even while the error is kept
            for frame in _frames(seen.__traceback__):
                assert not frame.f_locals.get("raw")
            seen = seen.__cause__ or seen.__context__


def _frames(traceback: Any) -> Iterator[Any]:
    while traceback is not None:
        yield traceback.tb_frame
        traceback = traceback.tb_next


HALF = "\ud800"


@pytest.mark.parametrize(
    "change",
    [
        {HALF: 1},
        {"x" * 2_000_000: 1},
        {"\x1b[31m\n": 1},
        {"model": HALF + "x" * 2_000_000},
        {"stop": [{"a" * 2_000_000: HALF}]},
        {"logit_bias": {HALF * 100_000: 1}},
        {"edgedec": {HALF * 100_000: 1}},
        {"edgedec": {"draft": HALF * 100_000}},
        {"temperature": "9" * 2_000_000},
        {"prompt": HALF},
        {"prompt": [HALF]},
        {"response_format": {"type": HALF * 1000}, "messages": [{"role": "user", "content": "x"}]},
        {"tools": [{"type": "function", "function": {"name": HALF * 90}}]},
        {"messages": [{"role": HALF, "content": HALF}]},
    ],
)
async def test_what_an_error_repeats_is_short_and_printable(
    pipeline: Pipeline, change: dict[str, Any]
) -> None:
    chat = {"messages", "tools", "response_format"} & set(change)
    path = "/v1/chat/completions" if chat else "/v1/completions"
    plain = {} if chat else {"prompt": "x"}
    async with serving_here(pipeline, strict=True) as (_, client):
        content = json.dumps({**ASKED, **plain, **change})
        found = await client.post(
            path, content=content, headers={"Content-Type": "application/json"}
        )
        assert found.status_code in (400, 404), found.text
        error = found.json()["error"]
        assert error["message"].isprintable()
        assert len(found.content) < 3000
        long = await client.get("/" + "%1b" * 9000)
        assert long.json()["error"]["message"].isprintable()
        assert len(long.content) < 1000


def test_half_a_surrogate_in_an_answer_is_escaped() -> None:
    assert json.loads(Answer({"text": HALF + "é"}).body) == {"text": HALF + "é"}
