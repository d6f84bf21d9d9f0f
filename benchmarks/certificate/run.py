"""Runs a certificate's parts and writes their results."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.certificate import distribution, facts, page
from benchmarks.certificate.controls import broken_rule
from benchmarks.certificate.job import Job
from benchmarks.certificate.matrix import verify_matrix
from benchmarks.certificate.texts import compare_chunk
from benchmarks.certificate.verdict import judge
from benchmarks.records import resuming
from edgedec._support.atomic import replacing
from edgedec.compare import evidence
from edgedec.compare.interleaved import OnProgress, Progress
from edgedec.errors import InputError
from edgedec.loading.build import OpenOptions
from edgedec.pipeline import GenerateOptions
from edgedec.verify.outcomes import FirstDifference
from edgedec.verify.results import COUNTS, Verification, VerificationRow

SCHEMA = 2
JSON, PAGE, PARTS = "certificate.json", "certificate.md", "unfinished"
# Prompts and tokens of the matrix, which decodes some fifty texts for each prompt.
MATRIX_PROMPTS, MATRIX_TOKENS = 4, 48

_SHARES = 1000

# The stage, work done, and total work.
OnStage = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class _Stage:
    """A part of the run with a progress bar of its own.

    Attributes:
        name: label of the bar.
        parts: functions that compute the parts, by the name under which each is stored.

    """

    name: str
    parts: dict[str, Callable[[Progress], Any]]

    def listener(self, number: int, on_stage: OnStage | None) -> OnProgress | None:
        """Return a listener that reports a part's progress to ``on_stage``."""
        if on_stage is None:
            return None

        def listen(done: int, total: int) -> None:
            share = number + done / max(1, total)
            on_stage(self.name, round(share * _SHARES), len(self.parts) * _SHARES)

        return listen

    def finished(self, number: int, on_stage: OnStage | None) -> None:
        """Report to ``on_stage`` that a part is done, now or by an earlier run."""
        if on_stage is not None:
            on_stage(self.name, (number + 1) * _SHARES, len(self.parts) * _SHARES)


def certify(
    job: Job, folder: Path, *, on_stage: OnStage | None = None, on_note: Callable[[str], object]
) -> dict[str, Any]:
    """Compare everything with plain decoding, and write the certificate into a folder.

    Args:
        job: what to compare.
        folder: folder for ``certificate.json`` and ``certificate.md``, and until the end for the
            finished parts, from which an interrupted run resumes.
        on_stage: called with progress.
        on_note: called if parts of an earlier run are used.

    Returns:
        The certificate, as it is in the JSON file.

    Raises:
        InputError: no prompts, or the folder has another, unfinished run.
        BundleError: the model is damaged.
        RuntimeUnavailable: no runtime for it is installed.

    """
    if not job.prompts:
        raise InputError("no prompts to verify with: give at least one")
    subjects = facts.subjects(job.bundle, job.options)
    about = _about(job, subjects)
    with resuming(folder, PARTS, about) as (recorder, earlier):
        found = {one["part"]: one["found"] for one in earlier if one.get("kind") == "part"}
        if found:
            on_note(f"continuing after the {len(found)} finished parts in {folder / PARTS}.jsonl")
        for stage in _stages(job, subjects.options):
            for number, (name, find) in enumerate(stage.parts.items()):
                if name not in found:
                    found[name] = find(Progress(stage.listener(number, on_stage)))
                    recorder.add(kind="part", part=name, found=found[name])
                stage.finished(number, on_stage)
        certificate = _certificate(job, about, found)
        write(certificate, folder)
    (folder / f"{PARTS}.jsonl").unlink()
    return certificate


def write(certificate: dict[str, Any], folder: Path) -> None:
    """Write both files of a certificate, each completely or not at all."""
    with replacing(folder / JSON) as data, replacing(folder / PAGE) as text:
        data.write(json.dumps(certificate, indent=1, ensure_ascii=False).encode())
        text.write(page.markdown(certificate).encode())


def _about(job: Job, subjects: facts.Subjects) -> dict[str, Any]:
    """Return everything that affects the result of a part."""
    notes = subjects.left_out
    if not subjects.options:
        raise InputError(f"{job.bundle}: nothing to compare: {'; '.join(notes) or 'no format'}")
    formats = dict.fromkeys(options.format for options in subjects.options.values())
    return {
        **job.settings(),
        "compared": list(subjects.options),
        "left_out": notes,
        "files": evidence.files(job.bundle, job.options.draft),
        "program": evidence.program(),
        "versions": evidence.versions(formats),
        "machine": evidence.machine(),
    }


def _stages(job: Job, subjects: Mapping[str, OpenOptions]) -> Iterator[_Stage]:
    for subject, options in subjects.items():
        yield _Stage(
            f"{subject}: texts",
            {
                _texts(subject, indices): partial(_chunk, job, options, indices)
                for indices in job.chunks()
            },
        )
        for name, part in (("control", broken_rule), ("matrix", _options)):
            yield _Stage(f"{subject}: {name}", {f"{subject}: {name}": partial(part, job, options)})
    yield _Stage("distribution", {_DISTRIBUTION: distribution.tested})


_DISTRIBUTION = "distribution"


def _texts(subject: str, indices: range) -> str:
    return f"{subject}: prompts {indices.start + 1} to {indices.stop}"


def _chunk(job: Job, options: OpenOptions, indices: range, progress: Progress) -> dict[str, Any]:
    return compare_chunk(job, options, indices, progress).to_json()


def _options(job: Job, options: OpenOptions, progress: Progress) -> dict[str, Any]:
    """Run the matrix of sampling options, with few and short texts."""
    asked = GenerateOptions(MATRIX_TOKENS, job.sampling(0), ignore_eos=True)
    prompts = job.prompts[:MATRIX_PROMPTS]
    return verify_matrix(job.bundle, prompts, asked, options=options, on_text=progress.on).to_json()


def _read(raw: Mapping[str, Any]) -> Verification:
    """Return the verification that ``to_json`` wrote."""
    rows = [VerificationRow(**row) for row in raw["rows"]]
    divergences = [FirstDifference(**one) for one in raw["divergences"]]
    return Verification(rows, raw["tokens"], raw["plan"], divergences, list(raw["notes"]))


def _merged(found: Sequence[Verification]) -> Verification:
    """Return one verification of several that ran on different prompts."""
    rows: dict[tuple[str, str], VerificationRow] = {}
    for row in (row for one in found for row in one.rows):
        before = rows.get((row.way, row.case))
        if before is not None:
            sums = {name: getattr(before, name) + getattr(row, name) for name in COUNTS}
            row = replace(before, **sums)
        rows[row.way, row.case] = row
    return Verification(
        rows=list(rows.values()),
        tokens=sum(one.tokens for one in found),
        plan=next((one.plan for one in found if one.plan), {}),
        divergences=[each for one in found for each in one.divergences],
        notes=list(dict.fromkeys(note for one in found for note in one.notes)),
    )


def _certificate(job: Job, about: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Return all results, with the verdict first."""
    runtimes = {}
    for subject in about["compared"]:
        chunks = [_read(found[_texts(subject, one)]) for one in job.chunks()]
        runtimes[subject] = {
            "texts": _merged(chunks).to_json(),
            "matrix": found[f"{subject}: matrix"],
            "control": found[f"{subject}: control"],
        }
    rows = found[_DISTRIBUTION]
    return {
        "certificate": SCHEMA,
        "model": Path(job.bundle).name,
        "issued": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "verdict": asdict(judge(runtimes, rows)),
        "models": facts.models(job.bundle),
        **about,
        "matrix_prompts": len(job.prompts[:MATRIX_PROMPTS]),
        "matrix_tokens": MATRIX_TOKENS,
        "runtimes": runtimes,
        "distribution": rows,
    }
