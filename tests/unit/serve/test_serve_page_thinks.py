"""The page in front of a model that thinks, and that says how its answers are to be drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny_bundles
from browser import Browser
from served_page import IDLE, TEXT, choose, opened, say, turns
from serving import serving
from thinking_models import ANSWER, thinking_checkpoint

from edgedec.export import ExportOptions

pytestmark = pytest.mark.chromium
OWN = {"temperature": 0.6, "top_p": 0.95, "top_k": 20}
NOTED = """window.sent = []; window.real = window.fetch; window.fetch = (path, options) => {
  if (options?.body) window.sent.push(JSON.parse(options.body));
  return window.real(path, options); }; 1"""
THINKING = "document.querySelector('.turn.assistant:last-of-type .thinking')"


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
