"""Decodes with a deliberately broken engine, which the comparison must flag."""

from __future__ import annotations

from typing import Any

from benchmarks.certificate.job import Job
from benchmarks.certificate.ways import alike_for_all, with_length
from edgedec.compare.interleaved import Progress
from edgedec.decoding.acceptance import GumbelCoupling, Verdict
from edgedec.decoding.randomness import Streams
from edgedec.decoding.sampling import Rows
from edgedec.decoding.tree import Draft
from edgedec.loading.build import OpenOptions
from edgedec.pipeline import Pipeline
from edgedec.verify.same_texts import decode, divergences, plainly

PROMPTS = 8


class AcceptsOneMore(GumbelCoupling):
    """Broken on purpose: keeps the first drafted token that the target did not choose."""

    def accept(self, draft: Draft, rows: Rows, streams: Streams) -> Verdict:
        verdict = super().accept(draft, rows, streams)
        children = draft.tree.children(verdict.path[-1])
        if not children:
            return verdict
        path = [*verdict.path, children[0]]
        return Verdict(path, rows.draw(path[-1]))


def broken_rule(job: Job, options: OpenOptions, progress: Progress) -> dict[str, Any]:
    """Compare texts of a broken acceptance rule like all others; return the counts."""
    indices = range(min(PROMPTS, len(job.prompts)))
    prompts, cases = job.prompts[: len(indices)], job.cases(indices)
    progress.expect(2 * len(cases) * len(prompts))
    with Pipeline.open(job.bundle, plainly(options)) as pipeline:
        options = alike_for_all(pipeline, options)
        plain = decode(pipeline, prompts, cases, progress)
    with Pipeline.open(job.bundle, with_length(options)) as pipeline:
        pipeline.engine.rule = AcceptsOneMore()
        broken = decode(pipeline, prompts, cases, progress)
    found = divergences(job.bundle, options, prompts, cases, (plain, {"broken": broken}))
    flagged = sum(not one.near_tie for one in found)
    return {
        "control": "a rule that keeps one token the target did not choose",
        "texts": len(broken),
        "flagged_texts": flagged,
        "flagged": flagged > 0,
    }
