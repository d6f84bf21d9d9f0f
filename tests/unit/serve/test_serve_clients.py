"""A second client of the field: ``llm``, whose models of OpenAI's API take any address."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("llm", reason="llm not installed: install the extra dev")

from serving import Server


def test_llm_chats(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    from llm.default_plugins.openai_models import Chat

    model = Chat("tiny", model_name="tiny", api_base=f"{server.url}/v1", key="none")
    wanted = server.client().chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": "Hello"}], max_tokens=20, temperature=0
    )
    for stream in (True, False):
        answer = model.prompt("Hello", stream=stream, key="none", temperature=0, max_tokens=20)
        assert answer.text() == wanted.choices[0].message.content
