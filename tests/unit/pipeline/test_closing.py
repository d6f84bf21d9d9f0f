"""A closed pipeline says so, and closing ends what goes on: texts that wait or that are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import queued_texts
import test_pipeline
from queued_texts import OPTIONS, PROMPT, Held, waiting
from waiting import LIMIT_S, Apart, until

from edgedec import Pipeline
from edgedec.errors import StateError
from edgedec.runtimes.onnx.session import OnnxSession

bundle, one, held = test_pipeline.bundle, queued_texts.one, queued_texts.held
CLOSED = "^the pipeline is closed"


@pytest.fixture(scope="module")
def closed(bundle: Path) -> Pipeline:
    found = Pipeline.open(bundle, drafter="none", threads=1)
    found.close()
    return found


class TestClosing:
    def test_texts_that_wait_and_that_are_read_end(self, one: Pipeline, held: Held) -> None:
        stream = one.stream(PROMPT, OPTIONS)
        reader = Apart(lambda: list(stream))
        assert held.inside.wait(LIMIT_S)
        waits = Apart(lambda: one.generate([5, 6], OPTIONS))
        until(lambda: waiting(one) == 1)
        closes = Apart(one.close)
        with pytest.raises(StateError, match=CLOSED):
            waits.result()
        assert closes.running, "it waits for the pass"
        held.go_on.set()
        closes.result()
        with pytest.raises(StateError, match=CLOSED):
            reader.result()
        assert stream.result is None

    def test_in_the_middle_of_a_round_of_its_own_thread(
        self, one: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As a signal handler may."""
        honest = OnnxSession.forward

        def forward(session: OnnxSession, *args: Any, **named: Any) -> Any:
            one.close()
            return honest(session, *args, **named)

        stream = one.stream(PROMPT, OPTIONS)
        next(stream)
        monkeypatch.setattr(OnnxSession, "forward", forward)
        next(stream)
        assert one._due
        with pytest.raises(StateError, match=CLOSED):
            next(stream)
        assert not one._due

    def test_twice_and_at_the_end_of_a_block(self, bundle: Path) -> None:
        with Pipeline.open(bundle, drafter="none", threads=1) as pipeline:
            stream = pipeline.stream(PROMPT, OPTIONS)
            next(stream)
            pipeline.close()
        pipeline.close()
        with pytest.raises(StateError, match=CLOSED):
            next(stream)
        assert list(stream) == []

    @pytest.mark.parametrize(
        "call",
        [
            lambda p: p.generate(PROMPT),
            lambda p: p.stream(PROMPT),
            lambda p: p.chat([{"role": "user", "content": "Hi"}]),
            lambda p: p.astream(PROMPT),
            lambda p: p.agenerate(PROMPT).send(None),
            lambda p: p.save("file"),
            lambda p: p.restore("file"),
            lambda p: p.forget(),
            lambda p: p.free_bytes(),
            lambda p: p.__enter__(),
        ],
    )
    def test_later_calls_say_so(self, closed: Pipeline, call: Callable[[Pipeline], Any]) -> None:
        with pytest.raises(StateError, match=CLOSED):
            call(closed)

    def test_a_stream_that_was_not_read_yet_says_so(self, bundle: Path) -> None:
        with Pipeline.open(bundle, drafter="none", threads=1) as pipeline:
            stream = pipeline.stream(PROMPT, OPTIONS)
        with pytest.raises(StateError, match=CLOSED):
            next(stream)
