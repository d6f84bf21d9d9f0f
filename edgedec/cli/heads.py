"""``edgedec heads``: lists published drafts for a target."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgedec._support.fields import to_json
from edgedec._support.model_path import exists
from edgedec.cli import _library, _options, _output
from edgedec.cli._terminal import note

if TYPE_CHECKING:
    from edgedec.library.published import Draft, Target


@click.command()
@click.argument("target", required=False, type=_library.MODEL)
@_options.as_json
def command(target: str | None, as_json: bool) -> None:
    """List published heads and small models that draft for TARGET.

    TARGET is a model's name, or a folder, bundle or GGUF file, which is recognised by its name and
    sizes. Without it, every target with a published draft is listed. The list is short, made by
    hand and part of edgedec: nothing is fetched, and nothing in it has been tried with edgedec yet.
    `run`, `chat`, `pull` and `serve` fetch the first one that TARGET can take, after a question.
    --json names the page that each entry was taken from.

    \b
    edgedec heads Qwen/Qwen3-8B
    edgedec heads ./my-bundle
    edgedec heads --json
    """
    from edgedec.library import Library
    from edgedec.library.published import TARGETS, drafts_for
    from edgedec.library.recognise import recognise

    targets = list(TARGETS) if target is None else recognise(target, Library())
    if as_json:
        _output.print_json({"drafts": [_facts(draft) for draft in drafts_for(targets)]})
        return
    for index, one in enumerate(targets):
        if index:
            click.echo()
        click.echo(click.style(one.name, bold=True))
        _output.table([(f"  {draft.name}", _line(draft)) for draft in drafts_for([one])])
    if target is not None and (command := _next(target, targets[0], drafts_for(targets))):
        note(f"next: {command}")


def _facts(draft: Draft) -> dict[str, object]:
    return {**to_json(draft), "needs": draft.needs}


def _line(draft: Draft) -> str:
    """Return an entry's kind, size, licence and what else to know, as a line."""
    from edgedec.library.published import MTP

    licence = f"licence: {draft.licence or 'see its page'}"
    more = [draft.note, draft.needs if draft.kind == MTP else ""]
    more += [f"not used yet: {draft.unread}"] if draft.unread else []
    return "; ".join([f"{draft.kind}, {draft.size}, {licence}", *filter(None, more)])


def _next(word: str, target: Target, drafts: Sequence[Draft]) -> str | None:
    """Return the command that uses the first draft of the list that this model can take."""
    from edgedec.library.published import HEAD, MTP

    here = exists(word)
    whole = not here or (Path(word) / "config.json").is_file()  # a head needs the checkpoint
    kinds = [] if whole else [MTP, HEAD]
    able = [one for one in drafts if one.kind not in kinds and not one.unread]
    if not able:
        return None
    model = shlex.quote(word if here else target.name)
    how = {MTP: "", HEAD: " --yes"}.get(able[0].kind, f" --draft {able[0].name}")
    return f'edgedec run {model}{how} "PROMPT"'
