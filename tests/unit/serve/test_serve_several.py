"""``edgedec serve --models``: the command, the library, and a process that serves several."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from browser import Browser
from click.testing import CliRunner
from served_page import IDLE, TEXT, say
from serving import Server, serving
from test_serve_docs import curled, curls
from waiting import LIMIT_S, until

from edgedec.cli import _library, _served
from edgedec.cli.serve import command
from edgedec.errors import InputError
from edgedec.library import Form, Library, making
from edgedec.library.locate import Query
from edgedec.library.making import Listener
from edgedec.pipeline import Pipeline

CHOSEN: dict[str, Any] = {"format": "auto", "accept": None, "drafter": None, "draft": None}
TALK: Any = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def two(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two bundles."""
    folder = tmp_path_factory.mktemp("two")
    return [Path(shutil.copytree(bundle, folder / name)) for name in ("one", "other")]


@pytest.fixture(scope="module")
def several(two: list[Path]) -> Iterator[Server]:
    with serving(f"--models={two[0]},{two[1]}", "--threads", "1", "--plan", "none") as server:
        yield server


def loaded(server: Server) -> list[str]:
    return list(server.get("/edgedec/status").json()["loaded"])


def test_clients_choose(several: Server) -> None:
    assert several.said.startswith("2 models at http://")
    client = several.client()
    assert [one.id for one in client.models.list()] == ["one", "other"]
    for name in ("other", "one"):
        answer = client.chat.completions.create(model=name, messages=TALK, max_tokens=4)
        assert answer.model == name
    assert loaded(several) == ["one", "other"]
    with pytest.raises(openai.NotFoundError, match="this server has 'one', 'other'"):
        client.chat.completions.create(model="tiny", messages=TALK)


def test_ollamas_client_drops_and_loads(several: Server) -> None:
    for keep, there in ((0, []), ("10m", ["one"])):
        for name in loaded(several):
            several.post("/api/generate", {"model": name, "keep_alive": 0})
        until(lambda: not loaded(several))
        body = {"model": "one", "messages": TALK, "options": {"num_predict": 4}}
        answer = several.post("/api/chat", {**body, "keep_alive": keep, "stream": False})
        assert answer.json()["model"] == "one"
        until(lambda: loaded(several) == there)  # noqa: B023 - called at once


@pytest.mark.full
def test_sigterm_finishes_the_texts_of_all(two: list[Path]) -> None:
    """One of them waits for its model when the signal comes, or is decoded already."""
    given = "--threads", "1", "--plan", "none", "--grace", "600"
    with serving(f"--models={two[0]},{two[1]}", *given) as server, ThreadPoolExecutor(3) as pool:
        body = {"prompt": "x", "max_tokens": 400, "temperature": 0}
        asked = [
            pool.submit(server.post, "/v1/completions", {**body, "model": name}, timeout=LIMIT_S)
            for name in ("one", "other", "one")
        ]
        until(lambda: server.figure("edgedec_running_requests") or any(map(_done, asked)))
        server.process.send_signal(signal.SIGTERM)
        answers = [one.result() for one in asked]
        # Those whose connection came before the signal was seen.
        assert {one.status_code for one in answers} <= {200, 503}
        assert 200 in {one.status_code for one in answers}
        assert server.process.wait(LIMIT_S) == 0


def _done(one: Any) -> bool:
    return bool(one.done())


def test_what_is_dropped_lets_its_file_go(two: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="llama_cpp not installed: install the extra gguf")
    pytest.importorskip("gguf", reason="gguf not installed: install the extra gguf")
    from tiny_gguf import write_tiny_gguf

    if not Path("/proc/self/maps").exists():
        pytest.skip("needs Linux's /proc")
    file = write_tiny_gguf(tmp_path / "tiny.gguf", weights="Q8_0")
    with serving(f"--models={two[0]}", "--models", str(file), "--threads", "1") as server:
        maps = Path(f"/proc/{server.pid}/maps")
        for keep, there in ((-1, True), (0, False), (-1, True)):
            asked = {"model": "tiny", "prompt": "x", "keep_alive": keep}
            assert server.post("/v1/completions", asked).status_code == 200
            until(lambda: (str(file) in maps.read_text("utf-8", "replace")) == there)  # noqa: B023


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_the_commands_of_the_page(repository: Path, bundle: Path, tmp_path: Path) -> None:
    page = (repository / "docs" / "guides" / "several-models.md").read_text("utf-8")
    commands = curls(page)
    assert len(commands) >= 4
    named = shutil.copytree(bundle, tmp_path / "Qwen3-0.6B")
    with serving(f"--models={named}", "--threads", "1") as server:
        for one in commands:
            done = curled(one, server)
            assert (done.returncode, bool(json.loads(done.stdout))) == (0, True), (one, done)
        until(lambda: not loaded(server))  # as the last of them asks
        wrong = curled(commands[1].replace("Qwen3", "Qwen4"), server)  # the control
        assert "this server has 'Qwen3-0.6B'" in wrong.stdout


@pytest.mark.full
@pytest.mark.chromium
def test_the_page_has_a_choice(window: Browser, two: list[Path]) -> None:
    """A message loads the model that was chosen, and its plan is then shown."""
    with serving(f"--models={two[0]},{two[1]}", "--threads", "1", "--plan", "none") as server:
        window.go(f"{server.url}/health")
        window.run("localStorage.clear(); sessionStorage.clear()")
        window.errors.clear()
        window.go(server.url)
        told = "document.getElementById('model')?.textContent"
        window.wait(f"{told}?.includes('loaded at the first message')")
        assert window.run("[...document.getElementById('choice').options].map((o) => o.value)") == [
            "one", "other",
        ]  # fmt: skip
        window.run(
            "document.getElementById('choice').value = 'other';"
            "document.getElementById('choice').dispatchEvent(new Event('change')); 1"
        )
        window.wait("document.getElementById('choice').value === 'other'")
        assert loaded(server) == []
        say(window, "Hello", 8)
        window.wait(f"({TEXT} || '').length > 1")
        window.wait(IDLE)
        assert loaded(server) == ["other"]
        assert window.run("document.querySelector('.turn.assistant > b').textContent") == "other"
        window.wait(f"{told}?.includes('drafted by')")
        assert window.errors == []


@pytest.fixture(scope="module")
def library(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    """The shipped pair as two models, one of them in two forms."""
    folder = tmp_path_factory.mktemp("kept")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGEDEC_LIBRARY", str(folder))
        for name, form in (("target", "int8"), ("draft", "int8"), ("draft", "fp32")):
            source = repository / "models" / "demo" / name
            making.of_checkpoint(Library(), source, Form(form), Listener(lambda _: None))
        yield Library()


class TestTheLibrary:
    def test_all_of_it(self, library: Library) -> None:
        taken = _library.located("draft", Query(format=None)).model
        assert taken is not None
        (other,) = (one for one in library.models() if one.name == "draft" and one.id != taken.id)
        found = _served.offers(["", "target"], {**CHOSEN}, tells=True)
        assert [one.name for one in found] == ["draft", other.id[:8], "target"]
        assert found[0].planning == "edgedec plan draft"
        assert _served.offers([""], {**CHOSEN}, tells=False)[0].planning == ""

    def test_some_of_it_in_order(self, library: Library, bundle: Path) -> None:
        found = _served.offers([f"target,{bundle}", "draft"], {**CHOSEN}, tells=False)
        assert [one.name for one in found] == ["target", bundle.name, "draft"]
        assert found[1].source().architecture == "llama"
        with pytest.raises(InputError, match="not a file or folder here, nor a model"):
            _served.offers(["nothing-of-this-name"], {**CHOSEN}, tells=False)

    def test_two_of_one_name(self, library: Library, bundle: Path, tmp_path: Path) -> None:
        twin = tmp_path / bundle.name
        twin.symlink_to(bundle)
        with pytest.raises(InputError, match=f"two models are called {bundle.name}"):
            _served.offers([f"{bundle},{twin}"], {**CHOSEN}, tells=False)

    @pytest.mark.parametrize(("drafter", "used"), [(None, "hybrid"), ("lookup", "lookup")])
    def test_a_draft_of_the_library_goes_with_it(
        self, library: Library, drafter: str | None, used: str
    ) -> None:
        (offer,) = _served.offers(["target"], {**CHOSEN, "drafter": drafter}, tells=False)
        with offer.open() as pipeline:
            assert pipeline.plan["drafter"] == used

    def test_the_context_is_at_most_what_each_was_trained_for(self, bundle: Path) -> None:
        for asked, has in ((10**6, 2048), (512, 512)):
            chosen = {**CHOSEN, "max_context": asked}
            (offer,) = _served.offers([str(bundle)], chosen, tells=False)
            with offer.open() as pipeline:
                assert pipeline.plan["max_context"] == has

    def test_an_empty_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("EDGEDEC_LIBRARY", str(tmp_path / "empty"))
        done = CliRunner().invoke(command, ["--models", "--port", "0"], catch_exceptions=True)
        assert isinstance(done.exception, InputError)
        assert "the library has no models: `edgedec pull MODEL` adds one" in str(done.exception)


@pytest.mark.parametrize(
    ("words", "said"),
    [(["demo", "--models"], "--models and MODEL: name all models with --models"),
     (["--models", "a,b", "demo"], "--models and MODEL"),
     (["--models", "a", "-m", "demo"], "--models and MODEL"),
     (["--models", "a", "--name", "x"], "--models and --name: each model has its own name"),
     (["--models", "a", "--draft", "demo"], "--models and --draft: each model takes the draft"),
     (["--models", "a", "--plan", "x.json"], "--models and --plan FILE: a plan is for one model"),
     (["demo", "--keep-alive", "5m"], "--keep-alive goes with --models"),
     (["--models", "a", "--keep-alive", "soon"], "expected seconds, a duration such as 5m")],
)  # fmt: skip
def test_what_does_not_go_together(words: list[str], said: str) -> None:
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())


def test_it_is_a_limit_for_each_that_is_opened(bundle: Path) -> None:
    """What is given for the process is what each is opened with."""
    chosen = {**CHOSEN, "memory": 10**12, "parallel": 2}
    (offer,) = _served.offers([str(bundle)], chosen, tells=False)
    with offer.open() as pipeline:
        assert pipeline.free_bytes() is not None
    (offer,) = _served.offers([str(bundle)], {**CHOSEN, "parallel": 2}, tells=False)
    with Pipeline.open(bundle) as pipeline:
        assert pipeline.free_bytes() is None  # the control


def test_the_help_says_how() -> None:
    said = " ".join(CliRunner().invoke(command, ["--help"]).output.split())
    for words in ("--models [NAME,...]", "--keep-alive DURATION", "edgedec serve --models"):
        assert words in said


def test_props_of_a_server_of_several_name_no_model(several: Server) -> None:
    assert several.get("/props").json()["role"] == "router"
    assert json.loads(several.get("/props?model=one").text)["model_alias"] == "one"
