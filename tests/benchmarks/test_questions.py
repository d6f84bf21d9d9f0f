"""Spec-Bench's questions: every turn, the figures by category, and files that are none."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.questions import (
    Question,
    QuestionAnswerer,
    by_category,
    has_turns,
    read_questions,
)
from edgedec.compare.interleaved import Comparison
from edgedec.errors import InputError
from edgedec.pipeline import GenerateOptions, Pipeline

QUESTIONS = [
    {"question_id": 81, "category": "writing", "turns": ["def add(", "and now"]},
    {"question_id": 82, "category": "math", "turns": ["for index in"]},
    {"question_id": "x", "category": "math", "turns": ["hello", "again", "last"]},
]


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    file = tmp_path / "question.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in QUESTIONS), "utf-8")
    return file


@pytest.fixture
def ask(run, bundle, tmp_path: Path):
    def call(*more: object) -> Any:
        size = ["-n", 12, "--threads", 1, "--out", tmp_path / "out"]
        return run("questions", bundle, *size, *more)

    return call


def test_questions_by_category(ask, questions: Path, tmp_path: Path) -> None:
    result = ask("--prompts", questions, "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert list(dict.fromkeys(row["category"] for row in rows)) == ["writing", "math", "all"]
    plain = [row for row in rows if row["candidate"] == "plain"]
    assert [row["questions"] for row in plain] == [1, 2, 3]
    assert all(row["speedup"] == row["mean_accepted_tokens"] == 1 for row in plain)
    others = [row for row in rows if row["candidate"] in ("model", "lookup")]
    assert all(row["mean_accepted_tokens"] >= 1 and row["speedup"] > 0 for row in others)
    shown = ask("--prompts", questions)
    assert "mt-bench" not in shown.stdout
    assert "writing" in shown.stdout
    assert "accepted" in shown.stdout


def test_every_turn_sees_the_answers_before_it(bundle, plain_bundle) -> None:
    asked: list[str] = []
    question = Question("q", "c", ("one", "two", "three"))
    options = GenerateOptions(5, ignore_eos=True)
    for path in (bundle, plain_bundle):
        asked.clear()
        with Pipeline.open(path, plan="none", drafter="none", threads=1) as pipeline:

            def generate(prompt: Any, chosen: Any, pipeline: Any = pipeline) -> Any:
                text = prompt if isinstance(prompt, str) else pipeline.tokenizer.decode(prompt)
                asked.append(text)
                return Pipeline.generate(pipeline, prompt, chosen)

            pipeline.generate = generate  # type: ignore[method-assign]
            template = pipeline.tokenizer.chat_template is not None
            found = QuestionAnswerer(pipeline).generate(question, options)
        assert len(asked) == 3
        for turn, text in enumerate(asked):
            assert all(said in text for said in question.turns[: turn + 1])
            assert not any(said in text for said in question.turns[turn + 1 :])
            assert ("user: " in text) == ("assistant: " in text) == template
        answers = [event.text for event in found.events]
        assert "".join(answers[:4]).strip() in asked[1]
        assert found.metrics.emitted == len(found.token_ids) == 15
        assert found.metrics.target_passes == 15
        assert found.metrics.first_round == 3


def test_the_protocols_figures_by_hand() -> None:
    asked = [Question("1", "a", ("x",)), Question("2", "a", ("x",)), Question("3", "b", ("x",))]

    def run(candidate: str, prompt: str, tokens: int, total_s: float, passes: int) -> Any:
        return {"candidate": candidate, "prompt": prompt, "tokens": tokens,
                "total_s": total_s, "target_passes": passes}  # fmt: skip

    runs = [run("plain", "1", 10, 1, 10), run("plain", "2", 30, 1, 30), run("plain", "3", 8, 2, 8),
            run("fast", "1", 10, 0.5, 4), run("fast", "2", 30, 0.5, 16),
            run("fast", "3", 8, 4, 4)]  # fmt: skip
    seconds = {"plain": [0.1, 0.1, 0.2], "fast": [0.05, 0.05, 0.4]}
    found = Comparison("plain", seconds, {"plain": 3, "fast": 3}, ["1", "2", "3"])
    rows = {(row["category"], row["candidate"]): row for row in by_category(asked, runs, found)}
    # Means of tokens a second: (20 + 60) / 2 against (10 + 30) / 2.
    assert rows["a", "fast"]["speedup"] == pytest.approx(2)
    assert rows["b", "fast"]["speedup"] == pytest.approx(0.5)
    # (20 + 60 + 2) / (10 + 30 + 4)
    assert rows["all", "fast"]["speedup"] == pytest.approx(82 / 44)
    assert rows["a", "fast"]["mean_accepted_tokens"] == pytest.approx(40 / 20)
    assert rows["a", "fast"]["speedup_decoding"] == pytest.approx(2)
    assert rows["all", "fast"]["speedup_decoding"] == pytest.approx(0.4 / 0.5)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"turns": []}', "question.jsonl:2: expected a JSON object"),
        ('{"turns": ["a", 3]}', "question.jsonl:2: expected a JSON object"),
        ('{"turns": "a"}', "question.jsonl:2: expected a JSON object"),
        ('{"turns": ["a"], "category": 1}', "question.jsonl:2: expected a JSON object"),
        ('{"turns": ["a"', "question.jsonl:2: expected a JSON object"),
        (
            '{"question_id": 1, "turns": ["a"]}',
            "question.jsonl:2: the question_id '1' occurs twice",
        ),
    ],
)
def test_broken_lines_are_named(ask, one_line, tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "question.jsonl"
    file.write_text('{"question_id": 1, "turns": ["x"]}\n' + line + "\n", "utf-8")
    assert message in one_line(ask("--prompts", file))
    assert not (tmp_path / "out").exists()


def test_a_question_that_does_not_fit_is_named(ask, one_line, tmp_path: Path) -> None:
    file = tmp_path / "question.jsonl"
    file.write_text(json.dumps({"question_id": 7, "turns": ["word " * 5000]}) + "\n", "utf-8")
    assert "question 7, turn 1: the prompt has" in one_line(ask("--prompts", file))


def test_prompts_are_not_questions(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('\n{"prompt": "x"}\n', "utf-8")
    assert not has_turns(file)
    with pytest.raises(InputError, match=r"in\.jsonl:2"):
        read_questions(file)


@pytest.mark.shared_data
def test_spec_bench_itself_is_read(shared_data: Path) -> None:
    file = shared_data / "spec_bench" / "question.jsonl"
    found = read_questions(file)
    assert has_turns(file)
    assert len(found) > 200
    assert {"writing", "translation", "rag"} <= {question.category for question in found}
