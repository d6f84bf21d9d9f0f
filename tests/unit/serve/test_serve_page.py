"""The page in a browser: it loads alone, chats, stops, races and survives a restart."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser import Browser
from served_page import IDLE, SCRIPTED, TEXT, choose, opened, say
from serving import Server
from waiting import until

pytestmark = pytest.mark.chromium


def test_it_loads_alone_and_chats(window: Browser, server: Server) -> None:
    page = opened(window, server)
    choose(page, "marks", "yes")
    choose(page, "temperature", "0")
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
    found = re.search(r"40 tokens in (\d+) ms, (\d+) tokens/s, \d+ of \d+ drafted tokens", figures)
    found = found or re.search(r"40 tokens in ([\d.]+) s, (\d+) tokens/s, \d+ of \d+ dr", figures)
    assert found is not None
    # They divide, but for what is rounded.
    took, unit_s = float(found[1]), 1 if "." in found[1] else 1e-3
    rounded = 0.05 if "." in found[1] else 0.5
    assert 40 / ((took + rounded) * unit_s) - 1 <= int(found[2])
    assert int(found[2]) <= 40 / ((took - rounded) * unit_s) + 1
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
    until(lambda: server.figure("edgedec_running_requests") == 0)


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
    with start("--port", port, "--name", "other"):
        page.wait("document.getElementById('state').textContent === ''")
        page.run("document.getElementById('ask').requestSubmit()")
        page.wait("document.querySelectorAll('.turn.assistant').length === 2")
        page.wait(IDLE)
        page.wait(f"({TEXT} || '').length > 1")
        names = page.run("[...document.querySelectorAll('.turn.assistant > b')].map("
                         "(one) => one.textContent)")  # fmt: skip
        assert names[-1] == "other"


def test_the_end_of_an_answer_is_followed_unless_its_reader_is_elsewhere(
    window: Browser, server: Server
) -> None:
    page = opened(window, server)
    page.run(SCRIPTED)
    say(page, "Many lines")
    page.wait("window.sent.length === 1")
    log = "document.getElementById('log')"
    below = f"{log}.scrollHeight - {log}.scrollTop - {log}.clientHeight"

    def more(line: str) -> None:
        page.run(f"window.more({{ content: '{line}\\n\\n'.repeat(40) }})")
        page.wait(f"{TEXT}.includes('{line}')")

    more("one")
    page.wait(f"{log}.scrollTop > 0 && {below} < 2")
    page.run(f"{log}.scrollTop = 0")
    page.wait(f"{log}.dataset.follow === 'no'")
    more("two")
    assert page.run(f"{log}.scrollTop") == 0
    page.run(f"{log}.scrollTop = {log}.scrollHeight")
    page.wait(f"{log}.dataset.follow === 'yes'")
    more("three")
    page.wait(f"{below} < 2")
    page.run("window.over()")
    page.wait(IDLE)


def test_a_conversation_longer_than_the_context_says_how_to_go_on(
    window: Browser, server: Server
) -> None:
    page = opened(window, server)
    page.run("document.getElementById('prompt').value = 'word '.repeat(3000)")
    page.run("document.getElementById('ask').requestSubmit()")
    told = page.wait("document.getElementById('problem').textContent")
    assert told.startswith("the prompt has ")
    assert told.endswith(": shorten it, or begin a new conversation")


def test_it_asks_for_the_key(window: Browser, start: Callable[..., Any]) -> None:
    key = "k" * 24
    with start(key=key) as server:
        window.go(server.url)
        window.wait("document.getElementById('state')?.textContent.includes('demands its key')")
        window.run(f"document.getElementById('key').value = '{key}';"
                   "document.getElementById('key').dispatchEvent(new Event('change'))")  # fmt: skip
        window.wait("document.getElementById('model').textContent.includes('tiny')")
        window.run("sessionStorage.clear()")


def test_code_is_monospaced_where_code_is_continued(
    window: Browser, server: Server, start: Callable[..., Any]
) -> None:
    fonts = """['#samples button', '#prompt', '#race-prompt', '.turn.user > .text'].map(
        (one) => getComputedStyle(document.querySelector(one)).fontFamily.includes('mono'))"""
    samples = "[...document.querySelectorAll('#samples button')].map((one) => one.innerText)"
    with start("--name", "demo") as coding:
        opened(window, server)
        window.go(coding.url)
        window.wait("document.getElementById('model')?.textContent.includes('demo')")
        assert all(text.count("\n") for text in window.run(samples))
        say(window, "def f(x):", 2)
        window.wait(IDLE)
        assert window.run(fonts) == [True] * 4
    say(opened(window, server), "Hello", 2)
    window.wait(IDLE)
    assert window.run(fonts) == [False] * 4  # the control: messages are not code


# Texts whose contrast with what is behind them is below 4.5 (WCAG 2.2, 1.4.3).
FAINT = """(() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => { const [r, g, b] = parts(colour).map((one) => one / 255).map(
    (one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (one) => { const found = getComputedStyle(one).backgroundColor;
    return parts(found)[3] === 0 && one.parentElement ? behind(one.parentElement) : found; };
  return [...document.querySelectorAll('body *')].filter((one) => one.checkVisibility() &&
    !one.disabled && [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim())
  ).filter((one) => { const both = [light(getComputedStyle(one).color), light(behind(one))];
    return (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05) < 4.5;
  }).map((one) => one.outerHTML.slice(0, 80));
})()"""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 390, 800, 1280])
def test_every_view_fits_and_is_legible(
    window: Browser, server: Server, tmp_path: Path, width: int, dark: bool
) -> None:
    page = opened(window, server)
    choose(page, "marks", "yes" if dark else "no")
    choose(page, "temperature", "0")
    say(page, "Hello there", 60)
    page.wait(f"({TEXT} || '').length > 10")
    page.wait(IDLE)
    page.size(width, 800, dark=dark)
    page.run("document.getElementById('settings').open = true")
    folder = Path(os.environ.get("EDGEDEC_SHOTS", tmp_path))
    for view in ("chat", "race", "about"):
        page.run(f"document.getElementById('tab-{view}').click()")
        assert page.run("document.documentElement.scrollWidth") <= width
        assert page.run(FAINT) == []
        page.shoot(folder / f"{view}-{width}-{'dark' if dark else 'light'}.png")


def test_what_is_wide_or_faint_would_be_seen(window: Browser, server: Server) -> None:
    """The control."""
    page = opened(window, server)
    page.run("document.getElementById('model').style.color = '#999';"
             "document.getElementById('model').style.minWidth = '90rem'")  # fmt: skip
    assert page.run("document.documentElement.scrollWidth") > 1200
    assert ["model" in one for one in page.run(FAINT)] == [True]


def test_keyboard_and_screen_reader(window: Browser, server: Server) -> None:
    page = opened(window, server)
    say(page, "Hello", 8)
    page.wait(f"({TEXT} || '').length > 1")
    page.wait(IDLE)
    nameless = page.run("""[...document.querySelectorAll('button, input, select, textarea')].filter(
        (one) => !(one.labels?.length || one.textContent.trim() || one.ariaLabel)).length""")
    assert nameless == 0
    for place, role in (("log", "log"), ("announce", "status"), ("state", "status"),
                        ("verdict", "status"), ("problem", "alert")):  # fmt: skip
        assert page.run(f"document.getElementById('{place}').getAttribute('role')") == role
    assert page.run("document.getElementById('announce').textContent").startswith("Answered: 8 tok")
    page.run("document.getElementById('tab-chat').focus()")
    page.press("ArrowRight", 39)
    assert page.run("document.activeElement.id") == "tab-race"
    assert page.run("document.getElementById('race').hidden") is False
    assert page.run("document.activeElement.getAttribute('aria-selected')") == "true"
    page.press("ArrowLeft", 37)
    here = "document.activeElement.ariaLabel || document.activeElement.id || "
    here += "document.activeElement.textContent"
    reached = []
    for _ in range(11):
        page.press("Tab", 9)
        reached.append(page.run(here))
        ring = page.run("getComputedStyle(document.activeElement).outlineStyle")
        assert ring == "solid", reached[-1]
    assert reached == [
        "new", "Hello", "Delete: Hello", "delete-all", "Conversation", "Edit", "Copy",
        "Regenerate", "prompt", "send", "Settings",
    ]  # fmt: skip
    # A question keeps the focus to itself, and gives it back.
    page.run("document.getElementById('delete-all').focus()")
    page.press("Enter", 13)
    page.wait("document.getElementById('sure').open")
    assert page.run("document.activeElement.textContent") == "Keep them"
    page.press("Escape", 27)
    page.wait("!document.getElementById('sure').open")
    assert page.run("document.activeElement.id") == "delete-all"
