"""The page's other views: two ways to decode a text side by side, and the plan in words."""

from __future__ import annotations

import json
import re

import pytest
from browser import Browser
from served_page import opened
from serving import CONTEXT, Server

pytestmark = pytest.mark.chromium


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
