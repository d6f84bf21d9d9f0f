"""Opens a pair, decodes, and prints one JSON object: the child process of ``huge_pages``.

python -m benchmarks.sections._huge_pages_child MODEL PROVIDER DRAFTER on|off
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

from edgedec.hardware.resident import resident_bytes
from edgedec.loading.build import OpenOptions
from edgedec.models.demo.heldout import heldout_prompts
from edgedec.pipeline import GenerateOptions, Pipeline

_DISABLE = 41  # PR_SET_THP_DISABLE
_TEXTS, _TOKENS = 4, 96


def main(model: str, provider: str, drafter: str, huge: str) -> None:
    """Decode the same held-out prompts, after one that is not timed."""
    if huge == "off":
        ctypes.CDLL(None).prctl(_DISABLE, 1, 0, 0, 0)
    options = OpenOptions(
        plan="none", drafter=drafter, providers=(provider,) if provider else (),
        batch_invariant=False if drafter == "none" else None,
    )  # fmt: skip
    begin = perf_counter()
    with Pipeline.open(Path(model), options) as pipeline:
        opened = perf_counter() - begin
        asked = GenerateOptions(_TOKENS, ignore_eos=True)
        done = [pipeline.generate(one.text, asked) for one in heldout_prompts(_TEXTS)]
        found = {
            "open_s": opened,
            "tpot_s": median(one.metrics.tpot_s for one in done[1:]),
            "huge_bytes": _huge_bytes(),
            "resident_bytes": resident_bytes(),
        }
    sys.stdout.write(json.dumps(found) + "\n")


def _huge_bytes() -> int:
    for line in Path("/proc/self/smaps_rollup").read_text("ascii", errors="replace").splitlines():
        if line.startswith("AnonHugePages:"):
            return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    main(*sys.argv[1:])
