"""SIGKILL while a text is saved or weights are written: nothing half-written is ever opened."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from killing import age, child, kill_when, partials
from packed_logits import logits
from tiny_models import write_tiny_model

from edgedec._support.kept import STATED, Folder, folders
from edgedec.pipeline import Pipeline
from edgedec.runtimes._ort import packed
from edgedec.runtimes.onnx.preparing import prepare

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no SIGSTOP here")

SIZES = {"hidden_size": 256, "intermediate_size": 1024, "max_position_embeddings": 2048}

SAVES = """
import sys
from edgedec.pipeline import Pipeline
with Pipeline.open("demo", drafter="none", plan="none", batch_invariant=True) as pipeline:
    pipeline.generate(range(5, 400), max_new_tokens=4, temperature=0)
    while True:
        pipeline.save(sys.argv[1])
"""


def test_while_a_text_is_saved(tmp_path: Path) -> None:
    file = tmp_path / "text"

    def writing() -> bool:
        found = partials(tmp_path)
        return file.exists() and bool(found) and found[0].stat().st_size > 0

    kill_when(child(SAVES, file), writing)
    (left,) = partials(tmp_path)
    with Pipeline.open("demo", drafter="none", plan="none", batch_invariant=True) as pipeline:
        pipeline.restore(file)
        held = list(pipeline.engine.held_tokens)
        assert held
        more = pipeline.generate([*held, 5, 6, 7], max_new_tokens=8, temperature=0)
        assert more.metrics.reused_tokens == len(held)
        pipeline.forget()
        again = pipeline.generate([*held, 5, 6, 7], max_new_tokens=8, temperature=0)
        assert again.token_ids == more.token_ids
        # It may be a process that is writing now; an hour later it is not.
        pipeline.save(file)
        assert left.exists()
        age(tmp_path)
        pipeline.save(file)
        assert [path.name for path in tmp_path.iterdir()] == ["text"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model, and a cache of this test's own for it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("EDGEDEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(packed, "LEAST_BYTES", 1)
    write_tiny_model(tmp_path / "model", "int4", own_rows=True, **SIZES)
    return tmp_path / "model"


PACKS = """
import sys
from pathlib import Path
from edgedec.runtimes._ort import packed
from edgedec.runtimes.onnx.preparing import prepare
packed.LEAST_BYTES = 1
prepare(Path(sys.argv[1]))
"""


def begun(partial: Path) -> bool:
    return True


def weights_there(partial: Path) -> bool:
    return any("data" in path.name and path.stat().st_size for path in partial.iterdir())


def stated(partial: Path) -> bool:
    """Everything is written but the folder's own name."""
    return (partial / STATED).exists() or any(partials(partial))


MOMENTS = pytest.mark.parametrize("moment", [begun, weights_there, stated])


def killed(shelf: Path, source: str, folder: Path, moment: Callable[[Path], bool]) -> Path:
    """Kill a process that fills a folder of the cache; return what it left."""

    def writing() -> bool:
        try:
            return any(moment(partial) for partial in partials(shelf))
        except FileNotFoundError:  # it has its name now
            return False

    for _ in range(20):  # a moment may be too short to be seen
        process = child(source, folder)
        try:
            kill_when(process, writing)
        except pytest.fail.Exception:
            if process.returncode != 0:
                raise
            for path in shelf.iterdir():
                Folder(shelf.name, path.name).remove()
            continue
        (left,) = shelf.iterdir()
        return left
    pytest.skip("the moment was never met")


@MOMENTS
def test_while_weights_are_packed(
    folder: Path, tmp_path: Path, moment: Callable[[Path], bool]
) -> None:
    expected = logits(folder)
    shelf = tmp_path / "cache" / "packed"
    left = killed(shelf, PACKS, folder, moment)
    assert np.array_equal(logits(folder), expected)
    assert [one.kind for one in folders()] == ["leftover"]  # `edgedec cache` lists it
    age(shelf)
    assert prepare(folder).what == "packed"
    assert not left.exists()
    assert np.array_equal(logits(folder), expected)
