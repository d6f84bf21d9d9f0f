"""A hub on loopback with the demo target, and a list of published drafts that names what is there.

``TARGET`` has a head, a draft with its tokens, and one with other tokens. Unless a test wants the
head's own target, which takes seconds to convert, it has the draft's weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import hub_server
import pytest
from hub_server import Hub

from edgedec.library import published, recognise
from edgedec.library.published import HEAD, MODEL, Draft, Target

MODELS = Path(__file__).resolve().parents[2] / "models" / "demo"
TARGET, DRAFT, OTHER, TRAINED = (
    f"some-org/{name}" for name in ("Demo-11M", "Demo-2M", "Demo-bpe", "Demo-head")
)
_FOLDERS = {TARGET: "draft", DRAFT: "draft", OTHER: "draft_bpe2048", TRAINED: "head"}
LISTED = Target(TARGET, "llama", 4, 512)


def draft(name: str, kind: str = MODEL) -> Draft:
    """An entry of the list."""
    return Draft(name, kind, (TARGET,), 2, "Apache-2.0", "a test")


ENTRIES = {
    TRAINED: draft(TRAINED, HEAD),
    DRAFT: draft(DRAFT),
    OTHER: draft(OTHER),
}


def listing(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let the list have these drafts alone, in this order."""
    monkeypatch.setattr(published, "TARGETS", (LISTED,))
    monkeypatch.setattr(recognise, "TARGETS", (LISTED,))
    monkeypatch.setattr(published, "DRAFTS", tuple(ENTRIES[name] for name in names))


def unread(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the list have one draft, which edgedec cannot read."""
    listing(monkeypatch)
    monkeypatch.setattr(published, "DRAFTS", (replace(ENTRIES[name], unread="not yet"),))


def files(folder: str) -> dict[str, bytes]:
    """What a repository of this model has."""
    return {path.name: path.read_bytes() for path in (MODELS / folder).iterdir()}


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Hub]]:
    """Serve the repositories, by name."""
    hubs = {repo: Hub(repo, files(folder)) for repo, folder in _FOLDERS.items()}
    with hub_server.serving(*hubs.values()):
        monkeypatch.setenv("HF_ENDPOINT", hubs[TARGET].address)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield hubs
