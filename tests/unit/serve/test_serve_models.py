"""Several models of one server: which answers, when each is loaded, and when it is dropped."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from kinds import in_full
from many_models import ASKED, World, asked, loaded, passes, run, served, until
from served_here import models_here
from test_serve_routes import TEXTS

from edgedec import Pipeline
from edgedec.errors import BundleError, InputError, MemoryBudgetError
from edgedec.serve import app, keeping
from edgedec.serve.models import Visit
from edgedec.serve.turns import Ticket

Worlds = Callable[..., World]
runs = run  # the tests, in a loop whose time passes when they say so
MB = 1_000_000
NEVER = "9999-12-31T23:59:59Z"


@pytest.fixture
def world(bundle: Path, tmp_path: Path) -> Worlds:
    def made(limit: int = 1 << 40, **sizes: int) -> World:
        return World(bundle, tmp_path, sizes or {"a": 10 * MB, "b": 10 * MB, "c": 10 * MB}, limit)

    return made


class TestWhichAnswers:
    @pytest.mark.parametrize("path", in_full(TEXTS, 2))
    async def test_the_one_that_a_request_names(self, world: Worlds, path: str) -> None:
        async with served(world()) as (there, client):
            for name, answers in (("b", "b"), ("b:latest", "b"), ("id-c", "c"), ("", "a")):
                found = await client.post(path, json={**TEXTS[path], "model": name})
                assert found.status_code == 200
                assert found.json()["model"] == answers
                header = found.headers.get("x-edgedec-model")
                assert header == (None if name else "a")
            unnamed = await client.post(path, json=TEXTS[path])
            assert unnamed.json()["model"] == "a"
            unknown = await client.post(path, json={**TEXTS[path], "model": "d"})
            assert unknown.status_code == 404
            assert "model d: this server has 'a', 'b', 'c'" in unknown.text
            assert there.log == ["+b", "+c", "+a"]

    async def test_a_strict_server_wants_a_name(self, world: Worlds) -> None:
        async with served(world(), strict=True) as (_, client):
            assert (await asked(client, "b")).status_code == 200
            assert (await asked(client)).status_code == 404

    async def test_all_are_listed_and_those_loaded_are_told(self, world: Worlds) -> None:
        async with served(world(a=10 * MB, b=20 * MB)) as (_, client):
            await asked(client, "b")
            cards = (await client.get("/v1/models")).json()["data"]
            assert [one["id"] for one in cards] == ["a", "b"]
            assert [one["edgedec"]["loaded"] for one in cards] == [False, True]
            assert [one["edgedec"]["plan"] is None for one in cards] == [True, False]
            one = (await client.get("/v1/models/a")).json()
            assert one["edgedec"].pop("sampling")["temperature"] == 0.7
            assert one["edgedec"] == {
                **cards[0]["edgedec"], "chat": True, "max_context": 64, "notes": [],
            }  # fmt: skip
            assert (await client.get("/v1/models/d")).status_code == 404
            tags = (await client.get("/api/tags")).json()["models"]
            assert (tags[0]["name"], tags[0]["size"]) == ("a", 5 * MB)
            assert [one["details"]["family"] for one in tags] == ["llama"] * 2
            (held,) = (await client.get("/api/ps")).json()["models"]
            assert (held["name"], held["size"]) == ("b", 20 * MB)
            status = (await client.get("/edgedec/status")).json()
            assert status["loaded"] == ["b"]
            assert "edgedec_loaded_models 1.0" in (await client.get("/metrics")).text

    async def test_what_is_shown_of_one_loads_nothing(self, world: Worlds) -> None:
        async with served(world()) as (there, client):
            before = (await client.post("/api/show", json={"model": "b"})).json()
            assert before["capabilities"] == ["completion", "tools"]
            assert before["model_info"]["llama.context_length"] == 64
            assert (await client.get("/props")).json()["role"] == "router"
            assert not there.log
            await asked(client, "b")
            after = (await client.post("/api/show", json={"model": "b"})).json()
            assert after["model_info"]["llama.context_length"] == 2048
            assert after["template"] == before["template"]
            props = (await client.get("/props", params={"model": "c"})).json()
            assert props["model_alias"] == "c"
            assert there.log == ["+b", "+c"]

    async def test_tokens_are_counted_by_the_model_that_is_named(self, world: Worlds) -> None:
        async with served(world()) as (there, client):
            talk = {"messages": [{"role": "user", "content": "Hi"}], "model": "b"}
            found = await client.post("/v1/messages/count_tokens", json=talk)
            assert found.json()["input_tokens"] > 0
            found = await client.post("/tokenize", json={"prompt": "Hi", "model": "c"})
            assert found.json()["count"] > 0
            assert there.log == ["+b", "+c"]

    async def test_what_one_has_cached_another_does_not_show(self, world: Worlds) -> None:
        def cached(answer: Any) -> int:
            found: int = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
            return found

        async with served(world()) as (_, client):
            prompt = {"prompt": "A secret of somebody else"}
            assert cached(await asked(client, "a", **prompt)) == 0
            assert cached(await asked(client, "b", **prompt)) == 0
            assert cached(await asked(client, "a", **prompt)) > 5  # the control


class TestLoading:
    async def test_two_requests_load_it_once(self, world: Worlds) -> None:
        async with served(world()) as (there, client):
            there.held.add("b")
            both = [asyncio.create_task(asked(client, "b")) for _ in range(2)]
            await until(lambda: there.opening == ["b"])
            there.held.clear()
            assert [(await one).status_code for one in both] == [200, 200]
            assert there.log == ["+b"]
            await asked(client, "b", keep_alive=0)
            await until(lambda: there.log == ["+b", "-b"])
            await asked(client, "b")  # the control
            assert there.log == ["+b", "-b", "+b"]

    async def test_loading_counts_towards_the_time_of_a_request(
        self, world: Worlds, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        left: list[float] = []

        class Noted(Ticket):
            def __init__(self, *given: Any, timeout_s: float, **more: Any) -> None:
                left.append(timeout_s)
                super().__init__(*given, timeout_s=timeout_s, **more)

        monkeypatch.setattr(app, "Ticket", Noted)
        async with served(world()) as (there, client):
            there.held.add("b")
            waiting = asyncio.create_task(asked(client, "b"))
            await until(lambda: there.opening == ["b"])
            passes(500)
            there.held.clear()
            await waiting
            await asked(client, "b")
            assert 0 < left[0] <= 100
            assert left[1] == 600  # the control

    async def test_the_time_of_loading_is_told(self, world: Worlds) -> None:
        async with served(world()) as (_, client):

            async def durations() -> tuple[int, int]:
                body = {"model": "b", "prompt": "x", "stream": False}
                body["options"] = {"num_predict": 2}
                found = (await client.post("/api/generate", json=body)).json()
                return found["load_duration"], found["total_duration"]

            loading, total = await durations()
            assert 0 < loading < total
            assert (await durations())[0] == 0  # the control

    async def test_everything_else_goes_on_meanwhile(self, world: Worlds) -> None:
        async with served(world()) as (there, client):
            await asked(client, "a")
            there.held.add("b")
            waiting = asyncio.create_task(asked(client, "b"))
            await until(lambda: there.opening == ["a", "b"])
            assert (await client.get("/health")).status_code == 200
            lines = (await asked(client, "a", stream=True)).text
            assert "[DONE]" in lines
            assert not waiting.done()
            there.held.clear()
            assert (await waiting).status_code == 200

    @pytest.mark.parametrize(
        ("error", "code"),
        [(BundleError("b is damaged: export it again"), "model_not_loaded"),
         (InputError("b: no such file"), "model_not_loaded"),
         (MemoryBudgetError("it needs 9 MB, and 5 MB are granted"), "insufficient_memory")],
    )  # fmt: skip
    async def test_one_that_fails_is_a_line_and_the_others_go_on(
        self, world: Worlds, error: Exception, code: str
    ) -> None:
        async with served(world()) as (there, client):
            there.failing["b"] = error
            found = await asked(client, "b")
            assert found.status_code == 503
            assert found.json()["error"]["code"] == code
            assert found.json()["error"]["message"] == f"b cannot be loaded: {error}"
            assert (await asked(client, "a")).status_code == 200
            if code == "model_not_loaded":
                there.failing.clear()
                assert (await asked(client, "b")).status_code == 200

    async def test_a_file_that_is_gone_is_a_line_too(self, world: Worlds) -> None:
        async with served(world()) as (there, client):
            there.files["b"].unlink()
            found = await asked(client, "b")
            assert (found.status_code, "b.bin" in found.text) == (503, True)
            assert (await client.get("/api/tags")).json()["models"][1]["size"] == 0
            there.files["b"].write_bytes(b"again")
            assert (await asked(client, "b")).status_code == 200

    async def test_those_who_wait_have_a_limit_and_a_deadline(self, world: Worlds) -> None:
        there = world()
        there.held.add("b")
        models = there.models(parallel=1, queue=1)
        async with models_here(models) as client:
            two = [asyncio.create_task(asked(client, "b")) for _ in range(2)]
            await until(lambda: there.opening == ["b"])
            more = await asked(client, "b")
            assert (more.status_code, "retry-after" in more.headers) == (429, True)
            passes(601)
            assert [(await one).status_code for one in two] == [504, 504]
            there.held.clear()
            await until(lambda: models.entries[1].timer)
            # Nobody waits for it any longer, and it goes in its time.
            passes(299)
            await asyncio.sleep(0.05)
            assert await loaded(client) == ["b"]
            passes(2)
            await until(lambda: there.log == ["+b", "-b"])
            assert (await asked(client, "b")).status_code == 200


class TestKeeping:
    async def test_it_is_dropped_when_it_was_not_used_for_a_while(self, world: Worlds) -> None:
        there = world()
        models = there.models()
        async with models_here(models) as client:
            entry = models.entries[0]
            await asked(client, "a")
            await until(lambda: entry.timer)
            passes(200)
            await asked(client, "a")  # which it is kept for again
            await until(lambda: entry.timer)
            passes(200)
            await asyncio.sleep(0.05)
            assert await loaded(client) == ["a"]
            passes(101)
            await until(lambda: there.log == ["+a", "-a"])
            assert await loaded(client) == []

    async def test_one_that_is_used_as_its_time_is_over_stays(self, world: Worlds) -> None:
        """It would be dropped once another is loaded, and is asked for before that."""
        there = world()
        models = there.models()
        async with models_here(models) as client:
            entry = models.entries[0]
            await asked(client, "a")
            await until(lambda: entry.timer)
            there.held.add("b")
            other = asyncio.create_task(asked(client, "b"))
            await until(lambda: there.opening == ["a", "b"])
            passes(301)
            await until(lambda: len(models.room._tasks) == 2)
            await asked(client, "a")
            await until(lambda: entry.until > asyncio.get_running_loop().time())
            there.held.clear()
            await other
            await until(lambda: not models.room._tasks)
            assert there.log == ["+a", "+b"]

    @pytest.mark.parametrize("path", in_full(TEXTS, 2))
    async def test_a_request_says_for_how_long(self, world: Worlds, path: str) -> None:
        there = world()
        models = there.models()
        async with models_here(models) as client:

            async def kept(keep: Any) -> Any:
                body = {**TEXTS[path], "model": "a", "keep_alive": keep}
                answer = await client.post(path, json=body)
                assert "x-edgedec-ignored" not in answer.headers
                return answer

            assert (await kept("10m")).status_code == 200
            await until(lambda: models.entries[0].timer)
            passes(500)
            await asyncio.sleep(0.05)
            assert await loaded(client) == ["a"]
            await kept(-1)
            passes(10**8)
            await asyncio.sleep(0.05)
            ((held,)) = (await client.get("/api/ps")).json()["models"]
            assert held["expires_at"] == NEVER
            await kept(0)
            await until(lambda: there.log == ["+a", "-a"])
            wrong = await kept("soon")
            assert (wrong.status_code, "keep_alive: expected" in wrong.text) == (400, True)

    async def test_the_time_is_told(self, world: Worlds) -> None:
        async with served(world(), keep_s=3600) as (_, client):
            await asked(client, "a")
            (held,) = (await client.get("/api/ps")).json()["models"]
            left = datetime.fromisoformat(held["expires_at"]) - datetime.now(timezone.utc)
            assert 3000 < left.total_seconds() <= 3600

    @pytest.mark.parametrize(
        ("path", "empty"), [("/api/chat", {"messages": []}), ("/api/generate", {})]
    )
    async def test_an_empty_request_loads_and_drops(
        self, world: Worlds, path: str, empty: Mapping[str, Any]
    ) -> None:
        async with served(world()) as (there, client):

            async def told(**more: Any) -> str:
                answer = await client.post(path, json={"model": "b", **empty, **more})
                assert answer.status_code == 200
                return str(answer.json()["done_reason"])

            assert await told(keep_alive=0) == "unload"
            assert not there.log
            assert await told() == "load"
            assert there.log == ["+b"]
            assert await told(keep_alive=0) == "unload"
            await until(lambda: there.log == ["+b", "-b"])

    @pytest.mark.parametrize(
        ("given", "wanted"),
        [("5m", 300), ("1h30m", 5400), ("90", 90), (90, 90), (1.5, 1.5), ("1.5h", 5400),
         ("500ms", 0.5), (0, 0), ("0", 0), ("0s", 0), (-1, keeping.FOR_EVER),
         ("-1", keeping.FOR_EVER), ("-1m", keeping.FOR_EVER), (1e300, keeping.FOR_EVER),
         ("999999999999h", keeping.FOR_EVER)],
    )  # fmt: skip
    def test_durations(self, given: Any, wanted: float) -> None:
        assert keeping.seconds(given) == wanted

    @pytest.mark.parametrize(
        "given", ["", "soon", "5", True, None, [], "5x", "m", "1e3", "٣m", "1" * 90, "- 1", "nan"]
    )
    def test_what_is_none(self, given: Any) -> None:
        if given == "5":  # the control
            assert keeping.seconds(given) == 5
            return
        with pytest.raises(InputError, match="keep_alive: expected seconds, a duration such as 5m"):
            keeping.seconds(given)


class TestRoom:
    """Memory for two of three."""

    async def test_the_one_not_used_for_longest_is_dropped(self, world: Worlds) -> None:
        async with served(world(limit=25 * MB)) as (there, client):
            for name in ("a", "b", "a", "c"):
                assert (await asked(client, name)).status_code == 200
            assert there.log == ["+a", "+b", "-b", "+c"]
            assert sorted(await loaded(client)) == ["a", "c"]

    async def test_as_many_as_it_takes(self, world: Worlds) -> None:
        async with served(world(limit=25 * MB, a=10 * MB, b=10 * MB, c=20 * MB)) as (there, client):
            for name in ("a", "b", "c"):
                assert (await asked(client, name)).status_code == 200
            assert there.log == ["+a", "+b", "-a", "-b", "+c"]

    async def test_what_opening_finds_out_drops_another(self, world: Worlds) -> None:
        """Its files are small, and it takes more: it is opened again once there is room."""
        async with served(world()) as (there, client):
            there.failing["b"] = MemoryBudgetError("no room")
            await asked(client, "a")
            close = there.pipelines["a"].close

            def closed() -> None:
                there.failing.clear()
                close()

            there.pipelines["a"].close = closed  # type: ignore[method-assign]
            assert (await asked(client, "b")).status_code == 200
            assert there.log == ["+a", "-a", "+b"]

    async def test_a_short_context_beside_another_drops_that(self, world: Worlds) -> None:
        async with served(world()) as (there, client):
            there.squeezed.add("b")
            await asked(client, "a")
            assert (await asked(client, "b")).status_code == 200
            assert there.log == ["+a", "+b", "-b", "-a", "+b"]
            shown = (await client.get("/api/ps")).json()["models"]
            assert [one["context_length"] for one in shown] == [2048]
            # The control: the other's is not, and it stays.
            assert (await asked(client, "c")).status_code == 200
            assert there.log[-1] == "+c"

    async def test_one_that_never_fits_drops_the_others_once(self, world: Worlds) -> None:
        async with served(world()) as (there, client):
            there.failing["b"] = MemoryBudgetError("it needs 9 MB, and 5 MB are granted")
            for _ in range(2):
                await asked(client, "a")
                found = await asked(client, "b")
                assert (found.status_code, "needs 9 MB" in found.text) == (503, True)
            assert there.log == ["+a", "-a", "+a"]

    async def test_one_that_decodes_is_not_dropped_and_neither_waits_for_ever(
        self, world: Worlds, gate: threading.Event
    ) -> None:
        """A text of ``a`` runs when ``b`` is wanted; a further one of ``a`` comes after ``b``."""
        there = world(limit=15 * MB)
        models = there.models()
        async with models_here(models) as client:
            running = asyncio.create_task(asked(client, "a"))
            await until(lambda: models.loaded and models.loaded[0].turns.running)
            other = asyncio.create_task(asked(client, "b"))
            await until(lambda: models.entries[0].leaving)
            late = asyncio.create_task(asked(client, "a"))
            await until(lambda: models.entries[0].queue)
            assert there.log == ["+a"]
            assert (await client.get("/health")).status_code == 200
            gate.set()
            for one in (running, other, late):
                assert (await one).status_code == 200
            assert there.log == ["+a", "-a", "+b", "-b", "+a"]
            # The control: where there is room for both, nothing of it is needed.
            models.room._granted = lambda: 10**12
            assert (await asked(client, "b")).status_code == 200
            assert there.log[-1] == "+b"

    async def test_a_request_that_goes_lets_the_others_stay(
        self, world: Worlds, gate: threading.Event
    ) -> None:
        """Nobody waits for ``b`` any longer when the text of ``a`` ends."""
        there = world(limit=15 * MB)
        models = there.models()
        async with models_here(models) as client:
            running = asyncio.create_task(asked(client, "a"))
            await until(lambda: models.loaded and models.loaded[0].turns.running)
            other = asyncio.create_task(asked(client, "b"))
            await until(lambda: models.entries[0].leaving)
            passes(601)
            assert (await other).status_code == 504
            await until(lambda: not models.entries[0].leaving)
            gate.set()
            await running
            assert (await asked(client, "a")).status_code == 200
            assert there.log == ["+a"]

    async def test_a_text_that_memory_does_not_hold_drops_an_idle_model(
        self, world: Worlds, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        there = world()
        stream = Pipeline.stream

        def short_of_memory(self: Pipeline, *given: Any, **more: Any) -> Any:
            if len(there.there) > 1:
                raise MemoryBudgetError("no room")
            return stream(self, *given, **more)

        async with models_here(there.models()) as client:
            await asked(client, "a")
            monkeypatch.setattr(Pipeline, "stream", short_of_memory)
            assert (await asked(client, "b")).status_code == 200
            assert there.log == ["+a", "+b", "-a"]
            # The control: nothing is left to drop.
            monkeypatch.setattr(there, "there", ["b", "b"])
            found = await asked(client, "b")
            assert found.json()["error"]["code"] == "insufficient_memory"
            there.there.pop()

    async def test_texts_of_two_models_that_wait_for_each_other_do_not_for_ever(
        self, world: Worlds, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def short_of_memory(self: Pipeline, *given: Any, **more: Any) -> Any:
            assert both.wait(60)
            raise MemoryBudgetError("no room")

        both = threading.Event()
        there = world()
        models = there.models()
        async with models_here(models) as client:
            for name in ("a", "b"):
                await asked(client, name)
            monkeypatch.setattr(Pipeline, "stream", short_of_memory)
            two = [asyncio.create_task(asked(client, name)) for name in ("a", "b")]
            await until(lambda: all(one.turns.running for one in models.loaded))
            both.set()
            assert [(await one).status_code for one in two] == [503, 503]


class TestTheEnd:
    @pytest.mark.parametrize("drains", [True, False])
    async def test_those_who_wait_for_a_model(self, world: Worlds, drains: bool) -> None:
        """They get it where the server drains, as after SIGTERM; else they are refused."""
        there = world()
        there.held.add("b")
        models = there.models()
        async with models_here(models) as client:
            waiting = asyncio.create_task(asked(client, "b"))
            await until(lambda: there.opening == ["b"])
            if drains:
                models.drain()
            else:
                models.end()
            assert not models.idle
            for name in ("a", "b"):
                late = await asked(client, name)
                assert late.json()["error"]["code"] == "shutting_down"
            assert (await client.get("/health")).status_code == 503
            assert (await client.get("/livez")).status_code == 200
            there.held.clear()
            answer = await waiting
            assert answer.status_code == (200 if drains else 503)
            await until(lambda: models.idle)
        assert there.log == ["+b", "-b"]

    async def test_all_are_closed(self, world: Worlds) -> None:
        async with served(world()) as (there, client):
            await asked(client, "a")
            await asked(client, "b")
            assert there.there == ["a", "b"]  # the control
        assert there.there == []


async def test_a_queue_of_one_model_is_not_that_of_the_server(
    world: Worlds, gate: threading.Event
) -> None:
    there = world(a=MB, b=MB)
    models = there.models(parallel=1, queue=0)
    async with models_here(models) as client:
        running = [asyncio.create_task(asked(client, "a"))]
        await until(lambda: models.loaded and models.loaded[0].turns.running)
        assert (await asked(client, "a")).status_code == 429
        assert (await client.get("/health")).status_code == 200
        running.append(asyncio.create_task(asked(client, "b")))
        await until(lambda: len(models.loaded) == 2 and models.loaded[1].turns.running)
        assert (await client.get("/health")).status_code == 503  # the control
        gate.set()
        assert [(await one).status_code for one in running] == [200, 200]


async def test_a_long_request_waits_for_its_model_too(world: Worlds) -> None:
    async with served(world()) as (there, client):
        long = {"prompt": "x", "user": "y" * 5000}
        assert (await asked(client, "b", **long)).status_code == 200
        assert there.log == ["+b"]
        tokens = {**ASKED, "prompt": [5] * 3000, "model": "c"}
        found = await client.post("/v1/completions", json=tokens)
        assert found.json()["error"]["code"] == "context_length_exceeded"


async def test_a_request_holds_its_model_from_when_it_is_given_it(
    world: Worlds,
) -> None:
    """Between its reading and its turn, nothing drops the model; the control has left."""
    models = world().models()
    async with models_here(models) as client:
        await asked(client, "a")
        entry = models.entries[0]
        await until(lambda: entry.unused)
        visit: Visit
        with models.visit() as visit:
            visit.take("a")
            assert models.unless_used(entry) is None
        served = models.unless_used(entry)
        assert served is not None
        served.close()


def test_what_is_known_of_a_file_is_read_once_and_its_vocabulary_is_not_kept(
    world: Worlds,
) -> None:
    there = world()
    entry = there.models().entries[0]
    source, read = entry.offer.source, []

    def noted() -> Any:
        read.append(source())
        return read[-1]

    object.__setattr__(entry.offer, "source", noted)
    assert entry.source() is entry.source()
    assert len(read) == 1
    kept = entry.source().read_tokenizer
    assert kept != read[0].read_tokenizer
    assert kept().vocab_size == read[0].read_tokenizer().vocab_size
    assert len(read) == 2
