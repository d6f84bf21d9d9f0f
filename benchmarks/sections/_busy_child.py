"""Decodes plainly in a child process and prints the speed; see ``busy``."""

from __future__ import annotations

import json
import sys

from edgedec.hardware.contention import machine_is_busy
from edgedec.models.demo.heldout import heldout_prompts
from edgedec.pipeline import GenerateOptions, Pipeline

_WARM_UP = 4


def main(bundle: str, tokens: str, spin_us: str) -> None:
    """Print a JSON object: seconds per token, and the load that the process observed."""
    if spin_us:
        from edgedec.runtimes._ort import opening

        opening._SPIN_US = int(spin_us)
    busy = machine_is_busy()
    prompt = heldout_prompts(1)[0].text
    with Pipeline.open(bundle, drafter="none", plan="none") as pipeline:
        pipeline.generate(prompt, GenerateOptions(_WARM_UP, ignore_eos=True))
        done = pipeline.generate(prompt, GenerateOptions(int(tokens), ignore_eos=True))
    metrics = done.metrics
    print(  # noqa: T201
        json.dumps(
            {
                "tpot_s": metrics.tpot_s,
                "waited_share": metrics.waited_share,
                "found_busy_at_opening": busy,
                "threads": done.plan["threads"],
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
