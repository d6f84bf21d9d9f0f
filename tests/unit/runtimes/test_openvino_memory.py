"""Neither the file that weights were packed from nor wide passes take memory for long."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from mapped_files import held_of
from tiny_models import write_tiny_model

from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.hardware.resident import release_free, resident_bytes

pytest.importorskip("openvino", reason="needs the extra openvino")

from edgedec.runtimes.onnx.openvino import model as openvino
from edgedec.runtimes.onnx.openvino.model import OpenVinoModel
from edgedec.runtimes.onnx.openvino.passes import OpenVinoPasses, release

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

# Two layers of 15 million weights in four bits.
WIDE = {"hidden_size": 1024, "intermediate_size": 4096, "head_dim": 256}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wide")
    write_tiny_model(folder, "int4", **WIDE)
    return folder


def decoded(folder: Path) -> tuple[list[FloatArray], int, int]:
    """Return rows of passes of several widths, and the bytes of the file held before and after."""
    (file,) = [one for one in folder.iterdir() if one.name.endswith(".data")]
    assert file.stat().st_size > 15e6
    model, rows = OpenVinoModel.compile(folder, threads=1), []
    with closing(model), closing(model.open(128)) as session:
        opened = held_of(file)
        session.prefill([token % 96 for token in range(70)])
        for width in (1, 5, 17):
            found = session.forward(TokenTree.chain(range(1, width + 1)))
            assert found.logits is not None
            rows.append(found.logits.copy())
            session.rollback(70)
        return rows, opened, held_of(file)


@pytest.mark.full
def test_the_files_pages_are_given_back_and_the_rows_stay_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(one.stat().st_size for one in folder.iterdir())
    rows, opened, after = decoded(folder)
    assert opened <= after < 0.1 * size
    with monkeypatch.context() as patch:
        patch.setattr(openvino, "drop_pages", lambda _: None)
        expected, opened, _ = decoded(folder)
    assert opened > 0.8 * size  # the measure sees pages that are held
    for one, other in zip(rows, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def grown(folder: Path) -> int:
    """Return the bytes that a long prompt adds to what this process holds after a short one."""
    model = OpenVinoModel.compile(folder, threads=1)
    with closing(model), closing(model.open(256)) as session:
        session.prefill(range(8))
        release_free()
        before = resident_bytes()
        session.prefill([token % 96 for token in range(240)])
        return resident_bytes() - before


def test_the_memory_of_wide_passes_is_given_back_after_a_prompt(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = grown(folder)
    with monkeypatch.context() as patch:
        patch.setattr(OpenVinoPasses, "trim", lambda _: None)
        kept = grown(folder)
    assert kept > held + 2_000_000


def test_what_another_session_returned_outlives_the_release(folder: Path) -> None:
    model = OpenVinoModel.compile(folder, threads=1)
    with closing(model), closing(model.open(128)) as one, closing(model.open(128)) as other:
        one.prefill(range(9))
        shown = one.forward(TokenTree.chain(range(1, 6)))
        assert shown.logits is not None
        ids, logits = shown.top_ids.copy(), shown.logits.copy()
        other.prefill([token % 96 for token in range(90)])
        np.testing.assert_array_equal(shown.logits, logits)
        np.testing.assert_array_equal(shown.top_ids, ids)
        one.commit([0])
        again = one.forward(TokenTree.chain(range(2, 6)))
        assert again.logits is not None
        np.testing.assert_array_equal(again.logits, logits[1:])


def test_while_a_pass_runs_nothing_is_released() -> None:
    class Busy:
        asked = False

        def release_memory(self) -> None:
            self.asked = True
            raise RuntimeError("the graph is locked")

    busy = Busy()
    release(SimpleNamespace(inference=busy))  # type: ignore[arg-type]
    assert busy.asked
