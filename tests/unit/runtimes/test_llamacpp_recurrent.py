"""A recurrent model from a file decodes plainly; whoever asks for more is told why not."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")
pytest.importorskip("gguf", reason="gguf is not installed: extra gguf")

from tiny_gguf import write_tiny_gguf

from edgedec.errors import InputError
from edgedec.loading.build import OpenOptions, assemble
from edgedec.loading.sources import Models


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_recurrent_target_decodes_plainly(tmp_path: Path) -> None:
    target = write_tiny_gguf(tmp_path / "target.gguf", "mamba")
    parts = assemble(Models.find(target), OpenOptions())
    assert parts.facts["drafter"] == "none"
    parts.close()
    with pytest.raises(InputError, match="recurrent"):
        assemble(Models.find(target), OpenOptions(drafter="lookup"))


def test_a_recurrent_draft_is_refused(tmp_path: Path) -> None:
    target = write_tiny_gguf(tmp_path / "target.gguf", layers=3)
    draft = write_tiny_gguf(tmp_path / "draft.gguf", "mamba")
    for name in ("auto", "model"):
        with pytest.raises(InputError, match="tiny-mamba is recurrent"):
            assemble(Models.find(target, draft), OpenOptions(drafter=name, draft=draft))
    parts = assemble(Models.find(target), OpenOptions())
    assert parts.facts["drafter"] == "text"
    parts.close()
