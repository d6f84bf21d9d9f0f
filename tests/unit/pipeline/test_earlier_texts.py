"""Drafts from the texts that a pipeline decoded before, and from a corpus."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kinds import in_full

from edgedec.decoding.drafting._earlier import EARLIER_BYTES
from edgedec.errors import InputError
from edgedec.pipeline import Generation, Pipeline

PROMPT = "class Queue:\n    def __init__(self):\n"
TOKENS = 40


@pytest.fixture(scope="module")
def pipeline() -> Iterator[Pipeline]:
    with Pipeline.open(
        "demo", threads=1, drafter="suffix", draft_length=4, parallel=2, batch_invariant=True
    ) as one:
        yield one


@pytest.fixture(autouse=True)
def forgotten(pipeline: Pipeline) -> None:
    pipeline.forget()


def copied(result: Generation) -> int:
    """Tokens that were accepted from drafts of earlier texts."""
    return result.metrics.sources["suffix"]


def asked(pipeline: Pipeline, **options: Any) -> Generation:
    return pipeline.generate(PROMPT, max_new_tokens=TOKENS, temperature=0.9, seed=3, **options)


def test_a_text_that_comes_again_is_copied_and_is_the_same(pipeline: Pipeline) -> None:
    first, second = asked(pipeline), asked(pipeline)
    assert copied(first) == 0
    assert copied(second) > 5
    plain = asked(pipeline, drafter="none")
    assert plain.token_ids == first.token_ids == second.token_ids
    assert sum(plain.metrics.sources.values()) == 0


def test_owners_share_nothing_and_a_text_may_be_kept_for_none(pipeline: Pipeline) -> None:
    assert copied(asked(pipeline, owner="one")) == 0
    assert copied(asked(pipeline, owner="two")) == 0
    assert copied(asked(pipeline, owner=None)) == 0
    assert copied(asked(pipeline)) == 0
    assert copied(asked(pipeline, owner="two")) > 5
    assert copied(asked(pipeline, owner=None)) == 0


def test_texts_for_measuring_are_not_kept(pipeline: Pipeline) -> None:
    assert [copied(asked(pipeline, ignore_eos=True)) for _ in range(2)] == [0, 0]


def test_forgetting_takes_all_texts(pipeline: Pipeline) -> None:
    asked(pipeline)
    pipeline.forget()
    assert copied(asked(pipeline)) == 0


async def test_texts_that_take_turns_share_what_is_kept(pipeline: Pipeline) -> None:
    async def text() -> Generation:
        return await pipeline.agenerate(PROMPT, max_new_tokens=TOKENS, temperature=0.9, seed=3)

    assert copied(await text()) == 0
    stream = pipeline.stream("import os\n", max_new_tokens=TOKENS)
    next(iter(stream))  # takes the engine that decoded the first text, or the other one
    assert copied(await text()) > 5
    stream.close()


CORPUS = "".join(
    f"def method_{n}(self, key):\n    return self.table[{n}].get(key)\n" for n in range(20)
)


@pytest.mark.parametrize(
    "lines",
    in_full(
        [
            None,
            [json.dumps({"messages": [{"role": "user", "content": "?"}, {"content": CORPUS}]})],
            [json.dumps(CORPUS)],
            [json.dumps({"text": CORPUS, "more": 1}), ""],
        ],
        2,
    ),
)
def test_a_corpus_is_copied_from_at_first(lines: list[str] | None, tmp_path: Path) -> None:
    file = tmp_path / ("corpus.txt" if lines is None else "corpus.jsonl")
    file.write_text(CORPUS if lines is None else "\n".join(lines), "utf-8")
    asked: dict[str, Any] = {"prompt": CORPUS[:50], "max_new_tokens": 16, "drafter": "suffix"}
    with Pipeline.open("demo", threads=1, draft_length=4, corpus=str(file)) as pipeline:
        drafted = pipeline.generate(**asked).metrics.drafted_tokens
        pipeline.forget()
        assert pipeline.generate(owner=None, **asked).metrics.drafted_tokens == drafted > 0
    with Pipeline.open("demo", threads=1, draft_length=4) as pipeline:
        assert pipeline.generate(**asked).metrics.drafted_tokens == 0


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("c.txt", b"\xff\xfe", "cannot be read as UTF-8"),
        ("c.jsonl", b'{"text": "x"}\n{"prompt": "x"}', "c.jsonl:2: expected a text"),
        ("c.jsonl", b"[" * 100_000, "c.jsonl:1: expected a text"),
        ("c.jsonl", b'{"messages": [{"content": [1]}]}', "c.jsonl:1: expected a text"),
        ("c.jsonl", b"[]", "c.jsonl:1: expected a text"),
        ("c.txt", b"x" * (8 * 2**20 + 1), "larger than 8 MB"),
    ],
)
def test_a_bad_corpus_is_refused_in_a_line(
    name: str, data: bytes, says: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_bytes(data)
    with pytest.raises(InputError, match=says) as refused:
        Pipeline.open("demo", threads=1, corpus=file)
    assert "\n" not in str(refused.value)


def test_a_corpus_that_is_no_file_or_that_nothing_copies_from_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a regular file"):
        Pipeline.open("demo", threads=1, corpus="/dev/zero")
    with pytest.raises(InputError, match="copies from no earlier texts"):
        Pipeline.open("demo", threads=1, corpus=__file__, drafter="lookup")


def test_a_corpus_with_too_many_tokens_is_kept_in_part(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgedec.loading.earlier.MOST", 100)
    file = tmp_path / "corpus.txt"
    file.write_text(CORPUS)
    with Pipeline.open("demo", threads=1, corpus=file):
        assert "tokens: drafts are copied from about the last 100" in caplog.text


def test_memory_counts_them_and_they_give_way() -> None:
    with Pipeline.open(
        "demo", threads=1, drafter="text", draft_length=4, memory="4GB", plan="none"
    ) as one:
        guard = one._parts.guard
        assert guard is not None
        names = [level.name for level in guard._levels]
        bytes_ = [guard._costs.of(level, 1000, sampled=True).drafter for level in guard._levels]
        assert names[-2:] == ["lookup alone", "plain decoding"]
        assert bytes_[0] >= EARLIER_BYTES + bytes_[-2]
        asked(one)
        assert copied(asked(one)) > 0
        guard._go_to(len(names) - 1, "asked for", 0)
        earlier = one._parts.earlier
        assert earlier is not None
        assert earlier.tokens == 0
        guard._go_to(0, "asked for", 0)
        assert copied(asked(one)) == 0
        assert copied(asked(one)) > 0
