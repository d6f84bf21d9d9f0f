"""The draft that goes with a model: found here, or fetched after one question."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgedec.cli import _config, _library
from edgedec.decoding import drafting

if TYPE_CHECKING:
    from edgedec.library.locate import Located, Query
    from edgedec.library.partner import Offer

OPTIONS = [
    click.option("-y", "--yes", is_flag=True, help="Fetch the published draft that goes with MODEL "
                 "without asking."),
    click.option("--no-draft", is_flag=True, help="Look for no draft, and ask about none; one that "
                 "came with MODEL is used."),
]  # fmt: skip
DRAFT_HELP = (
    "Draft model, given like MODEL; default: the draft that comes with MODEL, else one with the "
    "same tokenizer from the library or MODEL's folder, else a published one, after a question."
)
_ADVICE = "--yes fetches it, --no-draft leaves it out"


def located(word: str, chosen: dict[str, Any], query: Query) -> Located:
    """Return the model that a word names; ``chosen["draft"]`` becomes what drafts for it.

    Without ``--draft``, that is what ``edgedec.library.partner`` finds. In a terminal it may ask.

    Args:
        word: as for MODEL.
        chosen: values of a command with ``OPTIONS``; any of drafting may be missing.
        query: what is wanted of the model.

    Raises:
        click.UsageError: options that exclude each other.
        EdgedecError: see ``locate``.

    """
    from edgedec.library.partner import Search

    _config.one_drafter(chosen)
    draft, drafter = _config.settled(chosen.get("draft"), chosen.get("drafter"))
    yes, alone = chosen.get("yes", False), chosen.get("no_draft", False)
    if alone and (yes or draft not in (None, drafting.AUTO)):
        other = "--yes" if yes else "--draft"
        raise click.UsageError(f"--no-draft and {other} exclude each other: leave one out")
    chosen["draft"], chosen["drafter"] = draft, drafter
    looks = draft in (None, drafting.AUTO) and not alone
    if draft == drafting.AUTO:
        chosen["draft"] = None
    with _library.listener() as listener:
        ask = (lambda offer: True) if yes else _asked
        search = Search(_library.library(), listener, ask, _ADVICE, drafter, yes)
        if not (looks and search.wanted):
            return _library.located(word, query)
        found = search.find(word, query)
    chosen["draft"] = found.draft
    return found.target


def path(word: str, chosen: dict[str, Any]) -> str | Path:
    """Return the path of the model that a word names; see ``located``."""
    from edgedec.library.locate import Query

    return located(word, chosen, Query(format=chosen["format"])).path


def here(target: str | Path, drafter: str) -> Path | None:
    """Return a draft for a target that is opened later, from the library or beside it."""
    from edgedec.library.making import Listener
    from edgedec.library.partner import Search

    listener = Listener(lambda text: None)
    return Search(_library.library(), listener, _asked, _ADVICE, drafter).here(target)


def _asked(offer: Offer) -> bool | None:
    """Ask whether to fetch a draft; None without a terminal."""
    from edgedec.library.partner import described

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    what = f"{described(offer)} drafts for {offer.target}"
    if offer.head:
        what += ", which is then converted with it"
    return click.confirm(f"{what}. Fetch and use it?", default=True, err=True)
