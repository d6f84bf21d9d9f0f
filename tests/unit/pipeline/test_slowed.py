"""A text of a second or more says what slowed the machine; a shorter one does not ask."""

from __future__ import annotations

import pytest

from edgedec.hardware.strain import Strain
from edgedec.pipeline import GenerateOptions, Pipeline, decoder


@pytest.mark.parametrize(("least_s", "expected"), [(0.0, ("heat", 5_000)), (3600.0, ("", 0))])
def test_a_long_text_asks(
    least_s: float, expected: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoder, "_LONG_S", least_s)
    monkeypatch.setattr(decoder, "strain", lambda: Strain("heat", 80.0, 5_000))
    with Pipeline.open("demo", drafter="none") as pipeline:
        metrics = pipeline.generate("def f(", GenerateOptions(max_new_tokens=4)).metrics
    assert (metrics.slowed_by, metrics.swapped_bytes) == expected
