"""Many prompts from one file into another, line by line; a run that was cut short goes on.

Output: one JSON object a line, each on the disk before the next prompt starts.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Protocol

from edgedec.batch.jobs import Job
from edgedec.decoding.engine import Emission
from edgedec.errors import BundleError, InputError, Interrupted, PassFailed, SessionError
from edgedec.pipeline import GenerateOptions, Generation, Pipeline, Stream

# A last line without an end is cut off only if it is ours.
_BEGINS = b'{"id": "'


def record(result: Generation) -> dict[str, Any]:
    """One generation as a JSON object; times in seconds, memory in bytes."""
    metrics = result.metrics
    found = {
        "text": result.text,
        "token_ids": result.token_ids,
        "prompt_tokens": result.prompt_tokens,
        "finish_reason": result.finish_reason,
        "ttft_s": metrics.ttft_s,
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
        "peak_memory_bytes": peak_memory_bytes(),
        "plan": result.plan,
        "seed": result.seed,
    }
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


def peak_memory_bytes() -> int | None:
    """Most resident memory of this process so far; None where the system does not say."""
    try:
        # getrusage would count the process that started this one as well.
        for line in Path("/proc/self/status").read_text("ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    try:
        import resource
    except ImportError:
        return None
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class Sink(Protocol):
    """A destination for results."""

    done: set[str]

    def add(self, job: Job, fields: dict[str, Any]) -> None:
        """Take one result."""
        ...

    def close(self) -> None:
        """No more results."""
        ...


class Results:
    """The output file: appended to, repaired when its last line was torn.

    Args:
        path: created where missing.
        settings: what decides the text. Lines written under other settings are refused, so
            that one file never mixes two runs.

    Attributes:
        done: ids that are in the file.

    Raises:
        InputError: the file is not such an output, or was written under other settings.

    """

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self._path = path
        self._settings = digest(settings)
        self.done: set[str] = set()
        self._file: IO[bytes] = path.open("ab")
        # A pipe or a device cannot be read back, and keeps nothing to go on from.
        self._regular = stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)
        if self._regular:
            try:
                self._read()
            except BaseException:
                self._file.close()
                raise

    def _read(self) -> None:
        whole = 0
        with self._path.open("rb") as file:
            for number, data in enumerate(file, 1):
                if not data.endswith(b"\n") and data[: len(_BEGINS)] == _BEGINS[: len(data)]:
                    break  # torn: its prompt is decoded again
                self.done.add(self._id(number, data))
                whole += len(data)
        os.truncate(self._path, whole)

    def _id(self, number: int, data: bytes) -> str:
        try:
            entry = json.loads(data)
            found, settings = str(entry["id"]), entry["settings"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InputError(
                f"{self._path}:{number}: not a result of edgedec: give another file to --out"
            ) from None
        if settings != self._settings:
            raise InputError(
                f"{self._path}:{number}: written with other options: repeat them, or give "
                "another file to --out"
            )
        return found

    def add(self, job: Job, fields: dict[str, Any]) -> None:
        """Write one line through to the disk; after a failure the file is as it was."""
        whole = {"id": job.id, **fields, "settings": self._settings}
        line = as_line(whole)  # begins with _BEGINS
        before = os.fstat(self._file.fileno()).st_size
        try:
            self._file.write(line.encode("utf-8") + b"\n")
            self._file.flush()
            if self._regular:
                os.fsync(self._file.fileno())
        except OSError as error:
            self._undo(before)
            raise InputError(
                f"{self._path}: {error.strerror}: make room and run the same command again; "
                f"{len(self.done)} results are kept"
            ) from None
        self.done.add(job.id)

    def _undo(self, length: int) -> None:
        """Back to the lines that were whole."""
        with contextlib.suppress(OSError):
            self._file.close()  # tries to write what is left in its buffer, and fails again
        if self._regular:
            os.truncate(self._path, length)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def as_line(fields: dict[str, Any]) -> str:
    """One line of JSON that UTF-8 can hold: half a surrogate pair in it stays an escape."""
    line = json.dumps(fields, ensure_ascii=False)
    try:
        line.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(fields)
    return line


def digest(settings: dict[str, Any]) -> str:
    """A short name of these settings."""
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def run(
    pipeline: Pipeline,
    jobs: list[Job],
    results: Sink,
    options: GenerateOptions,
    decode: Callable[[Stream], tuple[Generation, bool]],
) -> tuple[int, bool]:
    """Decode what is not done yet.

    A prompt that cannot be decoded (too long, refused by the chat template) gets a line with
    ``error``; one that was interrupted, or met a device that failed with nothing to go on with,
    gets none and is decoded again by the next run.

    Args:
        pipeline: open.
        jobs: all of them.
        results: where they go.
        options: for each.
        decode: runs a stream to its end and says whether the user stopped it.

    Returns:
        How many lines hold an error, and whether the user stopped.

    """
    failed = 0
    for job in jobs:
        if job.id in results.done:
            continue
        try:
            result, stopped = decode(job.stream(pipeline, options))
        except (PassFailed, Interrupted):  # nothing that this prompt is to blame for
            raise
        except (InputError, BundleError, SessionError) as error:
            results.add(job, {"error": str(error)})
            failed += 1
            continue
        except KeyboardInterrupt:  # a second Ctrl-C
            return failed, True
        if stopped:
            return failed, True
        results.add(job, record(result))
    return failed, False


def settings_of(pipeline: Pipeline, options: GenerateOptions, accept: str | None) -> dict[str, Any]:
    """Return the settings that decide a batch's texts: target, options and rule."""
    decisive = {k: v for k, v in asdict(options).items() if k not in ("draft", "draft_length")}
    target = pipeline.pair.target.hashes()
    limits = {"accept": accept, "max_context": pipeline.plan["max_context"]}
    # Only where it was chosen: of an earlier version's files it was not.
    kept = {} if pipeline.plan["kv"] is None else {"kv": pipeline.plan["kv"]}
    return {"target": target, **limits, **kept, **decisive}
