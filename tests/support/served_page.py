"""The server's page in a browser: opening it, writing to it, and answers that a test makes up."""

from __future__ import annotations

from typing import Any

from browser import Browser
from serving import Server

TEXT = "document.querySelector('.turn.assistant:last-of-type > .text')?.textContent"
IDLE = "!document.body.hasAttribute('data-busy')"
# Answers as the test gives them: `more(delta, pieces)` adds to a stream, `over(reason)` ends it.
SCRIPTED = """
window.sent = [];
window.headers = [];
window.real ??= window.fetch;
window.fetch = (path, options) => {
  if (!options?.body) return window.real(path, options);
  window.sent.push(JSON.parse(options.body));
  window.headers.push(options.headers);
  const written = new TextEncoder();
  const stream = new ReadableStream({ start(to) {
    const event = (chunk) => to.enqueue(written.encode(`data: ${chunk}\\n\\n`));
    window.more = (delta, pieces = []) => event(JSON.stringify(
      { choices: [{ delta, finish_reason: null }], edgedec: { pieces } }));
    window.over = (reason = 'eos') => {
      event(JSON.stringify({ choices: [{ delta: {}, finish_reason: 'stop' }], edgedec:
        { finish_reason: reason, drafted: 2, accepted: 1, tokens_per_second: 50 } }));
      event('[DONE]');
      to.close();
    };
    options.signal?.addEventListener('abort', () => to.error(new DOMException('', 'AbortError')));
  } });
  return Promise.resolve(new Response(stream));
};
1"""


def opened(window: Browser, server: Server, *, clear: bool = True) -> Browser:
    """The page, without what an earlier test left in the browser."""
    if clear:
        window.go(f"{server.url}/health")
        window.run("localStorage.clear(); sessionStorage.clear()")
    window.requests.clear()
    window.errors.clear()
    window.size(1200, 800)
    window.go(server.url)
    window.wait("document.getElementById('model')?.textContent.includes('tiny')")
    return window


def say(window: Browser, text: str, tokens: int | str = "''") -> None:
    window.run(f"document.getElementById('tokens').value = {tokens}")
    window.run("document.getElementById('prompt').focus()")
    window.type(text)
    window.press("Enter", 13)


def choose(window: Browser, name: str, value: str) -> None:
    """Change a setting, as a person does."""
    window.run(
        f"document.getElementById('{name}').value = '{value}';"
        f"document.getElementById('{name}').dispatchEvent(new Event('change', {{bubbles: true}}))"
    )


def press(window: Browser, name: str, of: str = "document") -> None:
    """Press a button by its name."""
    window.run(
        f"[...{of}.querySelectorAll('button')].filter((one) => (one.ariaLabel || one.textContent)"
        f" === {name!r} && one.checkVisibility()).at(-1).click()"
    )


def answer(window: Browser, text: str, answered: str, thinking: str = "") -> None:
    """Ask for one of a test's own answers, and give it at once."""
    before = window.run("window.sent.length")
    say(window, text)
    window.wait(f"window.sent.length > {before}")
    finish(window, answered, thinking)


def finish(window: Browser, answered: str, thinking: str = "") -> None:
    import json

    if thinking:
        window.run(f"window.more({json.dumps({'reasoning_content': thinking})})")
    window.run(f"window.more({json.dumps({'content': answered})})")
    window.run("window.over()")
    window.wait(IDLE)


def turns(window: Browser) -> list[Any]:
    """Texts of all turns."""
    return list(window.run("[...document.querySelectorAll('.turn > .text')].map("
                           "(one) => one.textContent)"))  # fmt: skip
