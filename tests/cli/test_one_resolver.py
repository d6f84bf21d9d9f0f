"""Every command and ``Pipeline.open`` take the same models: a table of all of them and all kinds.

A call is followed to the file that it opens, the first one that is read as a model; there it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import hub_server
import pytest
import ready_models
import tiny_gguf
from ready_models import Layout

import edgedec
from edgedec.bundle import Bundle
from edgedec.cli import _library
from edgedec.errors import EdgedecError, InputError
from edgedec.gguf import GgufHeader
from edgedec.library import Library, hub, locate, making
from edgedec.library.choosing import Choice, Fetched
from edgedec.library.records import BUNDLE, Origin

REPO = "some-org/Tiny-1M"
# Each command's words, of which MODEL is the model.
COMMANDS = {
    "run": ["MODEL", "Hi"],
    "chat": ["MODEL"],
    "generate": ["MODEL", "Hi"],
    "serve": ["MODEL", "--port", "0"],
    "verify": ["MODEL"],
    "plan": ["MODEL"],
    "bench": ["MODEL"],
    "inspect": ["MODEL"],
    "prepare": ["MODEL"],
    "profile": ["MODEL"],
    "demo": ["MODEL"],
}
DRAFTED = ("run", "generate", "serve", "plan", "bench", "profile")
# Those that look for a draft, for which they read what the word may mean.
LOOKING = ("run", "chat", "serve")
KINDS = (
    "checkpoint", "new checkpoint", "bundle", "gguf", "folder of a gguf", "name", "id", "hub",
    "address", "demo", "onnx", "file of onnx",
)  # fmt: skip
Word, Opens = str, str
Call = Callable[[str], Any]


def each(ways: Iterable[str]) -> list[tuple[str, str]]:
    """Every way with a name of the library, the first with all kinds: one function finds them."""
    first, *others = ways
    return [*((first, kind) for kind in KINDS), *((way, "name") for way in others)]


class Opened(EdgedecError):
    """Ends a call where a model is opened."""


@pytest.fixture(scope="module")
def table(
    tmp_path_factory: pytest.TempPathFactory, repository: Path, bundle: Path
) -> Iterator[dict[str, tuple[Word, Opens]]]:
    """What a user writes for a model of each kind, and the path that is to be opened."""
    folder = tmp_path_factory.mktemp("models")
    library = Library(folder / "library")
    draft = repository / "models" / "demo" / "draft"
    (folder / "downloads").mkdir()
    tiny_gguf.write_tiny_gguf(folder / "downloads" / "tiny.gguf")
    made = making.of_checkpoint(library, draft, None, making.Listener(lambda text: None))
    origin = Origin(REPO, hub_server.COMMIT, made.record.origin.files, 1)
    fetched = Fetched(draft, Choice(BUNDLE, ()), origin)
    pulled = making.of_fetched(library, fetched, None, making.Listener(lambda text: None))
    ready = ready_models.transformers_js(draft, folder / "ready", fp32=Layout())
    chosen = making.find_ready(ready, "fp32", None, None)
    taken = making.of_ready(library, chosen, making.Listener(lambda text: None))
    (folder / "new").symlink_to(draft)
    new = folder / "library" / "models" / making._id(made.record.origin, made.record.form, "new")
    gguf = str(folder / "downloads" / "tiny.gguf")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGEDEC_LIBRARY", str(library.folder))
        yield {
            "checkpoint": (str(draft), str(made.path)),
            "new checkpoint": (str(folder / "new"), str(new / "bundle")),
            "bundle": (str(bundle), str(bundle)),
            "gguf": (gguf, gguf),
            "folder of a gguf": (str(folder / "downloads"), gguf),
            "name": ("draft", str(made.path)),
            "id": (made.id[:9], str(made.path)),
            "hub": (REPO, str(pulled.path)),
            "address": (f"https://huggingface.co/{REPO}", str(pulled.path)),
            "demo": ("demo", "demo"),
            "onnx": (f"{ready}:fp32", str(taken.path)),
            "file of onnx": (str(ready / "onnx" / "model.onnx"), str(taken.path)),
        }


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models that were opened; nothing is read of them, and nothing is fetched."""
    found: list[str] = []

    def stop(path: str | Path, *_: object, **__: object) -> NoReturn:
        if "/.making-" in str(path):
            return real(path)
        found.append(str(path))
        raise Opened("opened")

    def no_network(*_: object) -> NoReturn:
        raise AssertionError("a model of the library was fetched")

    real = Bundle.open
    monkeypatch.setattr(Bundle, "open", stop)
    monkeypatch.setattr(GgufHeader, "read", stop)
    monkeypatch.setattr(hub, "fetch", no_network)
    return found


@pytest.mark.parametrize(("command", "kind"), each(COMMANDS))
def test_each_command_takes_each_kind(run, table, opened, command: str, kind: str) -> None:
    word, path = table[kind]
    result = run(command, *(word if one == "MODEL" else one for one in COMMANDS[command]))
    assert result.exit_code == 2, result.output
    assert opened, result.stderr
    assert opened[0] == path


@pytest.mark.parametrize(("command", "kind"), each(DRAFTED))
def test_each_draft_may_be_of_each_kind(run, table, opened, command: str, kind: str) -> None:
    word, path = table[kind]
    words = [table["gguf"][0] if one == "MODEL" else one for one in COMMANDS[command]]
    with pytest.MonkeyPatch.context() as patch:
        found: list[Path | None] = []
        real = _library.draft_path

        def followed(
            word: str | Path | None, target: str | Path, format: str | None = None
        ) -> Path | None:
            found.append(real(word, target, format))
            return found[-1]

        patch.setattr(_library, "draft_path", followed)
        result = run(command, *words, "--draft", word)
    assert result.exit_code == 2, result.output
    assert found, result.stderr
    assert found == [Path(path)]


CALLS: dict[str, Call] = {
    "Pipeline.open": edgedec.Pipeline.open,
    "Pipeline.open with a draft": lambda word: edgedec.Pipeline.open("demo", draft=word),
    "plan": edgedec.plan,
}


@pytest.mark.parametrize(("call", "kind"), each(CALLS))
def test_python_takes_each_kind(table, opened, call: str, kind: str) -> None:
    word, path = table[kind]
    with pytest.MonkeyPatch.context() as patch:
        if "draft" in call:  # the target is opened first, and is not asked about here
            patch.setattr("edgedec.pipeline.pipeline.configurations", _draft_of)
        with pytest.raises(Opened):
            CALLS[call](word)
    assert opened[0] == path


def _draft_of(_: object, options: Any, __: object) -> NoReturn:
    Bundle.open(options.draft)
    raise AssertionError("it was opened")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_looks_for_no_model_is_noticed(
    run, table, opened, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a word that is taken as it is opens nothing of the library."""
    monkeypatch.setattr(locate, "_find", lambda word, *_: locate.Located(str(word)))
    word, path = table["name"]
    words = [word if one == "MODEL" else one for one in COMMANDS[command]]
    run(command, *words, *(["--no-draft"] if command in LOOKING else []))
    assert path not in opened


def test_a_hubs_model_is_not_downloaded_unasked(table, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"other/Model is not in the library: edgedec\.pull"):
        edgedec.Pipeline.open("other/Model")

    def fetched(*_: object) -> NoReturn:
        raise Opened("fetched")

    monkeypatch.setattr(hub, "fetch", fetched)
    with pytest.raises(Opened, match="fetched"):
        edgedec.Pipeline.open("other/Model", download=True)


def test_conversion_is_reported(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEDEC_LIBRARY", str(tmp_path / "library"))
    stages: list[tuple[str, int, int]] = []
    folder = repository / "models" / "demo" / "draft"
    for made in (True, False):
        stages.clear()
        with edgedec.Pipeline.open(folder, progress=lambda *step: stages.append(step)) as pipeline:
            assert pipeline.generate("def f(x):", max_new_tokens=2).token_ids
        assert bool(stages) is made
        assert all(0 <= done <= total for _, done, total in stages)
