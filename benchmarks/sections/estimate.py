"""Compares a text's own speed-up estimate with plain decoding of the same prompt.

Both sides run at once with targets paced to a fixed pass time, so that other load hardly matters
and only the error of the estimate is measured.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.bundles import Suite
from edgedec.compare.records import Recorder
from edgedec.compare.side_by_side import SideBySide
from edgedec.decoding.sampling import SamplingParams
from edgedec.loading.build import OpenOptions
from edgedec.pipeline import GenerateOptions

_PACE_S = 0.02
_TOKENS = 96
_TEMPERATURES = (0.0, 0.8)


def estimate(suite: Suite, recorder: Recorder) -> list[dict[str, Any]]:
    """Compare estimated with actual speed-ups, by prompt and temperature."""
    return [_row(suite, temperature, recorder) for temperature in _TEMPERATURES]


def _row(suite: Suite, temperature: float, recorder: Recorder) -> dict[str, Any]:
    sampling = SamplingParams(temperature=temperature, seed=1)
    options = GenerateOptions(_TOKENS, sampling, ignore_eos=True)
    errors, missing = [], 0
    prompts = suite.texts()
    with SideBySide(suite.bundles.shipped(), OpenOptions(plan="none")) as sides:
        sides.hold(_PACE_S)
        for name, prompt in prompts:
            pair = sides.at_once(name, prompt, options, lambda *token: None)
            found = pair.speculative.metrics.speedup_estimate
            recorder.add(
                kind="run", temperature=temperature, prompt=name, speedup=pair.speedup,
                estimate=found, target_passes=pair.speculative.metrics.target_passes,
            )  # fmt: skip
            if found is None:
                missing += 1
            else:
                errors.append(found / pair.speedup - 1)
    row = {
        "temperature": temperature,
        "prompts": len(prompts),
        "without_estimate": missing,
        "median_error": median(map(abs, errors)) if errors else None,
        "largest_error": max(map(abs, errors), default=None),
    }
    recorder.add(kind="summary", **row)
    return row
