"""``python -m benchmarks questions``: Spec-Bench's protocol (2401.07851) over questions.

A question's turns are answered one after the other, each following the model's own answers to
earlier turns, through the chat template if the model has one. An answer ends at an end-of-text
token or a limit. The protocol's speed is a question's tokens over all of its time, including
prefill; a category's speed-up is the ratio of the mean speeds. Mean accepted tokens are counted per
target pass, including the target's own (plain decoding: 1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import click

from benchmarks.program import LoadProgram
from edgedec._support.fields import json_object, one_line, printable
from edgedec.batch.jobs import lines
from edgedec.cli import _library, _model, _options, _output, _progress, _values
from edgedec.compare.drafters import (
    RECORDS,
    Also,
    DrafterTask,
    about,
    entrants_of,
    opened,
)
from edgedec.compare.interleaved import Comparison, OnProgress, compare
from edgedec.compare.records import Row, recording
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.sampling import SamplingParams
from edgedec.errors import InputError, PromptTooLong
from edgedec.pipeline import GenerateOptions, Generation, Message, Pipeline, Prompt

EVERY = "all"
# Warm-up texts of each candidate.
WARM_UPS = 3
# Separates turns when the model has no chat template.
_BETWEEN = "\n\n"
# Figures that belong to one text and do not add up.
_NOT_SUMMED = (
    "waited_s", "watched_s", "slowdown", "slowed_by", "swapped_bytes", "memory", "round_times",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Question:
    """A question.

    Attributes:
        id: from the file, or the line's number.
        category: for the report.
        turns: the user's messages; at least one.

    """

    id: str
    category: str
    turns: tuple[str, ...]


@click.command(cls=LoadProgram)
@_model.model
@click.option(
    "--prompts",
    type=_values.FILE,
    required=True,
    metavar="FILE.jsonl",
    help='Lines such as {"question_id": 1, "category": "math", "turns": ["...", "..."]}.',
)
@_options.DRAFT_MODEL
@_options.THREADS
@click.option("-n", "--max-new-tokens", type=click.IntRange(2), default=1024, show_default=True)
@click.option("--temperature", type=float, default=0.0, show_default=True)
@click.option("-s", "--seed", type=int, default=0, show_default=True)
@click.option("--repeats", type=click.IntRange(1, 100), default=1, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default="bench-out", show_default=True)
@_options.options(_options.LOAD)
@_options.as_json
def command(bundle: str, prompts: Path, out: Path, as_json: bool, **chosen: Any) -> None:
    """Compare every drafter with plain decoding on questions, by category.

    Turns are answered one after the other, through the chat template if the model has one, and
    answers may end early. The figures of each category follow the protocol: speed-up by mean tokens
    per second including prefill, and mean accepted tokens per pass, including the target's own.
    """
    questions = read_questions(prompts)
    bundle = _library.path(bundle, chosen["format"])
    draft = _library.draft_path(chosen["draft_model"], bundle, chosen["format"])
    common = _options.load_options(chosen, draft=draft, plan="none")
    options = GenerateOptions(
        chosen["max_new_tokens"], SamplingParams(chosen["temperature"], seed=chosen["seed"])
    )
    asked = DrafterTask(bundle, (), options, common, chosen["repeats"], prompts.name)
    with _progress.progress("decoding") as listen:
        rows = bench_questions(asked, questions, out, listen)
    if as_json:
        _output.print_json(rows)
    else:
        _print(rows)


def bench_questions(
    asked: DrafterTask,
    questions: Sequence[Question],
    out: Path,
    on_progress: OnProgress | None = None,
    also: Also | None = None,
) -> list[Row]:
    """Compare every drafter on questions, as ``bench_bundle`` does on prompts.

    Returns:
        The figures of each category and candidate.

    """
    ways = entrants_of(asked)
    with recording(out, RECORDS) as recorder:
        recorder.add(kind="about", **about(asked))
        with opened(asked.bundle, ways) as pipelines:
            found = compare(
                {name: QuestionAnswerer(pipeline) for name, pipeline in pipelines.items()},
                [(one.id, one) for one in questions],
                asked.options,
                recorder,
                repeats=asked.repeats,
                warm_ups=WARM_UPS,
                on_progress=on_progress,
            )
            one = next(iter(pipelines.values()))
            firsts = [(each.id, conversation(one, each.turns[:1], [])) for each in questions]
        rows = recorder.table(by_category(questions, recorder.runs, found), "category")
        for question in questions:
            recorder.add(kind="question", prompt=question.id, category=question.category)
        if also is not None:
            also(firsts, found, recorder)
    return rows


def _print(rows: Sequence[Row]) -> None:
    """Print the figures of every category, without plain decoding's, which are 1."""
    click.echo(f"{'category':24}{'':12}{'speed-up':>10}{'decoding':>10}{'accepted':>10}")
    for row in rows:
        if row["candidate"] != rows[0]["candidate"]:
            decoding = row["speedup_decoding"]
            shown = "-" if decoding is None else f"{decoding:.2f}x"
            click.echo(
                f"{printable(row['category'])[:23]:24}{row['candidate']:12}{row['speedup']:9.2f}x"
                f"{shown:>10}{row['mean_accepted_tokens']:10.2f}"
            )


def has_turns(path: Path) -> bool:
    """Return whether a file's first line is a question with turns."""
    return any("turns" in (json_object(line) or {}) for _, line in islice(lines(path), 1))


def read_questions(path: Path) -> list[Question]:
    """Read all lines of a file of questions; InputError names an invalid line."""
    found: dict[str, Question] = {}
    for number, line in lines(path):
        question = _question(path, number, line)
        if question.id in found:
            raise InputError(
                f"{path}:{number}: the question_id {one_line(question.id)!r} occurs twice:"
                " expected different ones"
            )
        found[question.id] = question
    return list(found.values())


def _question(path: Path, number: int, line: str) -> Question:
    entry = json_object(line) or {}
    turns, category = entry.get("turns"), entry.get("category", EVERY)
    texts = isinstance(turns, list) and all(isinstance(turn, str) and turn for turn in turns)
    if not texts or not turns or not isinstance(category, str):
        raise InputError(
            f'{path}:{number}: expected a JSON object with "turns", a list of texts, and'
            ' optionally "question_id" and "category"'
        )
    known = entry.get("question_id")
    return Question(str(number if known is None else known), category, tuple(turns))


class QuestionAnswerer:
    """A pipeline that answers questions; a candidate of ``compare``."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def generate(self, prompt: Question, options: GenerateOptions | None = None) -> Generation:
        """Answer all turns; return the answers as one text, with the sums of their figures."""
        answers: list[Generation] = []
        for turn in range(len(prompt.turns)):
            try:
                answers.append(self._answer(prompt, answers, turn, options))
            except PromptTooLong as error:
                raise PromptTooLong(
                    f"question {one_line(prompt.id)}, turn {turn + 1}: {error}"
                ) from None
        return _joined(answers)

    def _answer(
        self,
        question: Question,
        answers: Sequence[Generation],
        turn: int,
        options: GenerateOptions | None,
    ) -> Generation:
        answered = [answer.text for answer in answers]
        prompt = conversation(self._pipeline, question.turns[: turn + 1], answered)
        return self._pipeline.generate(prompt, options)


def conversation(pipeline: Pipeline, turns: Sequence[str], answers: Sequence[str]) -> Prompt:
    """Return the prompt of the last of these turns, after the answers to earlier ones."""
    if pipeline.tokenizer.chat_template is None:
        answered = [*answers, ""]
        pairs = zip(turns, answered, strict=True)
        return "".join(
            f"{turn}{_BETWEEN}{answer}{_BETWEEN if answer else ''}" for turn, answer in pairs
        )
    messages: list[Message] = [{"role": "user", "content": turns[0]}]
    for answer, turn in zip(answers, turns[1:], strict=True):
        messages.append({"role": "assistant", "content": answer})
        messages.append({"role": "user", "content": turn})
    return pipeline.tokenizer.encode_chat(messages)


def _joined(answers: Sequence[Generation]) -> Generation:
    """Return the answers of one conversation as one text."""
    metrics = Metrics()
    for field in fields(Metrics):
        if field.name not in _NOT_SUMMED:
            values = [getattr(answer.metrics, field.name) for answer in answers]
            setattr(metrics, field.name, sum(values[1:], start=values[0]))
    last = answers[-1]
    return Generation(
        text="".join(answer.text for answer in answers),
        events=[event for answer in answers for event in answer.events],
        prompt_tokens=sum(answer.prompt_tokens for answer in answers),
        finish_reason=last.finish_reason,
        metrics=metrics,
        seed=last.seed,
        plan=last.plan,
    )


def by_category(
    questions: Sequence[Question], runs: Sequence[Mapping[str, Any]], found: Comparison
) -> list[dict[str, Any]]:
    """Return the protocol's figures of each category, and of all questions, by candidate."""
    categories = {question.id: question.category for question in questions}
    names = list(dict.fromkeys(categories.values()))
    rows = []
    for category in [*names, *([EVERY] if len(names) > 1 or EVERY not in names else [])]:
        own = [run for run in runs if category in (EVERY, categories[run["prompt"]])]
        plain = _speed(own, found.baseline)
        for name in found.tpot_s:
            of_name = [run for run in own if run["candidate"] == name]
            passes = sum(run["target_passes"] for run in of_name)
            rows.append(
                {
                    "category": category,
                    "candidate": name,
                    "questions": len({run["prompt"] for run in of_name}),
                    "tokens_per_second": _speed(own, name),
                    "speedup": _speed(own, name) / plain,
                    "speedup_decoding": _decoding(found, categories, category, name),
                    "mean_accepted_tokens": sum(run["tokens"] for run in of_name) / passes,
                }
            )
    return rows


def _speed(runs: Sequence[Mapping[str, Any]], name: str) -> float:
    """Return the mean over questions of tokens per second, including prefill."""
    return fmean(run["tokens"] / run["total_s"] for run in runs if run["candidate"] == name)


def _decoding(
    found: Comparison, categories: Mapping[str, str], category: str, name: str
) -> float | None:
    """Return the speed-up without first rounds, as in all other figures of edgedec."""
    indices = [
        index
        for index, prompt in enumerate(found.prompts)
        if category in (EVERY, categories[prompt])
    ]
    if not indices:
        return None
    sums = [sum(found.tpot_s[one][index] for index in indices) for one in (found.baseline, name)]
    return sums[0] / sums[1]
