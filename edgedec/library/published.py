"""Drafts that others publish for a target: heads, parallel drafts and small models of its family.

The list, ``published.toml``, is short and written by hand. A name is there if a public page
names it for that target; licences are those that the page states. None of them has been decoded
with edgedec.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HEAD, PARALLEL, MODEL, MTP = "EAGLE-3 head", "PARD draft", "small model", "MTP head"
# As the list writes them.
_KINDS = {"head": HEAD, "parallel": PARALLEL, "model": MODEL, "mtp": MTP}
# Bytes of a parameter as most are published, in bfloat16.
_PUBLISHED_BYTES = 2
# What a kind needs.
NEEDS = {
    HEAD: "made for this very target; edgedec export TARGET --head DRAFT",
    PARALLEL: "serves the family; edgedec export TARGET --draft DRAFT",
    MODEL: "the same tokenizer; edgedec export TARGET --draft DRAFT",
    MTP: "inside the target's own checkpoint; edgedec export TARGET takes it along",
}


@dataclass(frozen=True, slots=True)
class Target:
    """A model for which drafts are listed.

    Attributes:
        name: on the hub, as ``Qwen/Qwen3-8B``.
        architecture: its ``model_type``.
        layers: number of decoder layers.
        hidden: channels of the residual stream.

    """

    name: str
    architecture: str
    layers: int
    hidden: int


@dataclass(frozen=True, slots=True)
class Draft:
    """A published draft.

    Attributes:
        name: on the hub.
        kind: a key of ``NEEDS``.
        targets: names of the targets it is for.
        millions: of parameters; 0 where neither its shapes nor those of its kind are known.
        licence: as its page states it; None where no page that was read does.
        source: the page that names it for these targets.
        calculated: the size is not stated but follows from the shapes of its kind: a layer like
            the target's with twice the inputs, 32,000 drafted tokens, and the target's embedding.
        note: what else to know.
        unread: why edgedec cannot use it yet; empty if it can.

    """

    name: str
    kind: str
    targets: tuple[str, ...]
    millions: int
    licence: str | None
    source: str
    calculated: bool = False
    note: str = ""
    unread: str = ""

    @property
    def needs(self) -> str:
        """Return what a draft of this kind needs."""
        return NEEDS[self.kind]

    @property
    def bytes(self) -> int:
        """Return about how many bytes its file has."""
        return self.millions * 1_000_000 * _PUBLISHED_BYTES

    @property
    def size(self) -> str:
        """Return the number of parameters, for people."""
        if not self.millions:
            return "not stated"
        shown = f"{self.millions / 1000:.1f} B" if self.millions >= 1000 else f"{self.millions} M"
        return f"about {shown}" if self.calculated else shown


def _listed() -> dict[str, list[dict[str, Any]]]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    found: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    return found


def _draft(raw: Mapping[str, Any]) -> Draft:
    changed = {"kind": _KINDS[raw["kind"]], "targets": tuple(raw["targets"])}
    return Draft(**{"licence": None, "millions": 0, **raw, **changed})


_LISTED = _listed()
TARGETS = tuple(Target(**raw) for raw in _LISTED["target"])
DRAFTS = tuple(map(_draft, _LISTED["draft"]))


def drafts_for(targets: Sequence[Target]) -> list[Draft]:
    """Return the drafts that are listed for any of these targets, heads first."""
    names = {target.name for target in targets}
    return [draft for draft in DRAFTS if names & {*draft.targets}]
