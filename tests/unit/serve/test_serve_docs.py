"""What the pages about the server show, run against one: each route with curl, and the clients."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import Server
from starlette.routing import compile_path
from test_serve_routes import OPEN, routes_of

from edgedec import Pipeline

ADDRESS = "http://127.0.0.1:8080"
# Refused, so that there is nothing to show.
ABSENT = {"/v1/embeddings", "/v1/responses/{rest:path}", "/v1/messages/{rest:path}",
          "/api/embed", "/api/embeddings", "/api/{rest:path}"}  # fmt: skip


@pytest.fixture(scope="module")
def named(start: Callable[..., Any]) -> Iterator[Server]:
    with start("--name", "my-bundle") as server:
        yield server


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    pages = ("server.md", "server-routes.md")
    return "\n".join((repository / "docs" / name).read_text("utf-8") for name in pages)


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def curls(page: str) -> list[str]:
    """The commands of a page that are run with curl, each in one line."""
    text = "\n".join(blocks(page, "bash")).replace("\\\n", " ")
    return [line for line in text.splitlines() if line.startswith("curl ")]


def paths_of(commands: list[str]) -> set[str]:
    return {command.split()[1].removeprefix(ADDRESS) for command in commands}


def not_shown(paths: set[str], commands: list[str]) -> set[str]:
    """The routes, of these paths, that no command asks for."""
    shown = paths_of(commands)
    return {path for path in paths if not any(compile_path(path)[0].match(one) for one in shown)}


def test_the_page_shows_each_route(pipeline: Pipeline, page: str) -> None:
    paths = {one.path for one in routes_of(pipeline)} - ABSENT - (OPEN - {"/health", "/livez"})
    assert not_shown(paths, curls(page)) == set()
    assert not_shown(paths, curls(page)[1:]) == {"/v1/chat/completions"}  # the control


def run(command: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **more)


def curled(command: str, server: Server) -> subprocess.CompletedProcess[str]:
    fails = 'curl() { command curl -sS --fail-with-body "$@"; }\n'
    return run(["bash", "-c", fails + command.replace(ADDRESS, server.url)])


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_each_command_is_answered(named: Server, page: str) -> None:
    for command in curls(page):
        done = curled(command, named)
        assert done.returncode == 0, (command, done)
        assert done.stdout
        if "-d" not in command and "/metrics" not in command:
            json.loads(done.stdout)
    wrong = curled(f"curl {ADDRESS}/v1/models/other", named)  # the control
    assert (wrong.returncode, "this server has" in wrong.stdout) == (22, True)


def python_of(page: str, package: str) -> str:
    (found,) = [one for one in blocks(page, "python") if f"from {package} import" in one]
    return found


def test_openai_for_python(named: Server, page: str) -> None:
    code = python_of(page, "openai").replace(ADDRESS, named.url)
    done = run([sys.executable, "-c", code + "print(answer.model)"])
    assert (done.returncode, done.stdout) == (0, "my-bundle\n"), done.stderr


@pytest.mark.parametrize("package", ["langchain_openai", "ollama"])
def test_other_clients_for_python(named: Server, page: str, package: str) -> None:
    pytest.importorskip(package, reason=f"{package} is not installed, nor needed by edgedec")
    done = run([sys.executable, "-c", python_of(page, package).replace(ADDRESS, named.url)])
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_openai_for_javascript(named: Server, page: str, tmp_path: Path) -> None:
    modules, node = os.environ.get("EDGEDEC_NODE_MODULES"), shutil.which("node")
    if not modules or not node:
        pytest.skip("needs node, and EDGEDEC_NODE_MODULES, a folder with its package openai")
    (tmp_path / "node_modules").symlink_to(modules)
    (code,) = blocks(page, "javascript")
    (tmp_path / "it.mjs").write_text(code.replace(ADDRESS, named.url), "utf-8")
    done = run([node, "it.mjs"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_llm(named: Server, page: str, tmp_path: Path) -> None:
    pytest.importorskip("llm", reason="llm not installed: install the extra dev")
    (models,) = [one for one in blocks(page, "yaml") if "api_base" in one]
    (tmp_path / "extra-openai-models.yaml").write_text(models.replace(ADDRESS, named.url), "utf-8")
    (words,) = re.findall(r'`llm (-m my-bundle) "Hello"`', page)
    environment = {**os.environ, "LLM_USER_PATH": str(tmp_path)}
    limit = ["-o", "max_tokens", "8"]
    done = run([sys.executable, "-m", "llm", *words.split(), "Hello", *limit], env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


GUIDE = "docs/guides/languages-and-editors.md"


def shown(repository: Path, kind: str, server: Server) -> str:
    """Return the page's block of a kind, for a server's address."""
    blocks = re.findall(
        r"^```(\w*)\n(.*?)^```", (repository / GUIDE).read_text("utf-8"), re.M | re.S
    )
    (found,) = [
        text for language, text in blocks if kind in (language, text.split()[0]) and "/v1/" in text
    ]
    return found.replace("http://127.0.0.1:8080", server.url)


def output(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = run(command)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_javascript_streams(repository: Path, server: Server) -> None:
    # Greedy: a sampled text may end with its first token.
    greedy = "temperature: 0, stream: true"
    script = shown(repository, "javascript", server).replace("stream: true", greedy)
    text = output(["node", "--input-type=module", "--eval", script])
    question = {"role": "user", "content": "Why is the sky blue?"}
    body = {"messages": [question], "max_tokens": 64, "temperature": 0}
    answer = server.post("/v1/chat/completions", body).json()
    assert text == answer["choices"][0]["message"]["content"] != ""


def test_curl_gets_an_answer(repository: Path, server: Server) -> None:
    answer = json.loads(output(["bash", "-c", shown(repository, "curl", server) + "\n"]))
    assert answer["choices"][0]["message"]["content"]
