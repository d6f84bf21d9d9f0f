"""Texts of the shipped pair in some bundle, plain and drafted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgedec.models.demo import heldout
from edgedec.pipeline import Pipeline

DEMO = Path(heldout.__file__).parent
_PROMPT = "import os\n\n\ndef read_lines(path):"


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


def drafted(bundle: Path, drafter: str, **options: object) -> list[str]:
    """A greedy text and one with a seed, with six tokens a draft."""
    with Pipeline.open(bundle, plan="none", drafter=drafter, draft_length=6, **options) as pipeline:
        return [
            pipeline.generate(_PROMPT, max_new_tokens=48, ignore_eos=True, **each).text
            for each in ({}, {"temperature": 0.8, "seed": 3})
        ]


def overlapped(bundle: Path, **options: object) -> str:
    """The greedy text of ``drafted``, by a draft that works while the target verifies."""
    with Pipeline.open(
        bundle, plan="none", drafter="model", schedule="overlapped", **options
    ) as pipeline:
        return pipeline.generate(_PROMPT, max_new_tokens=48, ignore_eos=True).text
