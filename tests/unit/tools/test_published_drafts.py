"""The list of published drafts is compared with a hub, here on a loopback port."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

pytest.importorskip("huggingface_hub", reason="the extra hub is not installed")

import hub_server
from hub_server import Hub

from edgedec.library.published import HEAD, Draft, Target
from tools import published_drafts

NAME = "some-org/Tiny-1M"
TARGET = Target(NAME, "llama", 2, 64)
DRAFT = Draft(NAME, HEAD, ("a/b",), 1, "Apache-2.0", "a page")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    files = {"config.json": b"{}", "model.safetensors": b"x"}
    with hub_server.serving(Hub(NAME, files)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        yield hub


def listing(monkeypatch: pytest.MonkeyPatch, *drafts: Draft) -> None:
    monkeypatch.setattr(published_drafts, "TARGETS", (TARGET,))
    monkeypatch.setattr(published_drafts, "DRAFTS", drafts)


def test_a_list_that_is_right(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listing(monkeypatch, DRAFT)
    hub.parameters = 1_000_000
    assert published_drafts.main([]) == 0
    assert capsys.readouterr().out == "the list is as the hub says\n"
    assert not hub.fetched("model.safetensors")


@pytest.mark.parametrize(
    ("draft", "change", "line"),
    [
        (replace(DRAFT, name="some-org/gone"), {}, "the hub answers 404"),
        (replace(DRAFT, licence="MIT"), {}, "licence apache-2.0 on the hub, MIT in the list"),
        (replace(DRAFT, licence=None), {}, "the hub states a licence, apache-2.0"),
        (DRAFT, {"gated": True}, "it is gated, and the note says otherwise"),
        (replace(DRAFT, note="gated: accept"), {}, "it is not gated"),
        (DRAFT, {"parameters": 9_000_000}, "9 M parameters on the hub, 1 M in the list"),
        (DRAFT, {"files": {"config.json": b"", "pytorch_model.bin": b""}}, "no model.safetensors"),
        (DRAFT, {"files": {"model.safetensors": b""}}, "it has no config.json"),
    ],
)
def test_what_differs_is_told(
    hub: Hub,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    draft: Draft,
    change: dict[str, object],
    line: str,
) -> None:
    listing(monkeypatch, draft)
    for name, value in change.items():
        setattr(hub, name, value)
    assert published_drafts.main([]) == 1
    assert f"{draft.name}: " in (out := capsys.readouterr().out)
    assert line in out
    assert published_drafts.main(["no such name"]) == 0
