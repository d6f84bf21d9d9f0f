"""Saved and forked texts of a target with a head: the same texts, and the head drafts again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import demo_head
import kinds
import numpy as np
import pytest
import tiny_bundles

from edgedec import Generation, Pipeline
from edgedec.decoding.drafting import _head_context
from edgedec.decoding.drafting.head import HeadDrafter
from edgedec.errors import SnapshotError
from edgedec.export import ExportOptions
from edgedec.runtimes.onnx.session import OnnxSession

PROMPT = "def read_lines(path):"
MORE = "\n\n\ndef write_lines(path, lines):"
# A head that missed this many tokens at most has the target read them again; else it begins anew.
READ_AGAIN = 64
SHORT, LONG = 20, 80
SAMPLED = {"temperature": 0.8, "seed": 5}
CASES = [
    ("head", SHORT, {}), ("headed", LONG, SAMPLED),
    ("head", LONG, {}), ("head", SHORT, SAMPLED), ("headed", SHORT, {}),
    ("head", LONG, SAMPLED), ("headed", SHORT, SAMPLED), ("headed", LONG, {}),
]  # fmt: skip
OTHERS = [
    ("head", "none", SHORT), ("none", "headed", LONG), ("head", "lookup", LONG),
    ("none", "head", SHORT), ("headed", "head", SHORT), ("recycle", "headed", LONG),
]  # fmt: skip
FORKED = [("head", {}), ("headed", SAMPLED), ("headed", {}), ("head", SAMPLED)]
Open = Callable[..., Pipeline]


@pytest.fixture(autouse=True)
def a_long_text_is_soon_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_head_context, "_READ_AGAIN", READ_AGAIN)


@pytest.fixture
def fresh() -> Iterator[Open]:
    opened: list[Pipeline] = []

    def make(drafter: str, bundle: Path | None = None, **more: Any) -> Pipeline:
        length = {} if drafter == "none" else {"draft_length": 3}
        options = {"threads": 1, "plan": "none", **length, **more}
        opened.append(Pipeline.open(bundle or demo_head.bundle(), drafter=drafter, **options))
        return opened[-1]

    yield make
    for pipeline in opened:
        pipeline.close()


@pytest.fixture(scope="module")
def plain() -> Iterator[Pipeline]:
    with Pipeline.open(demo_head.bundle(), drafter="none", threads=1, plan="none") as pipeline:
        yield pipeline


def write(pipeline: Pipeline, text: list[int], count: int, options: dict[str, Any]) -> Generation:
    return pipeline.generate(text, max_new_tokens=count, ignore_eos=True, **options)


def saved(pipeline: Pipeline, file: Path, count: int, options: dict[str, Any]) -> list[int]:
    """Save a text of this length after the prompt; return it with how it is to go on."""
    text = list(pipeline.tokenizer.encode(PROMPT))
    text += write(pipeline, text, count, options).token_ids
    pipeline.save(file)
    return text + list(pipeline.tokenizer.encode(MORE))


def plainly(plain: Pipeline, text: list[int], options: dict[str, Any]) -> list[int]:
    plain.forget()
    return write(plain, text, 40, options).token_ids


@pytest.mark.parametrize(("drafter", "count", "options"), kinds.in_full(CASES, 2))
def test_a_text_goes_on_and_its_head_drafts_again(
    fresh: Open, plain: Pipeline, tmp_path: Path, drafter: str, count: int, options: dict[str, Any]
) -> None:
    first, second = fresh(drafter), fresh(drafter)
    text = saved(first, tmp_path / "text", count, options)
    second.restore(tmp_path / "text")
    held = len(second.engine.held_tokens)
    found = write(second, text, 40, options)
    assert found.token_ids == plainly(plain, text, options)
    assert found.token_ids == write(first, text, 40, options).token_ids
    assert found.metrics.accepted_tokens >= 12
    assert found.metrics.reused_tokens == (0 if held <= READ_AGAIN else held)


def test_a_head_that_does_not_catch_up_is_noticed(
    fresh: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken twins: it makes the target read nothing again, and it sees states of nothing."""
    text = saved(fresh("head"), tmp_path / "text", SHORT, {})

    def again() -> Generation:
        pipeline = fresh("head")
        pipeline.restore(tmp_path / "text")
        return write(pipeline, text, 40, {})

    with monkeypatch.context() as patch:
        patch.setattr(HeadDrafter, "attach", lambda self, target: True)
        assert again().metrics.reused_tokens > 0
    read = HeadDrafter.read
    monkeypatch.setattr(
        HeadDrafter, "read", lambda self, at, states: read(self, at, np.zeros_like(states))
    )
    assert again().metrics.accepted_tokens < 12


def test_keys_and_values_of_another_text_are_noticed(
    fresh: Open, plain: Pipeline, tmp_path: Path
) -> None:
    """Broken twin: what is said to be held is not what was saved; it is too long to be reread."""
    second = fresh("head")
    text = saved(fresh("head"), tmp_path / "text", LONG, {})
    second.restore(tmp_path / "text")
    other = [*text[40:], *text[:40]]
    second.engine.target.rollback(LONG)
    second.engine.set_held_tokens(other[:LONG])
    assert write(second, other, 40, {}).token_ids != plainly(plain, other, {})


@pytest.mark.parametrize(("before", "after", "count"), kinds.in_full(OTHERS))
def test_another_drafter_takes_the_text_with_a_head_or_without(
    fresh: Open, plain: Pipeline, tmp_path: Path, before: str, after: str, count: int
) -> None:
    text = saved(fresh(before), tmp_path / "text", count, SAMPLED)
    second = fresh(after)
    second.restore(tmp_path / "text")
    held = len(second.engine.held_tokens)
    assert held > count
    found = write(second, text, 40, SAMPLED)
    assert found.token_ids == plainly(plain, text, SAMPLED)
    rereads = "head" in after and held <= READ_AGAIN
    assert found.metrics.reused_tokens == (0 if rereads else held)
    assert (found.metrics.accepted_tokens >= 8) == ("head" in after)


def test_a_target_exported_without_a_head_is_another_model(fresh: Open, tmp_path: Path) -> None:
    """Its graph is another file; the refusal leaves the pipeline as it was."""
    bare = tiny_bundles.kept(
        ExportOptions(
            demo_head.MODELS / "target", Path("bare"), weights="fp32", calibration="none",
            parity=False,
        )
    )  # fmt: skip
    text = saved(fresh("head"), tmp_path / "text", SHORT, {})
    without = fresh("none", bare)
    with pytest.raises(SnapshotError, match="of another model"):
        without.restore(tmp_path / "text")
    assert len(write(without, text, 8, {}).token_ids) == 8


# -- forks --------------------------------------------------------------------------------------


def conversations(pipeline: Pipeline, options: dict[str, Any]) -> list[Generation]:
    """Two conversations with one beginning, whose turns alternate; the third is a new one."""
    encode = pipeline.tokenizer.encode
    system = list(encode(PROMPT + "\n    with open(path) as handle:\n"))
    first = [*system, *encode("        return handle.readlines()" + MORE)]
    second = [*system, *encode("        for line in handle:\n            yield line")]
    found = []
    for _ in range(2):
        for text in (first, second):
            found.append(write(pipeline, text, 30, options))
            text += [*found[-1].token_ids, *encode(MORE)]
    found.append(write(pipeline, [*system, *encode("        lines = []")], 30, options))
    return found


def ids(found: list[Generation]) -> list[list[int]]:
    return [one.token_ids for one in found]


@pytest.mark.full  # test_turns.py has texts by turns with heads
@pytest.mark.parametrize(("drafter", "options"), FORKED)
def test_conversations_that_share_a_beginning(
    fresh: Open, drafter: str, options: dict[str, Any]
) -> None:
    """Each has a fork of the target's session, and the one head follows them in turn."""
    pipeline = fresh(drafter, conversations=3)
    found = conversations(pipeline, options)
    assert ids(found) == ids(conversations(fresh("none"), options))
    assert len(pipeline.engine.pool) > 1
    assert all(one.metrics.accepted_tokens >= 5 for one in found)


@pytest.mark.full
def test_a_fork_of_another_text_is_noticed(fresh: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken twin, where the head knows the beginning and nothing is read again."""
    expected = ids(conversations(fresh("none"), {}))
    fork = OnnxSession.fork

    def wrong(self: OnnxSession, length: int | None = None) -> OnnxSession:
        found = fork(self, length)
        count = found.length
        found.rollback(0)
        found.prefill([7] * count)
        return found

    monkeypatch.setattr(OnnxSession, "fork", wrong)
    assert ids(conversations(fresh("head", conversations=3), {})) != expected
