"""The lines before a chat: which model answers, what drafts, how it was planned, how much fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from edgedec.loading.sources import Source
    from edgedec.pipeline import Pipeline


def show(title: str, pipeline: Pipeline) -> None:
    """Print the banner on stderr, in as many lines as a terminal needs."""
    from edgedec._support.fields import printable
    from edgedec.cli import _terminal

    for name, value in rows(title, pipeline):
        _terminal.say(f"{name:8}{printable(value)}", err=True)
    click.secho("/help lists the commands, Ctrl-D leaves", err=True, dim=True)


def rows(title: str, pipeline: Pipeline) -> list[tuple[str, str]]:
    """Return the banner's names and values."""
    from edgedec.decoding.drafting import PLAIN

    pair, plan = pipeline.pair, pipeline.plan
    drafter = plan["drafter"]
    if drafter == PLAIN:
        draft = "none: plain decoding"
    elif pair.draft is None:
        draft = "the text itself"
    else:
        draft = _named(pair.draft)
    length = plan["draft_length"]
    rule = "" if plan["lossless"] else ", not lossless"
    how = [
        f"drafter {drafter}",
        "length by measured cost" if length == "auto" else f"length {length}",
        plan["schedule"],
        f"{plan['threads']} threads" if plan["threads"] else "threads by default",
        f"rule {plan['accept']}{rule}",
        f"as planned: {plan['plan']}" if plan.get("plan") else "no plan",
    ]
    context = f"{plan['max_context']} tokens"
    return [
        ("model", f"{title}, {_named(pair.target)}"),
        ("draft", draft),
        ("plan", ", ".join(how)),
        ("context", context),
    ]


def _named(source: Source) -> str:
    """Return a model's name, format and size."""
    from edgedec.cli._output import size

    stored = sum(file.stat().st_size for file in source.files.values())
    name = f"{source.path.name}, " if source.format == "gguf" else ""
    return f"{name}{source.format}, {size(stored)}"
