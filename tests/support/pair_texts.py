"""Texts of the shipped pair in some bundle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgedec.models.demo import heldout
from edgedec.pipeline import Pipeline

DEMO = Path(heldout.__file__).parent
PROMPT = "import os\n\n\ndef read_lines(path):"


def prompts(count: int) -> list[str]:
    """The ends of held-out prompts."""
    return [prompt.text[-400:] for prompt in heldout.heldout_prompts(count)]


def texts(bundle: Path, prompts: Sequence[str], tokens: int, **options: object) -> list[str]:
    """Greedy texts."""
    with Pipeline.open(bundle, plan="none", **options) as pipeline:
        return [
            pipeline.generate(prompt, max_new_tokens=tokens, ignore_eos=True).text
            for prompt in prompts
        ]
