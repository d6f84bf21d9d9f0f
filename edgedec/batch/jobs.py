"""Reads prompts from a file with one JSON object per line.

Each has ``prompt`` (text) or ``messages``, and optionally ``id``, ``draft`` and ``draft_length``,
for this prompt alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgedec._support.fields import json_object
from edgedec._support.options import declared
from edgedec.decoding.params import SamplingParams
from edgedec.errors import InputError
from edgedec.pipeline import GenerateOptions, Pipeline, Stream

MAX_LINE_BYTES = 16 << 20
# Names of options that a line cannot have for itself.
_OF_A_RUN = {*declared(GenerateOptions), *declared(SamplingParams), "max_tokens"} - {
    "drafter", "draft_length", "spec",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Job:
    """One line of a prompts file.

    Attributes:
        id: as given, or the line's number from 1, as text.
        prompt: text, or a list of chat messages.
        drafter, draft_length, spec: as ``GenerateOptions``; None is the run's own.

    """

    id: str
    prompt: str | list[dict[str, Any]]
    drafter: str | None = None
    draft_length: int | None = None
    spec: str | None = None

    def stream(self, pipeline: Pipeline, options: GenerateOptions) -> Stream:
        """Start decoding the prompt.

        Raises:
            InputError: the id is not valid UTF-8, as an escape in JSON may leave it; or an option
                or the prompt is not as expected.
            BundleError: the chat template was stopped.

        """
        try:
            self.id.encode("utf-8")
        except UnicodeEncodeError:
            raise InputError(f"the id {self.id!r} is not valid UTF-8: give another") from None
        own = {"drafter": self.drafter, "draft_length": self.draft_length, "spec": self.spec}
        if any(value is not None for value in own.values()):
            options = dataclasses.replace(options, **own)  # type: ignore[arg-type]
        if isinstance(self.prompt, str):
            return pipeline.stream(self.prompt, options)
        return pipeline.chat(self.prompt, options)


def read_jobs(path: Path) -> list[Job]:
    """Read all lines of a prompts file; InputError names the line, or an id that occurs twice."""
    jobs = [_job(path, number, line) for number, line in lines(path)]
    if not jobs:
        raise InputError(f'{path}: no prompts: expected lines such as {{"prompt": "Hello"}}')
    seen: set[str] = set()
    for job in jobs:
        if job.id in seen:
            raise InputError(f"{path}: the id {job.id!r} occurs twice: expected different ids")
        seen.add(job.id)
    return jobs


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the number and text of each line that has any; InputError if it is not UTF-8."""
    with path.open("rb") as file:
        number = 0
        while data := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(data) > MAX_LINE_BYTES:
                raise InputError(f"{path}:{number}: expected at most {MAX_LINE_BYTES >> 20} MiB")
            try:
                line = data.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            except UnicodeDecodeError:
                raise InputError(f"{path}:{number}: not UTF-8: save the file as UTF-8") from None
            if line:
                yield number, line


def _job(path: Path, number: int, line: str) -> Job:
    entry = json_object(line) or {}
    texts = [entry[name] for name in ("prompt", "messages") if entry.get(name) is not None]
    if len(texts) > 1:
        raise InputError(f'{path}:{number}: "prompt" and "messages": expected one of them')
    prompt = texts[0] if texts else None
    if "turns" in entry:
        raise InputError(
            f"{path}:{number}: a question with turns: in a clone, python -m benchmarks questions"
            " MODEL --prompts FILE asks them"
        )
    if not isinstance(prompt, (str, list)):
        raise InputError(
            f'{path}:{number}: expected a JSON object with "prompt" (text) or "messages"'
        )
    for name in entry:
        if name in _OF_A_RUN:
            raise InputError(
                f'{path}:{number}: "{name}" is one for all prompts of a run: leave it out of the'
                " lines, and give it to the run"
            )
    drafter, length = entry.get("drafter", entry.get("draft")), entry.get("draft_length")
    if not isinstance(drafter, (str, type(None))) or type(length) not in (int, type(None)):
        raise InputError(
            f'{path}:{number}: expected "drafter" to be a drafter\'s name, "draft_length" a number'
        )
    spec = entry.get("spec")
    if not isinstance(spec, (str, type(None))):
        raise InputError(f'{path}:{number}: expected "spec" to be a stage, such as lookup:k=4')
    known = entry.get("id")
    return Job(str(number if known is None else known), prompt, drafter, length, spec)
