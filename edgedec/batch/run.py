"""Decodes many prompts from one file into another, line by line; resumes an interrupted run.

Output: one JSON object per line, each on the disk before the next prompt starts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from edgedec._support.json_lines import JsonLines
from edgedec.batch.jobs import Job
from edgedec.decoding.emission import Emission
from edgedec.errors import BundleError, InputError, Interrupted, PassFailed, SessionError
from edgedec.hardware.resident import peak_bytes
from edgedec.pipeline import GenerateOptions, Generation, Pipeline, Stream

# Runs a stream to its end; returns its result, and whether the user stopped it.
Decode = Callable[[Stream], tuple[Generation, bool]]
# A result's fields, and whether the user stopped the text.
Ended = tuple[dict[str, Any], bool]
# Options that do not decide the text, or do so under another name.
_ELSEWHERE = {"drafter", "draft_length", "json_mode", "json_schema", "regex", "grammar"}
# Options that earlier versions did not have.
_LATER = {"think", "think_tokens", "reasoning_effort"}


def record(result: Generation) -> dict[str, Any]:
    """Return one generation as a JSON object; times in seconds, memory in bytes."""
    metrics = result.metrics
    found: dict[str, Any] = {
        "text": result.text,
        **({"thinking": result.thinking} if result.thinking else {}),
        "token_ids": result.token_ids,
        "prompt_tokens": result.prompt_tokens,
        "finish_reason": result.finish_reason,
        "ttft_s": metrics.ttft_s,
        "reused_tokens": metrics.reused_tokens,
        "tpot_s": metrics.tpot_s,
        "tokens_per_second": metrics.tokens_per_second,
        "speedup_estimate": metrics.speedup_estimate,
        "waited_s": metrics.waited_s,
        "slowdown": metrics.slowdown,
        "target_passes": metrics.target_passes,
        "drafted_tokens": metrics.drafted_tokens,
        "accepted_tokens": metrics.accepted_tokens,
        "acceptance_rate": metrics.acceptance_rate,
        "block_efficiency": metrics.block_efficiency,
        "peak_memory_bytes": peak_bytes(),
        "plan": result.plan,
        "seed": result.seed,
    }
    if metrics.forced_tokens:
        found["forced_tokens"] = metrics.forced_tokens
    if metrics.memory is not None:
        found["memory"] = metrics.memory.facts()
    if metrics.ahead_s:
        found |= {
            "reuse_rate": metrics.reuse_rate,
            "ahead_s": metrics.ahead_s,
            "overlapped_s": metrics.overlapped_s,
        }
    if any(event.logprob is not None for event in result.events):
        found["logprobs"] = [_logprob(event) for event in result.events]
    return found


def _logprob(event: Emission) -> dict[str, Any]:
    best = [{"token": token, "logprob": value} for token, value in event.top_logprobs or []]
    return {"token": event.token, "logprob": event.logprob, "top": best}


class Sink(Protocol):
    """A destination for results."""

    done: set[str]

    def add(self, job: Job, fields: dict[str, Any]) -> None:
        """Add one result."""
        ...

    def close(self) -> None:
        """End the output."""
        ...


class Results:
    """The output file, to which a later run of the same settings appends.

    Args:
        path: created if missing.
        settings: settings that decide the text. Lines of other settings are refused, so that one
            file never mixes two runs.

    Attributes:
        done: ids that are in the file.
        failed: those of them whose prompt could not be decoded.

    Raises:
        InputError: the file is not such an output, was written under other settings, or another
            run writes it.

    """

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self._settings = digest(settings)
        self._path, self._prompts = path, dict[str, str]()
        self.done: set[str] = set()
        self.failed: set[str] = set()
        # Two runs at once would each add a result of the same id.
        busy = "another run writes it: wait for its end, or give another file to --out"
        self._lines = JsonLines(path, "id", self._earlier, busy)

    def _earlier(self, entry: dict[str, Any] | None, where: str) -> None:
        if entry is None or "id" not in entry or "settings" not in entry:
            raise InputError(f"{where}: not a result of edgedec: give another file to --out")
        if entry["settings"] != self._settings:
            raise InputError(
                f"{where}: written with other options: repeat them, or give another file to --out"
            )
        if (name := str(entry["id"])) in self.done:
            raise InputError(f"{where}: a second result of the id {name!r}: remove one of the two")
        # Files of earlier versions do not say it.
        if isinstance(prompt := entry.get("prompt_digest"), str):
            self._prompts[name] = prompt
        self._ends(name, entry)

    def check(self, jobs: Iterable[Job]) -> None:
        """Raise InputError if a job's id has the result of another prompt."""
        for job in jobs:
            known = self._prompts.get(job.id)
            if known is not None and known != digest(job.prompt):
                raise InputError(
                    f"{self._path}: the result of the id {job.id!r} is that of another prompt: give"
                    " another file to --out, or the prompts as they were"
                )

    def add(self, job: Job, fields: dict[str, Any]) -> None:
        """Write one result through to the disk, unless its id has one.

        Raises:
            InputError: the disk is full.

        """
        if job.id in self.done:
            return
        made = {"prompt_digest": digest(job.prompt), "settings": self._settings}
        self._lines.add({"id": job.id, **fields, **made})
        self._ends(job.id, fields)

    def _ends(self, name: str, fields: dict[str, Any]) -> None:
        self.done.add(name)
        if "error" in fields:
            self.failed.add(name)

    def close(self) -> None:
        self._lines.close()


def digest(settings: Any) -> str:
    """Return a short name of these settings, or of a prompt."""
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def run(
    pipeline: Pipeline,
    jobs: list[Job],
    results: Sink,
    options: GenerateOptions,
    decode: Decode,
    answering: GenerateOptions | None = None,
) -> tuple[int, bool]:
    """Decode the prompts that are not done yet.

    A prompt that cannot be decoded (too long, refused by the chat template) gets a line with
    ``error``; one that was interrupted, or whose device failed without a fallback, gets none and is
    decoded again by the next run.

    Args:
        decode: runs a stream to its end and returns whether the user stopped it.
        answering: for those that are messages; None is ``options``.

    Returns:
        The number of lines with an error, and whether the user stopped.

    """
    failed = 0
    for job in jobs:
        if job.id in results.done:
            continue
        own = options if isinstance(job.prompt, str) else answering or options
        try:
            fields, stopped = decoded(pipeline, job, own, decode)
        except KeyboardInterrupt:  # a second Ctrl-C
            return failed, True
        if stopped:
            return failed, True
        results.add(job, fields)
        failed += "error" in fields
    return failed, False


def decoded(pipeline: Pipeline, job: Job, options: GenerateOptions, decode: Decode) -> Ended:
    """Decode one prompt; return its fields, with ``error`` if it cannot be decoded.

    Also return whether the user stopped it.

    Raises:
        PassFailed, Interrupted: not this prompt's fault.

    """
    try:
        result, stopped = decode(job.stream(pipeline, options))
    except (PassFailed, Interrupted):
        raise
    except (InputError, BundleError, SessionError) as error:
        return {"error": str(error)}, False
    return record(result), stopped


def settings_of(
    pipeline: Pipeline,
    options: GenerateOptions,
    accept: str | None,
    answering: GenerateOptions | None = None,
) -> dict[str, Any]:
    """Return the settings that decide a batch's texts: target, options and rule."""
    plan = pipeline.plan
    model = Decisive(pipeline.pair.target.hashes(), accept, plan["max_context"], plan["kv"])
    return settings(model, options, answering)


@dataclass(frozen=True, slots=True)
class Decisive:
    """What of an open pipeline decides its texts.

    Attributes:
        target: sha256 by file.
        accept: the rule's name, if one was given.
        max_context: most tokens of prompt and output together.
        kv: the type of keys and values, if one was given.

    """

    target: dict[str, str]
    accept: str | None
    max_context: int
    kv: str | None


def settings(
    model: Decisive, options: GenerateOptions, answering: GenerateOptions | None = None
) -> dict[str, Any]:
    """Return the settings that decide a batch's texts, as ``settings_of`` does without a pipeline.

    Args:
        model: the target and how it is opened.
        answering: of answers to messages; None is ``options``.

    """
    decisive = {k: v for k, v in asdict(options).items() if k not in _ELSEWHERE}
    # As below, only if they were chosen.
    decisive = {k: v for k, v in decisive.items() if k not in _LATER or v is not None}
    if answering is not None and answering.sampling != options.sampling:
        decisive["answers"] = asdict(answering.sampling)
    limits = {"accept": model.accept, "max_context": model.max_context}
    # Only if it was chosen: files of earlier versions lack it.
    kept = {} if model.kv is None else {"kv": model.kv}
    grammar = options.constraint
    form = {} if grammar is None else {"form": [grammar.kind, grammar.source]}
    return {"target": model.target, **limits, **kept, **form, **decisive}
