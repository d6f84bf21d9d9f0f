"""What rounding to fp16 changes: little in a sound program, and much in one that is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_models import write_tiny_program

from benchmarks.sections.coreml_spread import FORMS, compare
from edgedec.coreml import constants, interpreter

TOKENS = [(7 * i) % 90 for i in range(40)]


@pytest.mark.parametrize("form", FORMS)
def test_rounding_is_small_and_seen(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, _ = write_tiny_program(tmp_path, form)
    path = tmp_path / "model.mlpackage"
    found = compare(spec, path, TOKENS)
    assert found["tokens"] == 40
    assert len(found["layers"]) == spec.layers
    # fp16 has eleven bits: several roundings of 0.0005 each.
    assert 1e-5 < found["layer_median"] <= found["layer_most"] < 0.02
    assert 1e-5 < found["logits_rms"] < found["logits_most"] < 0.1 * found["logits_spread"]
    assert found["top1"] > 0.9
    # Without rounding nothing is left but that of float32.
    exact = constants.rounded
    for module in (constants, interpreter):
        monkeypatch.setattr(module, "rounded", lambda value, *, exact_=exact, exact: exact_(
            value, exact=True
        ))  # fmt: skip
    unrounded = compare(spec, path, TOKENS)
    assert unrounded["layer_most"] < 1e-4
    assert unrounded["logits_most"] < 1e-3
