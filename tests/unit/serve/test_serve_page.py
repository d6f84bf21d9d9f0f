"""The page in a browser: it loads alone, chats, stops, races and survives a restart."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="starlette not installed: install the extra serve")

from browser import Browser
from served_page import IDLE, TEXT, choose, opened, say
from serving import Server

pytestmark = pytest.mark.chromium


def test_it_loads_alone_and_chats(window: Browser, server: Server) -> None:
    page = opened(window, server)
    choose(page, "marks", "yes")
    say(page, "Hello <b>there</b>", 40)
    page.wait(f"({TEXT} || '').length > 10")
    page.wait(IDLE)
    assert page.run("document.querySelector('.turn.user > .text').textContent") == (
        "Hello <b>there</b>"
    )
    sources = page.run("[...document.querySelectorAll('.turn.assistant > .text span')].map("
                       "(one) => one.className)")  # fmt: skip
    assert set(sources) == {"draft", "target"}
    figures = page.run("document.querySelector('.turn.assistant').textContent")
    assert re.search(r"40 tokens in [\d.]+ m?s, \d+ tokens/s, \d+ of \d+ drafted tokens", figures)
    assert "MB" in page.run("document.getElementById('memory').textContent")
    assert page.errors == []
    assert page.requests
    assert all(one.startswith((server.url, "data:,")) for one in page.requests)


def test_a_foreign_request_is_seen_and_stopped(window: Browser, server: Server) -> None:
    """The control: the page's own rules refuse it, and the test above would see it."""
    page = opened(window, server)
    page.run("new Image().src = 'http://example.invalid/x.png'; 1")
    page.wait("1")
    assert any("Content Security Policy" in one for one in page.errors) or any(
        "example.invalid" in one for one in page.requests
    )


def test_stop_ends_the_text_on_the_server_too(window: Browser, server: Server) -> None:
    page = opened(window, server)
    say(page, "Go on and on", 1900)
    page.wait(f"({TEXT} || '').length > 20")
    page.run("document.getElementById('stop').click()")
    page.wait(IDLE)
    page.wait("1")
    for _ in range(50):
        if server.figure("edgedec_running_requests") == 0:
            break
    assert server.figure("edgedec_running_requests") == 0


def test_an_answer_goes_on_and_a_cut_one_says_how(window: Browser, server: Server) -> None:
    """Without a number of tokens only the context ends it; both cuts are told."""
    page = opened(window, server)
    assert page.run("document.getElementById('tokens').value") == ""
    cut = "document.querySelector('.turn.assistant:last-of-type .note')?.textContent"
    say(page, "Hello", 8)
    page.wait(IDLE)
    told = page.wait(cut)
    assert told == "Cut at 8 tokens: Settings has a larger number of tokens."
    page.run("document.getElementById('new').click()")
    page.run("""window.sent = []; const send = window.fetch; window.fetch = (path, options) => {
        if (options?.body) window.sent.push(JSON.parse(options.body));
        return send(path, options); }; 1""")
    say(page, "Hello", "''")
    page.wait("window.sent.length > 0")
    assert page.run("'max_tokens' in window.sent[0]") is False
    page.run("document.getElementById('stop').click()")
    page.wait(IDLE)


def test_it_races(window: Browser, server: Server) -> None:
    page = opened(window, server)
    page.run("document.getElementById('tokens').value = 60")
    page.run("document.getElementById('tab-race').click()")
    page.run("document.getElementById('race-prompt').value = 'def f(x):'")
    page.run("document.getElementById('start').requestSubmit()")
    verdict = page.wait("document.getElementById('verdict').textContent.startsWith('Plain')"
                        " && document.getElementById('verdict').textContent")  # fmt: skip
    assert re.fullmatch(
        r"Plain decoding took \d+ ms, with drafts \d+ ms: too short to tell"
        r" \(below 64 tokens\), the same text", verdict
    )  # fmt: skip
    texts = [page.run(f"document.getElementById('{one}').textContent") for one in ("plain", "fast")]
    assert texts[0] == texts[1] != ""
    drafted = "document.querySelectorAll('#{} .draft').length"
    assert page.run(drafted.format("plain")) == 0 < page.run(drafted.format("fast"))


def test_it_survives_a_restart(window: Browser, start: Callable[..., Any]) -> None:
    with start() as first:
        port = first.url.rpartition(":")[2]
        page = opened(window, first)
        say(page, "Hello", 8)
        page.wait(f"({TEXT} || '').length > 1")
        page.wait(IDLE)
    page.wait("document.getElementById('state').textContent.includes('away')")
    say(page, "Are you there?", 8)
    page.wait("document.getElementById('problem').textContent.includes('cannot be reached')")
    assert page.run("document.getElementById('prompt').value") == "Are you there?"
    with start("--port", port):
        page.wait("document.getElementById('state').textContent === ''")
        page.run("document.getElementById('ask').requestSubmit()")
        page.wait("document.querySelectorAll('.turn.assistant').length === 2")
        page.wait(IDLE)
        page.wait(f"({TEXT} || '').length > 1")


def test_it_asks_for_the_key(window: Browser, start: Callable[..., Any]) -> None:
    key = "k" * 24
    with start(key=key) as server:
        window.go(server.url)
        window.wait("document.getElementById('state')?.textContent.includes('demands its key')")
        window.run(f"document.getElementById('key').value = '{key}';"
                   "document.getElementById('key').dispatchEvent(new Event('change'))")  # fmt: skip
        window.wait("document.getElementById('model').textContent.includes('tiny')")
        window.run("sessionStorage.clear()")


@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("view", ["chat", "race", "about"])
def test_nothing_is_wider_than_the_window(
    window: Browser, server: Server, tmp_path: Path, width: int, view: str
) -> None:
    page = opened(window, server)
    if view == "chat":
        say(page, "Hello there", 60)
        page.wait(IDLE)
        page.wait(f"({TEXT} || '').length > 10")
        page.wait(IDLE)
    page.size(width, 800, dark=width == 768)
    page.run(f"document.getElementById('tab-{view}').click()")
    assert page.run("document.documentElement.scrollWidth") <= width
    folder = Path(os.environ.get("EDGEDEC_SHOTS", tmp_path))
    page.shoot(folder / f"{view}-{width}.png")


def test_keyboard_and_screen_reader(window: Browser, server: Server) -> None:
    page = opened(window, server)
    nameless = page.run("""[...document.querySelectorAll('button, input, select, textarea')].filter(
        (one) => !(one.labels?.length || one.textContent.trim() || one.ariaLabel)).length""")
    assert nameless == 0
    page.run("document.getElementById('tab-chat').focus()")
    page.press("ArrowRight", 39)
    assert page.run("document.activeElement.id") == "tab-race"
    assert page.run("document.getElementById('race').hidden") is False
    say_key = "document.activeElement.getAttribute('aria-selected')"
    assert page.run(say_key) == "true"
    live = "document.getElementById('log').getAttribute('role')"
    assert page.run(live) == "log"
