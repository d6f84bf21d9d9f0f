"""The plugin in ``integrations/llm-edgedec`` inside the real ``llm``: texts, talks, errors."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgedec import Pipeline

llm = pytest.importorskip("llm", reason="llm not installed: install the extra dev")

FOLDER = Path(__file__).parents[2] / "integrations" / "llm-edgedec"
PROMPT = "def read_lines(path):"


@pytest.fixture(autouse=True)
def plugin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The plugin's module, whose open model is closed at the end."""
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setenv("EDGEDEC_LIBRARY", str(tmp_path / "library"))
    monkeypatch.setenv("EDGEDEC_LLM_OPEN", '{"threads": 1, "plan": "none"}')
    import llm_edgedec

    yield llm_edgedec
    llm_edgedec.opened.close()


@pytest.fixture
def model(plugin: Any) -> Any:
    return plugin.Edgedec("demo", "demo")


def expected(**asked: Any) -> Any:
    with Pipeline.open("demo", threads=1, plan="none") as pipeline:
        return pipeline.generate(**asked)


def test_the_text_is_edgedecs_and_comes_in_pieces(model: Any) -> None:
    response = model.prompt(PROMPT, raw=True, max_tokens=12, temperature=0)
    pieces = list(response)
    own = expected(prompt=PROMPT, max_new_tokens=12, temperature=0)
    assert "".join(pieces) == own.text
    assert len(pieces) > 1
    assert response.usage().input == own.prompt_tokens
    assert response.usage().output == 12
    assert response.response_json["finish_reason"] == "length"
    other = model.prompt(PROMPT, raw=True, max_tokens=12, temperature=1.5, seed=5).text()
    assert other != own.text  # the control: options arrive


def test_a_conversation_has_what_was_said(model: Any) -> None:
    conversation = model.conversation()
    first = conversation.prompt("def a():", system="Code.", max_tokens=6, temperature=0).text()
    second = conversation.prompt("def b():", max_tokens=6, temperature=0).text()
    turns = [
        {"role": "system", "content": "Code."},
        {"role": "user", "content": "def a():"},
        {"role": "assistant", "content": first},
        {"role": "user", "content": "def b():"},
    ]
    assert second == expected(messages=turns, max_new_tokens=6, temperature=0).text
    assert second != expected(messages=turns[3:], max_new_tokens=6, temperature=0).text


def test_a_schema_holds(model: Any) -> None:
    pytest.importorskip("llguidance", reason="llguidance not installed: install the extra grammar")
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"],
              "additionalProperties": False}  # fmt: skip
    text = model.prompt("x", schema=schema, max_tokens=40, temperature=0).text()
    assert isinstance(json.loads(text)["ok"], bool)


def test_errors_are_llms(model: Any, plugin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(llm.ModelError, match="no-such-model"):
        plugin.Edgedec("x", "no-such-model").prompt("a").text()
    monkeypatch.setenv("EDGEDEC_LLM_OPEN", "threads=2")
    with pytest.raises(llm.ModelError, match="expected a JSON object"):
        model.prompt("a").text()


def test_what_is_no_text_is_refused(plugin: Any) -> None:
    picture = type("AttachmentPart", (), {})()
    message = SimpleNamespace(role="user", parts=[picture])
    with pytest.raises(llm.ModelError, match="takes text alone, found AttachmentPart"):
        plugin.messages(SimpleNamespace(messages=[message]))


def test_names_of_the_library(plugin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    there = [
        SimpleNamespace(name="org/One", id="1" * 16),
        SimpleNamespace(name="other/Two", id="2" * 16),
        SimpleNamespace(name="Two", id="3" * 16),
    ]
    library = SimpleNamespace(models=lambda: there)
    monkeypatch.setattr("edgedec.Library", lambda: library)
    assert plugin.names() == {
        "demo": "demo", "One": "1" * 16, "Two:22222222": "2" * 16, "Two:33333333": "3" * 16,
    }  # fmt: skip


def test_one_model_is_open_at_a_time(plugin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []

    def opening(name: str, **_: Any) -> Any:
        log.append(f"open {name}")
        return SimpleNamespace(close=lambda: log.append(f"close {name}"))

    monkeypatch.setattr("edgedec.Pipeline", SimpleNamespace(open=opening))
    for name in ("a", "a", "b"):
        plugin.opened.get(name)
    plugin.opened.close()
    assert log == ["open a", "close a", "open b", "close b"]


@pytest.mark.slow
def test_the_program_finds_the_installed_plugin(tmp_path: Path) -> None:
    """Built as a wheel, beside the real program; nothing else of this folder is on the path."""
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
             "--wheel-dir", str(tmp_path), str(tmp_path / "source")]  # fmt: skip
    shutil.copytree(FOLDER, tmp_path / "source")
    built = subprocess.run(wheel, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (file,) = tmp_path.glob("*.whl")
    target = tmp_path / "installed"
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index",
                    "--target", str(target), str(file)], check=True)  # fmt: skip

    def asked(*words: str, path: Path) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": str(path), "LLM_USER_PATH": str(tmp_path / "llm")}
        command = [sys.executable, "-m", "llm", *words]
        return subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)

    words = ("-m", "edgedec:demo", "-o", "raw", "1", "-o", "max_tokens", "12", "-o", "temperature",
             "0", PROMPT)  # fmt: skip
    done = asked(*words, path=target)
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout.strip()
        == expected(prompt=PROMPT, max_new_tokens=12, temperature=0).text.strip()
    )
    assert "Unknown model" in asked(*words, path=tmp_path / "nothing").stderr  # the control
