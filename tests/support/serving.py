"""A server process over a tiny random pair, on a free loopback port."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
from tiny_checkpoints import noisy_checkpoint
from waiting import LIMIT_S

TEMPLATE = (
    "{% if tools %}tools: {{ tools | tojson }}\n{% endif %}"
    "{% for message in messages %}"
    "{{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
CONTEXT = 2048


def checkpoint(folder: Path, noise: float, template: str | None) -> Path:
    entries = {"eos_token": "<|end|>"} | ({"chat_template": template} if template else {})
    return noisy_checkpoint(folder, noise=noise, context=CONTEXT, entries=entries)


class Server:
    """A running server.

    Attributes:
        url: its address; ``said`` is the line with which it started.
        pid: its process.

    """

    said = ""

    def __init__(self, process: subprocess.Popen[str], url: str, key: str | None) -> None:
        self.process, self.url, self.pid, self.key = process, url, process.pid, key
        self._clients: list[openai.OpenAI] = []

    def client(self, **options: Any) -> openai.OpenAI:
        import openai

        given = {"api_key": self.key or "none", "max_retries": 0, "timeout": 60.0, **options}
        self._clients.append(openai.OpenAI(base_url=f"{self.url}/v1", **given))
        return self._clients[-1]

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def asyncly(self, **options: Any) -> openai.AsyncOpenAI:
        import openai

        given = {"api_key": self.key or "none", "max_retries": 0, "timeout": 120.0, **options}
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", **given)

    def get(self, path: str, **options: Any) -> httpx.Response:
        import httpx

        return httpx.get(self.url + path, timeout=LIMIT_S, **options)

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        import httpx

        return httpx.post(self.url + path, json=body, **{"timeout": 60, **options})

    def figure(self, name: str) -> float:
        """A figure of ``/metrics``, of all labels."""
        page = self.get("/metrics").text
        found = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", page, re.MULTILINE)
        return sum(map(float, found))


@contextmanager
def serving(
    bundle: Path | str,
    *options: str,
    key: str | None = None,
    environment: dict[str, str] | None = None,
    ends: Sequence[int] = (),
    python: Sequence[str] = (sys.executable, "-m", "edgedec"),
) -> Iterator[Server]:
    """Run a server until the context ends; ``ends`` are exit codes besides 0 that it may have.

    ``bundle`` may be ``--models=...`` instead.

    ``python`` begins the command line, where the server is to be another or elsewhere.
    """
    command = [*python, "serve", str(bundle), "--port", "0", *options]
    env = {**os.environ, **(environment or {})}
    env.pop("EDGEDEC_API_KEY", None)
    if key is not None:
        env["EDGEDEC_API_KEY"] = key
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        found = re.search(r"http://\S+?:\d+", line)
        if found is None:
            raise AssertionError(process.communicate(timeout=LIMIT_S))
        server = Server(process, found[0], key)
        server.said = line
        yield server
        server.close()
    finally:
        process.send_signal(signal.SIGINT)  # does nothing where the test has ended it
        try:
            _, errors = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert process.returncode in (0, *ends), errors
    assert "Traceback" not in errors, errors
