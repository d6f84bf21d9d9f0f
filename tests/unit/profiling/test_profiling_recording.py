"""What is recorded of a pair: texts without tokens, and a draft of another vocabulary."""

import itertools
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
from cross_vocabulary import permutation

from edgedec.decoding.translation import Translation
from edgedec.errors import ProfileError
from edgedec.planning.choose import decide
from edgedec.profiling import prompts, recording
from edgedec.profiling.prompts import CalibrationPrompt
from edgedec.records.place import Place
from edgedec.records.profile import Measured
from edgedec.testing import FakeModel
from tests.profiles import WORK, profile
from tests.simulated import measured

VOCAB = 48
TEXTS = [CalibrationPrompt("one", "abc"), CalibrationPrompt("none", "")]
PLACES = {"target": Place("onnx", threads=2), "draft": Place("gguf", device="Vulkan0")}
MEASURED = [measured(role, place=place, vocab_size=VOCAB) for role, place in PLACES.items()]


@dataclass
class Source:
    format: str
    path: str

    def read_tokenizer(self) -> object:
        return SimpleNamespace(encode=lambda text: [ord(letter) % VOCAB for letter in text])


SOURCES = {role: [Source(place.format, role)] for role, place in PLACES.items()}


@pytest.fixture(autouse=True)
def models(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Both models, and which were opened."""
    target = FakeModel(VOCAB, seed=1, sharpness=2.5)
    models = {"target": target, "draft": FakeModel(VOCAB, seed=2, like=(target, 0.8))}
    loaded: list[str] = []

    @contextmanager
    def opened(path: str, place: Place, capacity: int, batch_invariant: object):
        loaded.append(path)
        yield SimpleNamespace(model=models[path], session=models[path].open(capacity))

    monkeypatch.setattr(recording, "opened", opened)
    monkeypatch.setattr(recording, "_FEWEST", 8)
    monkeypatch.setattr(recording, "_MOST", 8)
    return loaded


def record(
    monkeypatch: pytest.MonkeyPatch, level: str, texts: Sequence[CalibrationPrompt] = TEXTS
) -> recording.PairRecording:
    between: Translation = replace(permutation(VOCAB), level=level)
    monkeypatch.setattr(recording, "translate", lambda *_, **__: between)
    return recording.record(SOURCES, MEASURED, texts)


def options(found: recording.PairRecording):
    known: list[Measured] = MEASURED
    return decide(replace(profile(*known), traces=found.traces, notes=tuple(found.notes)), WORK)


def test_a_draft_that_is_understood_token_by_token_is_recorded(monkeypatch, models) -> None:
    found = record(monkeypatch, "token")
    assert found.traces
    assert all(trace.draft is not None for trace in found.traces)
    assert found.notes == []
    assert models == ["target", "draft"]
    assert any(one.plan.draft for one in options(found).candidates)


def test_a_draft_that_is_understood_by_text_is_not_and_is_not_planned_with(
    monkeypatch, models
) -> None:
    found = record(monkeypatch, "string")
    assert found.traces
    assert all(trace.draft is None for trace in found.traces)
    assert found.draft_overhead_s == 0
    assert models == ["target"]
    decision = options(found)
    assert not any(one.plan.draft for one in decision.candidates)
    assert {"lookup", "recycle"} <= {one.plan.drafter for one in decision.candidates}
    assert any(recording.BY_TEXT in reason for reason in decision.reasons)


def test_texts_without_a_token_are_refused_in_a_line(monkeypatch) -> None:
    with pytest.raises(ProfileError, match="no calibration text has a token") as told:
        record(
            monkeypatch, "token", [CalibrationPrompt("none", ""), CalibrationPrompt("nor here", "")]
        )
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("count", [1, prompts.MOST, prompts.MOST + 1, 100, 1001])
def test_a_long_file_is_sampled_evenly(count: int) -> None:
    texts = [CalibrationPrompt(str(number), "text") for number in range(count)]
    chosen = [int(prompt.name) for prompt in prompts.some(texts)]
    assert chosen == sorted(set(chosen))
    assert len(chosen) == min(count, prompts.MOST)
    steps = [after - before for before, after in itertools.pairwise(chosen)]
    assert max(steps, default=1) - min(steps, default=1) <= 1
    assert count - chosen[-1] <= max(steps, default=1) + 1
