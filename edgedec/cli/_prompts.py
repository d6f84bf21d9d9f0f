"""Reads the prompts of commands that measure or verify."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgedec.cli._flags import flag
from edgedec.errors import InputError
from edgedec.records.function_options import PLAN

if TYPE_CHECKING:
    from edgedec.pipeline import Prompt

option = flag(PLAN["prompts"])


def named(path: Path | None, count: int) -> list[tuple[str, Prompt]]:
    """Return (name, prompt) pairs from a file, or function heads that the demo pair never saw."""
    from edgedec.batch.jobs import read_jobs
    from edgedec.models.demo.heldout import heldout_prompts

    if path is None:
        return [(prompt.name, prompt.text) for prompt in heldout_prompts(count)]
    jobs = read_jobs(path)
    found: list[tuple[str, Prompt]] = [(j.id, j.prompt) for j in jobs if isinstance(j.prompt, str)]
    if len(found) < len(jobs):
        raise InputError(f"{path}: expected lines with prompts, not messages")
    return found


def described(path: Path | None, count: int) -> str:
    """Describe the prompts that ``named`` returns."""
    if path is not None:
        return str(path)
    heads = "1 function head" if count == 1 else f"{count} function heads"
    return f"Python: {heads} from this interpreter's standard library"
