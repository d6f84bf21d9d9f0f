"""Compares speculative with plain decoding's text, by weights, drafter and batch invariance."""

from __future__ import annotations

from typing import Any

from benchmarks.bundles import Suite
from benchmarks.certificate.matrix import verify_matrix
from edgedec.bundle import Bundle
from edgedec.compare.records import Recorder, Row
from edgedec.decoding.sampling import SamplingParams
from edgedec.loading.build import OpenOptions
from edgedec.pipeline import GenerateOptions
from edgedec.verify.results import Verification
from edgedec.verify.same_texts import Texts, verify

# Length of the matrix's texts, of which there are fifty per prompt.
_MATRIX_PROMPTS = 4
_MATRIX_TEXT = GenerateOptions(48, SamplingParams(temperature=0.8, seed=0), ignore_eos=True)
_SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "4 tokens a round": {"draft_length": 4},
    "batch-invariant": {"batch_invariant": True},
    "batch-invariant, 4 tokens a round": {"batch_invariant": True, "draft_length": 4},
}


def identity_fp32(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare fp32 texts, greedy and with a seed, for every drafter."""
    # Without padding rows differ by a millionth, with it not at all.
    return [
        row
        for invariant in (False, True)
        for row in _identity(suite, recorder, "fp32", invariant=invariant)
    ]


def identity_quantised(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare texts of int8 and int4 weights, batch-invariant and not."""
    return [
        row
        for weights in ("int8", "int4")
        for invariant in (True, False)
        for row in _identity(suite, recorder, weights, invariant=invariant)
    ]


def near_ties(suite: Suite, recorder: Recorder) -> list[Row]:
    """Count texts of the shipped pair, as opened by default, that diverge from plain decoding."""
    # These counts depend on other load, since draft lengths follow measured time; with a fixed
    # length of four they do not.
    return [
        _recorded(
            recorder,
            verify(
                suite.bundles.shipped(), suite.code(), options=OpenOptions(plan="none", **options)
            ),
            {"setting": name},
        )
        for name, options in _SETTINGS.items()
    ]


def matrix(suite: Suite, recorder: Recorder) -> list[Row]:
    """Run the matrix on the shipped pair, by default and batch-invariant."""
    prompts = suite.code()[:_MATRIX_PROMPTS]
    rows = []
    for invariant in (None, True):
        options = OpenOptions(plan="none", batch_invariant=invariant)
        found = verify_matrix(suite.bundles.shipped(), prompts, _MATRIX_TEXT, options=options)
        rows.append(_recorded(recorder, found, {"batch_invariant": invariant}))
    return rows


def _identity(suite: Suite, recorder: Recorder, weights: str, *, invariant: bool) -> list[Row]:
    rows: list[Row] = []
    plain: Texts = {}
    bundle = suite.bundles.bundle(weights)
    roles = Bundle.open(bundle).manifest["roles"]
    drafters = ["lookup", "recycle"]
    if "draft" in roles:
        drafters += ["model", "hybrid", *(() if invariant else ("tree",))]
    if "head" in roles:
        drafters += ["head", "headed"]
    for drafter in drafters:
        options = OpenOptions(
            drafter=drafter, threads=suite.threads, batch_invariant=invariant, plan="none"
        )
        found = verify(bundle, suite.code(), options=options, plain=plain)
        names = {"weights": weights, "batch_invariant": invariant, "drafter": drafter}
        rows.append(_recorded(recorder, found, names))
    return rows


def _recorded(recorder: Recorder, found: Verification, names: Row) -> Row:
    """Return a table row; the rest is only recorded."""
    drafted = found.total("drafted_tokens")
    row: Row = {
        **names,
        "texts": found.total("texts"),
        "identical": found.total("identical"),
        "near_ties": found.near_ties,
        "unexplained": sum(not one.near_tie for one in found.divergences),
        "drafted_tokens": drafted,
        "acceptance_rate": found.total("accepted_tokens") / max(1, drafted),
    }
    recorder.add(kind="verification", **{**found.to_json(), **row})
    return row


SECTIONS = (identity_fp32, identity_quantised, near_ties, matrix)
