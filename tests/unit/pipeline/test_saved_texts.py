"""A saved text goes on in another pipeline, token for token, and a bad file changes nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_bundles
from kinds import each_once, in_full
from tiny_checkpoints import noisy_checkpoint

from edgedec import GenerateOptions, Pipeline, SamplingParams
from edgedec.decoding import snapshot
from edgedec.decoding.drafting.base import states_of
from edgedec.decoding.session_base import SessionBase
from edgedec.errors import CapacityExceeded, SnapshotError, StateError

PROMPT = [5 + n % 80 for n in range(150)]
MORE = [9, 8, 7, 6]
OPTIONS = GenerateOptions(24, SamplingParams(temperature=0.9, seed=4), ignore_eos=True)
DRAFTERS = ["none", "model", "tree", "recycle", "hybrid", "adaptive"]
Open = Callable[..., Pipeline]


def exported(folder: Path, seed: int) -> Path:
    target, draft = (
        noisy_checkpoint(folder / role, noise=noise, seed=seed, context=512)
        for role, noise in (("target", 0.0), ("draft", 0.01))
    )
    return tiny_bundles.exact(target, draft)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("pair"), 0)


@pytest.fixture
def fresh(bundle: Path) -> Iterator[Open]:
    opened: list[Pipeline] = []

    def make(where: Path = bundle, **options: Any) -> Pipeline:
        opened.append(Pipeline.open(where, threads=1, plan="none", **options))
        return opened[-1]

    yield make
    for pipeline in opened:
        pipeline.close()


@pytest.mark.parametrize("drafter", in_full(reversed(DRAFTERS), 3))
def test_it_goes_on_as_if_nothing_had_happened(fresh: Open, tmp_path: Path, drafter: str) -> None:
    file = tmp_path / "text"
    first = fresh(drafter=drafter)
    answer = first.generate(PROMPT, OPTIONS).token_ids
    first.save(file, {"kept": ["by", "the", "caller"]})
    turn = [*PROMPT, *answer, *MORE]

    second = fresh(drafter=drafter)
    assert second.restore(file) == {"kept": ["by", "the", "caller"]}
    found = second.generate(turn, OPTIONS)
    # All but the last token of the answer, which was never computed, and what is new.
    assert found.metrics.reused_tokens == len(PROMPT) + len(answer) - 1
    assert found.token_ids == first.generate(turn, OPTIONS).token_ids
    assert found.token_ids == fresh(drafter="none").generate(turn, OPTIONS).token_ids


def test_the_draft_reads_nothing_again(
    fresh: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = fresh(drafter="model", draft_length=3)
    answer = first.generate(PROMPT, OPTIONS).token_ids
    first.save(tmp_path / "text")
    second = fresh(drafter="model", draft_length=3)
    second.restore(tmp_path / "text")
    read: list[int] = []
    honest = SessionBase.prefill

    def counted(self: SessionBase, tokens: Any, on_chunk: Any = None) -> None:
        read.append(len(tokens))
        honest(self, tokens, on_chunk)

    monkeypatch.setattr(SessionBase, "prefill", counted)
    second.generate([*PROMPT, *answer, *MORE], OPTIONS)
    assert read == [len(MORE)]  # by the target; the draft's few new tokens ride along


def test_keys_and_values_of_another_text_are_noticed(fresh: Open, tmp_path: Path) -> None:
    """Broken twin: what is said to be held is not what was saved."""
    first = fresh(drafter="none")
    first.generate(PROMPT, OPTIONS)
    first.save(tmp_path / "text")
    second = fresh(drafter="none")
    second.restore(tmp_path / "text")
    other = [*PROMPT[40:], *PROMPT[:40], *MORE]
    second.engine.target.rollback(len(PROMPT))
    second.engine.set_held_tokens(other[: len(PROMPT)])
    expected = fresh(drafter="none").generate(other, OPTIONS)
    assert second.generate(other, OPTIONS).token_ids != expected.token_ids


def test_what_was_learned_of_acceptance_is_kept(fresh: Open, tmp_path: Path) -> None:
    first = fresh(drafter="hybrid")
    for start in range(3):
        first.generate(PROMPT[start:], OPTIONS)
    first.save(tmp_path / "text")
    learned = first.engine.policy.learned()  # type: ignore[attr-defined]
    assert learned
    second = fresh(drafter="hybrid")
    second.restore(tmp_path / "text")
    assert second.engine.policy.learned() == learned  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("saved", "restored"),
    [
        ({"drafter": "adaptive"}, {"drafter": "recycle"}),
        ({"drafter": "adaptive"}, {"drafter": "none"}),
        # The draft reads it again: a session may hold more than its window does now.
        ({"drafter": "model"}, {"drafter": "model", "draft_context": 40, "draft_length": 3}),
    ],
)
def test_another_drafter_or_window_takes_the_text_all_the_same(
    fresh: Open, tmp_path: Path, saved: dict[str, Any], restored: dict[str, Any]
) -> None:
    first = fresh(**saved)
    answer = first.generate(PROMPT, OPTIONS).token_ids
    first.save(tmp_path / "text")
    second = fresh(**restored)
    second.restore(tmp_path / "text")
    found = second.generate([*PROMPT, *answer, *MORE], OPTIONS)
    assert found.metrics.reused_tokens == len(PROMPT) + len(answer) - 1
    assert found.metrics.drafted_tokens > 0 or restored["drafter"] != "model"
    expected = fresh(drafter="none").generate([*PROMPT, *answer, *MORE], OPTIONS)
    assert found.token_ids == expected.token_ids


LIES: list[dict[str, Any]] = [
    {"tokens": [-1] * 40},
    {"tokens": [1.5] * 40},
    {"parts": [["model"], {"a": 1}]},
    {"parts": [7]},
    {"learned": {"recycle": {"chances": [2] * 40, "weight": 1}}},
    {"learned": {"recycle": []}},
    {"note": "no object"},
]


class TestBadFiles:
    @pytest.fixture
    def saved(self, fresh: Open, tmp_path: Path) -> bytes:
        first = fresh(drafter="adaptive")
        first.generate(PROMPT[:20], OPTIONS)
        first.save(tmp_path / "good")
        return (tmp_path / "good").read_bytes()

    def test_any_damaged_byte_and_any_cut(self, fresh: Open, tmp_path: Path, saved: bytes) -> None:
        pipeline, file = fresh(drafter="adaptive"), tmp_path / "bad"
        expected = fresh(drafter="none").generate(PROMPT, OPTIONS).token_ids
        step = len(saved) // 40
        for place in range(0, len(saved), step):
            flipped = bytearray(saved)
            flipped[place] ^= 0x10
            for bad in (bytes(flipped), saved[:place]):
                file.write_bytes(bad)
                with pytest.raises(SnapshotError):
                    pipeline.restore(file)
                assert len(pipeline.engine.held_tokens) == 0
        assert pipeline.generate(PROMPT, OPTIONS).token_ids == expected

    def test_a_file_whose_hashes_hold_and_whose_contents_lie(
        self, fresh: Open, tmp_path: Path, saved: bytes
    ) -> None:
        """A hash is not a signature: anybody can write one that holds."""
        pipeline = fresh(drafter="adaptive")
        with (tmp_path / "good").open("rb") as file:
            _, payload = snapshot.read(file, runtime="text", model="1", most=1 << 26)
            rest = file.read()
        for lie in LIES:
            head = json.loads(payload) | lie
            said = {"length": len(head["tokens"]), "payload": [json.dumps(head).encode()]}
            with (tmp_path / "bad").open("wb") as file:
                snapshot.write(file, runtime="text", model="1", **said)
                file.write(rest)
            with pytest.raises(SnapshotError, match="damaged"):
                pipeline.restore(tmp_path / "bad")
            assert len(pipeline.engine.held_tokens) == 0, lie
        expected = fresh(drafter="none").generate(PROMPT, OPTIONS).token_ids
        assert pipeline.generate(PROMPT, OPTIONS).token_ids == expected

    @pytest.mark.parametrize(("role", "value"), each_once(["target", "draft"], [np.nan, np.inf]))
    def test_keys_that_are_not_finite(
        self, fresh: Open, tmp_path: Path, role: str, value: float
    ) -> None:
        """The file is refused, so that the model is not blamed for its logits."""
        first = fresh(drafter="model")
        first.generate(PROMPT[:20], OPTIONS, draft_length=3)
        (draft,) = states_of(first.engine.drafter).values()
        session = first.engine.target if role == "target" else draft._session
        session._held()[0][-1, -1, 3, -1] = value
        first.save(tmp_path / "bad")
        pipeline = fresh(drafter="model")
        with pytest.raises(SnapshotError, match="contains NaN or infinity: start again, or use"):
            pipeline.restore(tmp_path / "bad")
        assert len(pipeline.engine.held_tokens) == 0
        assert len(pipeline.generate(PROMPT, OPTIONS).token_ids) == 24

    def test_another_model(self, fresh: Open, tmp_path: Path, saved: bytes) -> None:
        other = exported(tmp_path / "other", 1)
        with pytest.raises(SnapshotError, match="of another model"):
            fresh(other, drafter="adaptive").restore(tmp_path / "good")

    def test_a_context_that_is_too_short(self, fresh: Open, tmp_path: Path, saved: bytes) -> None:
        with pytest.raises((CapacityExceeded, SnapshotError), match=r"context|larger"):
            fresh(drafter="none", max_context=32).restore(tmp_path / "good")

    def test_no_such_format(self, fresh: Open, tmp_path: Path) -> None:
        (tmp_path / "bad").write_text(json.dumps({"tokens": []}))
        with pytest.raises(SnapshotError, match="not a saved state"):
            fresh(drafter="none").restore(tmp_path / "bad")

    def test_in_the_middle_of_a_text(self, fresh: Open, tmp_path: Path, saved: bytes) -> None:
        pipeline = fresh(drafter="model")
        stream = pipeline.stream(PROMPT, OPTIONS)
        next(stream)
        with pytest.raises(StateError, match="another text"):
            pipeline.restore(tmp_path / "good")
        with pytest.raises(StateError, match="another text"):
            pipeline.save(tmp_path / "new")
        assert not (tmp_path / "new").exists()
        stream.close()

    def test_a_full_disk_leaves_what_was_there(
        self, fresh: Open, tmp_path: Path, saved: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pipeline = fresh(drafter="model")
        pipeline.generate(PROMPT, OPTIONS)

        def full(_: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            pipeline.save(tmp_path / "good")
        assert (tmp_path / "good").read_bytes() == saved
        assert [file.name for file in tmp_path.iterdir()] == ["good"]
