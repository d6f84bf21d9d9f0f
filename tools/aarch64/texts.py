"""Compares texts of every drafter with plain decoding's, to the last bit of their probabilities.

A near-tie would show once in thousands of tokens, another rounding shows at once.
"""

from __future__ import annotations

import sys
from typing import Any

from edgedec.pipeline import GenerateOptions, Pipeline

DRAFTERS = ("auto", "model", "lookup", "recycle", "text", "adaptive")
_WITHOUT_MODEL = ("auto", "lookup", "recycle")
_SAMPLINGS: dict[str, Any] = {
    "greedy": {"temperature": 0.0},
    "seeded": {"temperature": 0.8, "seed": 3},
}
# It repeats itself, for those that draft what was there before.
_FUNCTION = (
    "def read_lines(path):\n    with open(path) as file:\n        return file.readlines()\n\n\n"
)
_PROMPT = f"{_FUNCTION}{_FUNCTION}def read_text(path):"

Text = list[tuple[int, float | None]]


def main(target: str | None = None) -> int:
    """Print a line for each drafter; return 1 if a text is another than plain decoding's.

    Args:
        target: a file or bundle without a draft model; None is the demo pair.

    """
    plain, _ = _texts("none", target)
    differ = []
    for drafter in DRAFTERS if target is None else _WITHOUT_MODEL:
        found, drafted = _texts(drafter, target)
        differ += [f"{drafter}, {name}" for name in found if found[name] != plain[name]]
        differ += [] if drafted else [f"{drafter} drafted nothing"]
        print(f"{drafter}: {drafted} tokens were drafted", flush=True)
    print(f"another text: {'; '.join(differ)}" if differ else "every text is plain decoding's")
    return int(bool(differ))


def _texts(drafter: str, target: str | None) -> tuple[dict[str, Text], int]:
    """Return a text by its sampling, and how many tokens were drafted."""
    found, drafted = {}, 0
    options = GenerateOptions(24, ignore_eos=True, logprobs=1)
    # By the costs of an emulator, drafting would often not pay.
    opened: dict[str, Any] = {"draft_length": 4, "plan": "none", "batch_invariant": True}
    with Pipeline.open(target or "demo", drafter=drafter, **opened) as pipeline:
        for name, sampling in _SAMPLINGS.items():
            stream = pipeline.stream(_PROMPT, options, **sampling)
            found[name] = [(event.token, event.logprob) for event in stream]
            assert stream.result is not None
            drafted += stream.result.metrics.drafted_tokens
    return found, drafted


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
