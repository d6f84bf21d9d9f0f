"""Conversations on the page: kept in the browser, edited, asked again, deleted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from browser import Browser
from served_page import IDLE, SCRIPTED, answer, choose, finish, opened, press, say, turns
from serving import Server

pytestmark = pytest.mark.chromium
TITLES = "[...document.querySelectorAll('#list .title')].map((one) => one.textContent)"
EMPTY = "!document.getElementById('empty').hidden"
STORE = "import('/page/store.js')"


@pytest.fixture
def page(window: Browser, server: Server) -> Browser:
    """The page, whose answers the test gives."""
    found = opened(window, server)
    found.run(SCRIPTED)
    return found


def sent(page: Browser) -> Any:
    """The last request."""
    return page.run("window.sent.at(-1)")


def saved(page: Browser) -> list[Any]:
    """What is kept, as the page reads it."""
    return list(page.run(f"{STORE}.then((store) => store.list())"))


def test_a_conversation_is_one_session_for_a_balancer(page: Browser) -> None:
    for text in ("First question", "Second question"):
        answer(page, text, "Answer")
    press(page, "New")
    answer(page, "Another one", "Answer")
    first, second, other = page.run("window.headers.map((one) => one['X-Session-Id'])")
    assert first
    assert first == second != other


def test_a_conversation_is_there_after_a_reload(page: Browser, server: Server) -> None:
    answer(page, "First question", "Answer **one**", thinking="So they ask.")
    answer(page, "Second question", "Answer two")
    assert [one["role"] for one in sent(page)["messages"]] == ["user", "assistant", "user"]
    assert sent(page)["messages"][1]["content"] == "Answer **one**"
    opened(page, server, clear=False)
    page.wait("document.querySelectorAll('.turn').length === 4")
    assert turns(page) == ["First question", "Answer one", "Second question", "Answer two"]
    assert page.run("document.querySelector('.turn strong').textContent") == "one"
    assert page.run("document.querySelector('.thinking pre').textContent") == "So they ask."
    # It goes on where it was.
    page.run(SCRIPTED)
    answer(page, "Third question", "Answer three")
    assert len(sent(page)["messages"]) == 5
    assert page.run(TITLES) == ["First question"]


def test_a_reload_in_the_middle_keeps_what_has_come(page: Browser, server: Server) -> None:
    say(page, "A long one")
    page.wait("window.sent.length === 1")
    page.run("window.more({ content: 'Half of it' })")
    page.wait("document.querySelector('.turn.assistant > .text').textContent === 'Half of it'")
    opened(page, server, clear=False)
    page.wait("document.querySelectorAll('.turn').length === 2")
    assert turns(page) == ["A long one", "Half of it"]
    assert page.run(IDLE)


def test_an_answer_streams_and_is_stopped(page: Browser) -> None:
    say(page, "Go on")
    page.wait("window.sent.length === 1")
    log = "document.getElementById('log').getAttribute('aria-busy')"
    assert page.run(log) == "true"  # read out when it is whole
    seen = "document.querySelector('.turn.assistant > .text').textContent"
    for text in ("One ", "*two*", " three"):
        page.run(f"window.more({{ content: '{text}' }})")
        page.wait(f"{seen}.includes('{text.strip(' *')}')")
    page.press("Escape", 27)
    page.wait(IDLE)
    assert turns(page)[-1] == "One two three"
    assert page.run("document.querySelector('.turn.assistant .note').textContent") == "Stopped."
    assert page.run(log) == "false"


def test_thinking_is_folded_and_not_sent_again(page: Browser) -> None:
    say(page, "Why?")
    page.wait("window.sent.length === 1")
    page.run("window.more({ reasoning_content: 'Let me ' }, [['Let me ', 'draft']])")
    page.run("window.more({ reasoning_content: 'think.' })")
    page.wait("document.querySelector('.thinking pre').textContent === 'Let me think.'")
    folded = "document.querySelector('details.thinking')"
    assert page.run(f"[{folded}.hidden, {folded}.open].join()") == "false,false"
    finish(page, "Because.")
    assert turns(page)[-1] == "Because."
    answer(page, "And then?", "Nothing.")
    assert "think" not in json.dumps(sent(page)["messages"])
    assert page.run("[...document.querySelectorAll('details.thinking')].at(-1).hidden") is True
    choose(page, "think", "no")
    answer(page, "Quickly?", "Yes.")
    assert sent(page)["chat_template_kwargs"] == {"enable_thinking": False}


def test_the_last_answer_is_asked_for_again(page: Browser) -> None:
    answer(page, "Question", "One answer")
    press(page, "Regenerate")
    page.wait("window.sent.length === 2")
    finish(page, "Another answer")
    assert turns(page) == ["Question", "Another answer"]
    assert sent(page)["messages"] == [{"role": "user", "content": "Question"}]
    choose(page, "temperature", "0")
    press(page, "Regenerate")
    page.wait("window.sent.length === 3")
    finish(page, "Another answer")
    note = page.run("document.querySelector('.turn.assistant .note').textContent")
    assert note.startswith("The same answer as before: at temperature 0")


BROKEN = """window.fetch = (path, options) => options?.body ? Promise.reject(new TypeError())
  : window.real(path, options); 1"""


def test_a_first_message_that_fails_leaves_nothing(page: Browser) -> None:
    page.run(BROKEN)
    say(page, "Hello?")
    page.wait("document.getElementById('problem').textContent")
    assert page.run("document.getElementById('problem').textContent") == (
        "the server cannot be reached"
    )
    assert page.run("document.getElementById('prompt').value") == "Hello?"
    assert page.run(EMPTY)
    assert saved(page) == page.run(TITLES) == []


def test_a_failed_answer_leaves_the_old_one(page: Browser) -> None:
    answer(page, "Question", "One answer")
    page.run(BROKEN)
    press(page, "Regenerate")
    page.wait("document.getElementById('problem').textContent")
    assert turns(page) == ["Question", "One answer"]
    say(page, "Another one")
    page.wait("document.getElementById('prompt').value === 'Another one'")
    assert turns(page) == ["Question", "One answer"]
    assert [one["content"] for one in saved(page)[0]["turns"]] == ["Question", "One answer"]
    # An edit of an earlier message, whose copy has come to nothing.
    page.run("document.getElementById('prompt').value = ''")
    page.run(SCRIPTED)
    answer(page, "Second", "Two")
    page.run(BROKEN)
    edit(page, 0, "Changed")
    page.wait("document.getElementById('prompt').value === 'Changed'")
    assert turns(page) == ["Question", "One answer", "Second", "Two"]
    assert len(saved(page)) == 1


def edit(page: Browser, place: int, text: str) -> None:
    turn = f"document.querySelectorAll('.turn.user')[{place}]"
    press(page, "Edit", turn)
    page.run(f"{turn}.querySelector('textarea').select()")
    page.type(text)
    page.press("Enter", 13)


def test_a_message_is_edited(page: Browser) -> None:
    answer(page, "Question", "Answer")
    edit(page, 0, "Better question")
    page.wait("window.sent.length === 2")
    finish(page, "Better answer")
    assert turns(page) == ["Better question", "Better answer"]
    # An earlier one, in a copy: the answers after it are still there.
    answer(page, "Second question", "Second answer")
    edit(page, 0, "Other question")
    page.wait("window.sent.length === 4")
    finish(page, "Other answer")
    assert turns(page) == ["Other question", "Other answer"]
    kept = sorted(len(one["turns"]) for one in saved(page))
    assert kept == [2, 4]
    # Escape leaves it as it is.
    press(page, "Edit", "document.querySelector('.turn.user')")
    page.type("x")
    page.press("Escape", 27)
    assert turns(page) == ["Other question", "Other answer"]


def test_one_is_opened_and_deleted_and_all_are(page: Browser, server: Server) -> None:
    for name in ("Alpha", "Beta", "Gamma"):
        press(page, "New")
        answer(page, name, f"About {name}")
    assert page.run(TITLES) == ["Gamma", "Beta", "Alpha"]
    press(page, "Alpha")
    assert turns(page) == ["Alpha", "About Alpha"]
    press(page, "Delete: Beta")
    assert turns(page) == ["Alpha", "About Alpha"]
    press(page, "Delete: Alpha")
    assert page.run(EMPTY)
    assert page.run(TITLES) == ["Gamma"]
    choose(page, "system", "A secret instruction")
    press(page, "Delete all")
    press(page, "Keep them")
    assert page.run(TITLES) == ["Gamma"]
    press(page, "Delete all")
    press(page, "Delete all")
    assert page.run(TITLES) == []
    held = page.run("JSON.stringify(localStorage)")
    assert "Gamma" not in held
    assert "secret" not in held
    opened(page, server, clear=False)
    page.wait(EMPTY)
    assert page.run("document.getElementById('system').value") == ""


def test_instructions_are_the_system_message(page: Browser, server: Server) -> None:
    choose(page, "system", "Be brief.")
    answer(page, "Hello", "Hi.")
    assert sent(page)["messages"][0] == {"role": "system", "content": "Be brief."}
    opened(page, server, clear=False)
    assert page.run("document.getElementById('system').value") == "Be brief."


def test_samples_fill_the_empty_page(page: Browser) -> None:
    assert page.run(EMPTY)
    assert page.run("document.querySelectorAll('#samples button').length") >= 3
    page.run("document.querySelector('#samples button').click()")
    page.wait("window.sent.length === 1")
    finish(page, "An answer")
    assert sent(page)["messages"][0]["content"] == turns(page)[0]
    assert page.run(EMPTY) is False


def test_a_text_is_continued_where_the_model_does_not_chat(page: Browser) -> None:
    choose(page, "mode", "text")
    assert page.run("document.getElementById('prompt-label').textContent") == "Text to continue"
    say(page, "Once", 8)
    page.wait("window.sent.length === 1")
    assert sent(page)["prompt"] == "Once"
    page.run("window.fetch = window.real; document.getElementById('stop').click()")
    page.wait(IDLE)
    say(page, "", 8)
    page.wait("document.querySelector('.turn.assistant .note')?.textContent")
    assert page.run("document.querySelector('.turn.assistant .note').textContent") == (
        "Cut at 8 tokens: Go on continues it."
    )
    before = turns(page)[-1]
    press(page, "Go on")
    page.wait(IDLE)
    assert turns(page)[-1].startswith(before)
    assert len(turns(page)[-1]) > len(before)


def test_what_is_kept_is_bounded(page: Browser) -> None:
    """By number and by size; the oldest goes first. The control: without limits it is all kept."""
    fill = (
        "{ localStorage.clear(); for (let n = 0; n < 60; n++) store.save({ id: `n${n}`, title: '',"
        " system: '', chat: true, changed: n, turns: [{ role: 'user', content: 'x'.repeat(%d) }]"
        " }); return store.list().map((one) => one.id) }"
    )
    few = page.run(f"{STORE}.then((store) => {fill % 10})")
    assert few == [f"n{n}" for n in range(59, 9, -1)]
    large = page.run(f"{STORE}.then((store) => {fill % 200_000})")
    assert large == [f"n{n}" for n in range(59, 59 - len(large), -1)]
    assert 200_000 * len(large) < 2_500_000 < 200_000 * (len(large) + 2)
    too_large = page.run(f"{STORE}.then((store) => {fill % 3_000_000})")
    assert too_large == []
    lifted = f"{STORE}.then((store) => {{ store.LIMITS.talks = 100; {(fill % 10)[1:]})"
    assert len(page.run(lifted)) == 60
    page.run("localStorage.clear()")


def test_a_full_or_absent_storage_is_told(page: Browser) -> None:
    page.run("Storage.prototype.setItem = () => { throw new DOMException('full',"
             " 'QuotaExceededError') }; 1")  # fmt: skip
    answer(page, "Hello", "Hi.")
    assert turns(page) == ["Hello", "Hi."]
    assert page.run("document.getElementById('unkept').checkVisibility()") is True


def test_damaged_entries_are_passed_over(page: Browser, server: Server) -> None:
    answer(page, "Hello", "Hi.")
    for place, damaged in enumerate(
        ("{", "null", "[]", '{"turns": 3}', '{"turns": [null]}',
         '{"changed": "x", "turns": [{"role": "system", "content": {"a": 1}}], "title": []}')
    ):  # fmt: skip
        page.run(f"localStorage.setItem('edgedec.talk.{place}', {json.dumps(damaged)})")
    page.run("localStorage.setItem('edgedec.settings', '{\"marks\": 3, \"tokens\": [')")
    opened(page, server, clear=False)
    page.wait("document.querySelectorAll('#list li').length === 2")
    assert page.run(TITLES) == ["Hello", "Untitled"]
    press(page, "Untitled")
    assert turns(page) == [""]
    assert page.errors == []
