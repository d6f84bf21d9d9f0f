"""The page in a browser: it loads alone, chats, stops, races and survives a restart."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_bundles
from browser import Browser
from kinds import in_full
from served_page import IDLE, SCRIPTED, TEXT, choose, opened, say, turns
from serving import CONTEXT, Server, serving
from thinking_models import ANSWER, thinking_checkpoint
from waiting import until

from edgedec.export import ExportOptions

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
    choose(page, "temperature", "0")  # a drawn text may end with its first words
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
    choose(page, "temperature", "0")
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


@pytest.mark.full
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


@pytest.mark.full
def test_it_asks_for_the_key(window: Browser, start: Callable[..., Any]) -> None:
    key = "k" * 24
    with start(key=key) as server:
        window.go(server.url)
        window.wait("document.getElementById('state')?.textContent.includes('demands its key')")
        window.run(f"document.getElementById('key').value = '{key}';"
                   "document.getElementById('key').dispatchEvent(new Event('change'))")  # fmt: skip
        window.wait("document.getElementById('model').textContent.includes('tiny')")
        window.run("sessionStorage.clear()")


@pytest.mark.full
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
@pytest.mark.parametrize("width", in_full([360, 390, 800, 1280]))
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


OWN = {"temperature": 0.6, "top_p": 0.95, "top_k": 20}
NOTED = """window.sent = []; window.real = window.fetch; window.fetch = (path, options) => {
  if (options?.body) window.sent.push(JSON.parse(options.body));
  return window.real(path, options); }; 1"""
THINKING = "document.querySelector('.turn.assistant:last-of-type .thinking')"


@pytest.mark.full
@pytest.mark.parametrize("generation", [OWN, None])
def test_thinking_is_folded_and_the_models_sampling_used(
    window: Browser, tmp_path: Path, generation: dict[str, Any] | None
) -> None:
    target = thinking_checkpoint(tmp_path / "target", generation)
    options = ExportOptions(target, tmp_path / "thinker", weights="fp32", parity=False)
    with serving(tiny_bundles.kept(options), "--threads", "1", "--name", "tiny") as server:
        card = server.get("/v1/models").json()["data"][0]["edgedec"]["sampling"]
        assert card["temperature"] == (generation["temperature"] if generation else 0.7)
        page = opened(window, server)
        page.run(NOTED)
        say(page, "Hi")
        page.wait(f"({TEXT} || '').length > 3")
        page.wait(IDLE)
        assert turns(page)[-1] == "".join(ANSWER).strip()
        assert page.run(f"{THINKING}.querySelector('pre').textContent") == "first then"
        assert page.run(f"[{THINKING}.hidden, {THINKING}.open].join()") == "false,false"
        # The server knows how answers are drawn.
        assert page.run("window.sent[0].temperature") is None
        choose(page, "temperature", "0.3")
        choose(page, "think", "no")
        say(page, "Hi")
        page.wait("document.querySelectorAll('.turn').length === 4")
        page.wait(IDLE)
        assert turns(page)[-1] == "".join(ANSWER).strip()
        assert page.run(f"{THINKING}.hidden") is True
        assert page.run("window.sent[1].temperature") == 0.3
        assert page.errors == []


@pytest.mark.full
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


# Answers at once with as many tokens as `tokens` says, half of them drafted if they may be. A clock
# of its own counts the milliseconds that `times` has for each run.
QUICK = """window.real = window.fetch; window.clock = 0; performance.now = () => window.clock;
window.fetch = (path, options) => {
  if (!options?.body) return window.real(path, options);
  const { max_tokens: most, edgedec } = JSON.parse(options.body);
  if (most > 1) window.clock += window.times.shift();
  const pieces = Array.from({ length: Math.min(most, window.tokens) }, (_, n) =>
    [`${n} `, n % 2 && edgedec.drafter !== 'none' ? window.drafts : 'target']);
  const chunks = [{ choices: [{ delta: { content: pieces.map(([one]) => one).join('') } }],
    edgedec: { pieces } }, { choices: [{ delta: {}, finish_reason: 'stop' }], edgedec: {} }];
  const lines = [...chunks.map((one) => JSON.stringify(one)), '[DONE]'];
  return Promise.resolve(new Response(lines.map((one) => `data: ${one}\\n\\n`).join(''))); }; 1"""
EVEN = [320, 100, 300, 120, 310, 110]


@pytest.mark.parametrize(
    ("tokens", "drafts", "times", "verdict"),
    [
        (100, "draft", EVEN, "3.00 times the speed, the same text"),
        (100, "draft", [4000, 2000], "2.00 times the speed, the same text"),
        (100, "draft", [320, 100, 300, 900, 310, 800],
         "such runs differ too much to tell, is the machine busy?"),
        (100, "target", EVEN, "no draft became part of the text, so they tell nothing"),
        (63, "draft", EVEN, "too short to tell (below 64 tokens), the same text"),
    ],
)  # fmt: skip
def test_a_race_says_only_what_it_can_tell(
    window: Browser, server: Server, tokens: int, drafts: str, times: list[int], verdict: str
) -> None:
    page = opened(window, server)
    page.size(1200, 800, still=True)
    page.run(QUICK)
    page.run(f"window.tokens = {tokens}; window.drafts = {drafts!r}; window.times = {times}")
    page.run("document.getElementById('tab-race').click()")
    assert page.run("document.getElementById('race-prompt').value")  # an example
    page.run("document.getElementById('start').requestSubmit()")
    said = page.wait("document.getElementById('verdict').textContent.startsWith('Plain')"
                     " && document.getElementById('verdict').textContent")  # fmt: skip
    took = f"took {min(times[::2])} ms, with drafts {min(times[1::2])} ms"
    assert said == f"Plain decoding {took}: {verdict}"
    how = page.run("document.getElementById('slow').textContent")
    assert how == ("The fastest of 3 runs each." if len(times) > 2 else "")


def test_the_plan_is_three_sentences(window: Browser, server: Server) -> None:
    page = opened(window, server)
    found = page.run("[...document.querySelectorAll('#sentences p')].map((one) => one.textContent)")
    assert len(found) == 3
    assert "the target keeps those that it would have written" in found[0]
    assert f"a context of {CONTEXT} tokens" in found[1]
    assert "1 thread of the processor" in found[1]
    assert found[2] == "No plan is followed (--drafter, --draft-length, --threads given)."
    # What it says depends on the plan.
    plan = {
        "drafter": "none", "lossless": True, "max_context": 64, "threads": 4, "format": "gguf",
        "device": "GPU", "plan": "cpu-4", "plan_made_on": "40 texts",
    }  # fmt: skip
    told = f"import('/page/plan.js').then((plan) => plan.sentences({json.dumps(plan)}, ''))"
    assert page.run(told) == [
        "Nothing drafts: the target decodes token by token.",
        "It runs as GGUF on GPU, with a context of 64 tokens.",
        "This follows the plan cpu-4, made on 40 texts.",
    ]
    unmade = json.dumps({**plan, "plan": None, "no_plan": "none was made for these models here"})
    for command, said in (
        ("edgedec plan '/a b/c.gguf'", "edgedec plan '/a b/c.gguf'"),
        ("", "edgedec plan with the model as the server was given it"),
    ):
        words = f"plan.sentences({unmade}, {json.dumps(command)})[2]"
        assert page.run(f"import('/page/plan.js').then((plan) => {words})") == (
            "No plan is followed (none was made for these models here). To measure what is fastest"
            f" here: {said}"
        )
    lossy = json.dumps({**plan, "drafter": "model", "lossless": False, "accept": "bild"})
    first = page.run(f"import('/page/plan.js').then((plan) => plan.sentences({lossy}, '')[0])")
    assert first.endswith("the rule bild may keep some that the target would not have written.")
