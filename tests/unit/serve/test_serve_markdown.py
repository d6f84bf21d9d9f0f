"""Markdown on the page: hostile texts do nothing, growing ones are shown as if they came whole."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest
from browser import Browser
from served_page import SCRIPTED, finish, opened, say
from serving import Server

pytestmark = pytest.mark.chromium

HOSTILE = [
    "<script>window.pwned = 'script'</script>",
    "<img src=x onerror=\"window.pwned = 'img'\">",
    "<svg onload=\"window.pwned = 'svg'\"><script>window.pwned = 'svg script'</script></svg>",
    "<iframe srcdoc=\"<script>parent.pwned = 'frame'</script>\"></iframe>",
    "<details open ontoggle=\"window.pwned = 'details'\">x</details>",
    "<a href=\"javascript:window.pwned = 'a'\">x</a> <style>body { display: none }</style>",
    "<form action=http://example.invalid><input name=id></form><base href=http://example.invalid>",
    "<meta http-equiv=refresh content='0; url=http://example.invalid/meta'>",
    "[link](javascript:window.pwned=1) [link](JaVaScRiPt:window.pwned=1)",
    "[link](java&#115;cript:window.pwned=1) [link](<java\tscript:window.pwned=1>)",
    "[link](vbscript:x) [link](data:text/html,<script>window.pwned=1</script>) [link](file:///etc)",
    "[link](blob:http://x/1) [link](//example.invalid/x) [link](/metrics) <javascript:pwned>",
    "[link](http://x\" onclick=\"window.pwned='quote') [link](http://x 'a\" onclick=\"pwned=1')",
    "![image](http://example.invalid/image.png) ![image](javascript:window.pwned=1)",
    "![image](data:image/svg+xml,<svg/onload=window.pwned=1>)",
    "[one]: javascript:window.pwned=1\n\n[one] ![one]",
    "```<img src=x onerror=window.pwned='fence'>\n</code><script>window.pwned=1</script>\n```",
    "`<img src=x onerror=window.pwned='code'>` **<b onclick=window.pwned=1>x</b>**",
    "| <script>window.pwned='cell'</script> | ![image](http://example.invalid/cell.png) |\n|-|-|\n",
    "> " * 3000 + "deep",
    "*_" * 3000 + "deep" + "_*" * 3000,
    "&lt;script&gt;window.pwned='entity'&lt;/script&gt; \\<script>window.pwned=1\\</script>",
]
TEXT = """# A title

Words with *emphasis*, **strong**, ~~struck~~, `code` and https://example.com/a?b=c.
A second line\\
and a break.

- one
- two
  1. inner

     with a paragraph
- three

> quoted
> > twice

| name | size |
|:-----|-----:|
| a    | 1    |

```python
def f(x):
    return "<b>" + x
```

    indented code

Setext
------

para
``` not `a fence`
para
***
[link](https://example.com) and ![picture](https://example.com/x.png)
1) other
1) list
"""
# What of a rendered text could do harm.
HARM = """
window.harm = (root) => [...root.querySelectorAll('*')].flatMap((one) => {
  const tags = 'A P H3 H4 H5 H6 UL OL LI BLOCKQUOTE CODE PRE EM STRONG S BR HR DIV SPAN BUTTON ' +
    'TABLE THEAD TBODY TR TH TD';
  const names = ['class', 'href', 'rel', 'start', 'tabindex', 'target', 'title', 'type'];
  const wrong = tags.split(' ').includes(one.tagName) ? [] : [one.tagName];
  for (const { name } of one.attributes) if (!names.includes(name)) wrong.push(name);
  const safe = !('href' in one) || ['http:', 'https:', 'mailto:'].includes(one.protocol);
  return safe ? wrong : [...wrong, one.href];
});
window.pwned = undefined; 1"""
LIBRARY = "import('/page/vendor/markdown-it.esm.min.mjs').then((found) => found.default)"
MODULE = "import('/page/markdown.js')"


@pytest.fixture
def page(window: Browser, server: Server) -> Iterator[Browser]:
    """The page without its policy, so that only the code itself keeps scripts from running."""
    window.call("Page.setBypassCSP", enabled=True)
    try:
        yield opened(window, server)
    finally:
        window.call("Page.setBypassCSP", enabled=False)


def outside(page: Browser, server: Server) -> list[str]:
    return [one for one in page.requests if not one.startswith((server.url, "data:"))]


def settle(page: Browser) -> None:
    """Let images fail and scripts run that a text may have brought."""
    page.run("new Promise((done) => { const probe = new Image(); probe.onerror = done;"
             "probe.src = 'data:,' }).then(() => 1)")  # fmt: skip
    page.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
             ".then(() => 1)")  # fmt: skip


def test_a_hostile_text_does_nothing(page: Browser, server: Server) -> None:
    page.run(SCRIPTED)
    page.run(HARM)
    for place, text in enumerate([*HOSTILE, "\n\n".join(HOSTILE)]):
        say(page, f"Text {place}")
        page.wait(f"window.sent.length === {place + 1}")
        finish(page, text, thinking=text)
        assert page.run("harm(document.querySelector('.turn.assistant:last-of-type > .text'))"
                        ".join()") == ""  # fmt: skip
    settle(page)
    assert page.run("window.pwned") is None
    loud = "document.querySelectorAll('.turn :is(script, img, iframe, style)').length"
    assert page.run(loud) == 0
    assert outside(page, server) == []
    # It is there, as text.
    shown = page.run("document.getElementById('log').textContent")
    assert HOSTILE[0] in shown
    assert "[image: image]" in shown


@pytest.mark.parametrize("twin", ["html", "links"])
def test_a_careless_page_would_be_seen(page: Browser, server: Server, twin: str) -> None:
    """The control: the same library with HTML, or with every link, through innerHTML."""
    page.run(HARM)
    # All but the one that would lead the page elsewhere, and the deep ones.
    texts = [one for one in HOSTILE if "http-equiv" not in one and len(one) < 1000]
    options = "{ html: true }" if twin == "html" else "{ html: false }"
    page.run(
        f"{LIBRARY}.then((Library) => {{ const library = new Library({options});"
        "library.validateLink = () => true; const place = document.createElement('div');"
        f"place.innerHTML = {json.dumps(texts)}.map((one) => library.render(one)).join('');"
        "window.twin = place; document.body.append(place); return 1 })"
    )
    found = page.run("harm(window.twin).join()")
    assert "javascript:" in found
    if twin == "html":
        page.wait("window.pwned")
        assert {"IMG", "SCRIPT", "onerror", "IFRAME"} <= set(found.split(","))
    settle(page)
    assert outside(page, server)


INLINE = """(() => { const one = document.createElement('script');
one.append('window.pwned = "inline"'); document.body.append(one); return window.pwned })()"""


def test_the_policy_refuses_markup_and_scripts(window: Browser, server: Server) -> None:
    """A second wall: were the code wrong, the browser would still not run what a text brings."""
    page = opened(window, server)
    refused = "(() => { try { document.body.innerHTML = '<b>x</b>'; return '' } catch (error)"
    assert "TrustedHTML" in page.run(f"{refused} {{ return error.message }} }})()")
    assert page.run(INLINE) is None
    page.run("new Image().src = 'http://example.invalid/x.png'; 1")
    page.wait("1")
    assert any("Content Security Policy" in one for one in page.errors)


def test_without_the_policy_a_script_runs(page: Browser) -> None:
    """The control."""
    assert page.run(INLINE) == "inline"


GROW = """(chunks, make) => {
  const place = document.createElement('div');
  const grower = make(place);
  for (const chunk of chunks) { grower.push(chunk); grower.render(); }
  const grown = place.innerHTML;
  grower.finish();
  return [grown, place.innerHTML, grower.parsedChars];
}"""


def grown(page: Browser, chunks: list[str], make: str = "new GrowingMarkdown(place)") -> list[str]:
    """The markup of a text before and after its end, and how many characters were parsed."""
    call = f"({GROW})({json.dumps(chunks)}, (place) => {make})"
    return list(page.run(f"{MODULE}.then(({{ GrowingMarkdown }}) => {call})"))


def cut(text: str, seed: int) -> list[str]:
    at = sorted(random.Random(seed).sample(range(1, len(text)), min(60, len(text) - 1)))
    return [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]


# Takes each block for final at once, even if its first line is not whole.
HASTY = """new (class extends GrowingMarkdown {
  render() {
    super.render();
    this.finalChars = this.text.length; this.finalBlocks = place.childNodes.length;
  } })(place)"""


def test_a_growing_text_is_shown_as_if_it_came_whole(page: Browser) -> None:
    whole = grown(page, [TEXT])[1]
    tags = ["h3", "h4", "em", "strong", "s", "ul", "ol", "blockquote", "table", "pre", "hr", "a"]
    for tag in tags:
        assert f"<{tag}" in whole
    assert 'class="right"' in whole
    for chunks in (list(TEXT), *(cut(TEXT, seed) for seed in range(20))):
        before, after, _ = grown(page, chunks)
        assert before == after == whole
    assert grown(page, list(TEXT), HASTY)[0] != whole
    # A definition after its use is seen at the end.
    late = "[a] and [b]\n\n[a]: https://example.com/a\n"
    assert grown(page, list(late))[1] == grown(page, [late])[1]
    assert 'href="https://example.com/a"' in grown(page, list(late))[1]
    assert grown(page, list(TEXT.replace("\n", "\r\n")))[1] == whole


@pytest.mark.full
def test_a_long_text_costs_no_more_for_each_block(page: Browser) -> None:
    """Characters parsed while it grows word by word; all of it each time would be the square."""

    def cost(blocks: int, make: str) -> int:
        words = [f"{word} " for word in ("some words of a block " * 4).split()]
        chunks = [*words, "\n\n"] * blocks
        return int(grown(page, chunks, make)[2])

    ours = "new GrowingMarkdown(place)"
    naive = """new (class extends GrowingMarkdown {
      render() { this.restart(); super.render(); } })(place)"""
    assert cost(80, ours) / cost(20, ours) < 5
    assert cost(80, naive) / cost(20, naive) > 12


def test_what_is_shown_stays_while_a_text_grows(page: Browser) -> None:
    """No flicker: elements, the selection and the focus stay, also in the block that grows."""
    kept = page.run(
        f"{MODULE}.then(({{ GrowingMarkdown }}) => {{"
        "const place = document.createElement('div'); document.body.append(place);"
        "const grower = new GrowingMarkdown(place);"
        "grower.push('First words.\\n\\n```js\\nlet a = 1;\\n'); grower.render();"
        "const [first, code] = place.children; const pre = code.querySelector('pre');"
        "const text = pre.querySelector('code').firstChild;"
        "getSelection().setBaseAndExtent(first.firstChild, 0, text, 3); pre.focus();"
        "grower.push('let b = 2;\\n```\\n\\nMore *words*'); grower.render(); grower.finish();"
        "const now = [place.children[0] === first, place.children[1] === code,"
        "  document.activeElement === pre, getSelection().toString().includes('First words.'),"
        "  text.data, place.children.length]; place.remove(); return now })"
    )
    assert kept == [True, True, True, True, "let a = 1;\nlet b = 2;\n", 3]


def test_code_is_copied(window: Browser, server: Server) -> None:
    page = opened(window, server)
    page.call("Browser.grantPermissions", permissions=["clipboardReadWrite"])
    page.run(SCRIPTED)
    say(page, "Code")
    page.wait("window.sent.length === 1")
    finish(page, "Look:\n\n```python\nprint('<b>')\n```\n")
    assert page.run("document.querySelector('.code-head span').textContent") == "python"
    page.run("document.querySelector('.code .copy').click()")
    page.wait("document.getElementById('announce').textContent === 'Copied'")
    assert page.run("navigator.clipboard.readText()") == "print('<b>')\n"
    assert page.run("document.querySelector('.code .copy').textContent") == "Copied"
    # Where the browser gives no clipboard, as without TLS on another machine.
    page.run("Object.defineProperty(navigator, 'clipboard', { value: undefined });"
             "document.execCommand = (what) => { window.copied = [what,"
             "document.activeElement.value]; }; 1")  # fmt: skip
    page.run("document.querySelector('.code .copy').click()")
    page.wait("window.copied")
    assert page.run("window.copied") == ["copy", "print('<b>')\n"]
    assert page.errors == []
