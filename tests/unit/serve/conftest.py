"""Servers over a tiny random pair; ``tests/serving.py`` starts them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_bundles
from browser import Browser, browser
from serving import TEMPLATE, Server, checkpoint, serving
from waiting import LIMIT_S

from edgedec import Pipeline
from edgedec.export import ExportOptions


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Target and draft, fp32, so that texts are the same whatever is drafted."""
    folder = tmp_path_factory.mktemp("served")
    target = checkpoint(folder / "target", 0, TEMPLATE)
    draft = checkpoint(folder / "draft", 0.01, TEMPLATE)
    options = ExportOptions(target, folder / "tiny", draft, weights="fp32", parity=False)
    return tiny_bundles.kept(options)


@pytest.fixture(scope="session")
def start(bundle: Path) -> Callable[..., Any]:
    """Start a server with other options; a context."""

    def call(*options: str, **more: Any) -> Any:
        return serving(bundle, "--threads", "1", *options, **more)

    return call


@pytest.fixture(scope="session")
def server(start: Callable[..., Any]) -> Iterator[Server]:
    """A server of all tests that leave it as it is."""
    with start("--drafter", "hybrid", "--draft-length", "3") as one:
        yield one


@pytest.fixture(scope="session")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser of all tests of the page."""
    with browser(tmp_path_factory.mktemp("browser")) as one:
        yield one


@pytest.fixture(scope="session")
def pipeline(bundle: Path) -> Iterator[Pipeline]:
    """What ``served_here`` serves in this process."""
    with Pipeline.open(bundle, drafter="none", threads=1, parallel=4) as one:
        yield one


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Texts begin once this is set."""
    opened, stream = threading.Event(), Pipeline.stream

    def held(self: Pipeline, *given: Any, **more: Any) -> Any:
        assert opened.wait(LIMIT_S)
        return stream(self, *given, **more)

    monkeypatch.setattr(Pipeline, "stream", held)
    yield opened
    opened.set()
