"""A disk that is really full: a small file system in memory, mounted where the right is there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from killing import partials
from kinds import in_full
from packed_logits import logits
from small_disk import fill
from tiny_models import write_tiny_model

from edgedec._support import kept
from edgedec.errors import RuntimeUnavailable
from edgedec.pipeline import Pipeline
from edgedec.runtimes._ort import packed
from edgedec.runtimes.onnx.preparing import prepare

SIZES = {"hidden_size": 256, "intermediate_size": 1024, "max_position_embeddings": 2048}


def test_a_text_is_not_saved_and_the_old_one_stays(disk: Path) -> None:
    file = disk / "text"
    with Pipeline.open("demo", drafter="none", plan="none") as pipeline:
        pipeline.generate(range(5, 60), max_new_tokens=4)
        pipeline.save(file)
        kept = file.read_bytes()
        # Each is another moment: no room for a byte, for the head, for a part of the keys.
        for leave in (0, 4096, len(kept) // 8192 * 4096):
            filling = fill(disk, leave)
            with pytest.raises(OSError, match="No space left"):
                pipeline.save(file)
            assert file.read_bytes() == kept
            assert not partials(disk)
            filling.unlink()
        # The text is still there to be saved.
        more = pipeline.generate([*pipeline.engine.held_tokens, 7], max_new_tokens=4)
        assert more.metrics.reused_tokens > 55
        pipeline.save(file)
        assert file.read_bytes() != kept


@pytest.fixture
def folder(disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model whose cache is on the small disk."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(disk / "home"))
    monkeypatch.setenv("EDGEDEC_CACHE", str(disk / "cache"))
    monkeypatch.setattr(packed, "LEAST_BYTES", 1)
    write_tiny_model(tmp_path / "model", "int4", own_rows=True, **SIZES)
    return tmp_path / "model"


@pytest.fixture
def filled_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program fills the disk after the look at its room."""
    monkeypatch.setattr(kept, "_check_room", lambda *_: None)


LEFT = in_full([0, 300_000, 4096, 65536, 700_000, 1_200_000], 2)


@pytest.mark.usefixtures("filled_meanwhile")
@pytest.mark.parametrize("leave", LEFT)
def test_weights_are_packed_whole_or_not_at_all(disk: Path, folder: Path, leave: int) -> None:
    expected = logits(folder)
    filling = fill(disk, leave)
    with pytest.raises(RuntimeUnavailable, match="as before"):
        prepare(folder)
    cache = disk / "cache" / "packed"
    assert not cache.exists() or not [*cache.iterdir()]
    assert np.array_equal(logits(folder), expected)
    filling.unlink()
    assert prepare(folder).what == "packed"
    assert np.array_equal(logits(folder), expected)
