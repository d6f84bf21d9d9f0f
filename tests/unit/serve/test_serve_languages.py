"""The examples of docs/guides/languages-and-editors.md, against a server."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from serving import Server

PAGE = "docs/guides/languages-and-editors.md"


def shown(repository: Path, kind: str, server: Server) -> str:
    """Return the page's block of a kind, for a server's address."""
    blocks = re.findall(
        r"^```(\w*)\n(.*?)^```", (repository / PAGE).read_text("utf-8"), re.M | re.S
    )
    (found,) = [
        text for language, text in blocks if kind in (language, text.split()[0]) and "/v1/" in text
    ]
    return found.replace("http://127.0.0.1:8080", server.url)


def run(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_javascript_streams(repository: Path, server: Server) -> None:
    # Greedy: a sampled text may end with its first token.
    greedy = "temperature: 0, stream: true"
    script = shown(repository, "javascript", server).replace("stream: true", greedy)
    text = run(["node", "--input-type=module", "--eval", script])
    question = {"role": "user", "content": "Why is the sky blue?"}
    body = {"messages": [question], "max_tokens": 64, "temperature": 0}
    answer = server.post("/v1/chat/completions", body).json()
    assert text == answer["choices"][0]["message"]["content"] != ""


def test_curl_gets_an_answer(repository: Path, server: Server) -> None:
    answer = json.loads(run(["bash", "-c", shown(repository, "curl", server) + "\n"]))
    assert answer["choices"][0]["message"]["content"]
