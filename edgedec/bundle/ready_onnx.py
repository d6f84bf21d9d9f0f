"""Reads and writes ``ready.json``: a bundle's facts about a graph that others exported.

The graph itself is not changed, so its hash stays the one that the hub states.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgedec._support.fields import from_json, json_object, one_line, to_json
from edgedec._support.files import open_regular
from edgedec.errors import BundleError

READY = "ready.json"
_MAX_BYTES = 1 << 20
_VERSION = 1
# Heads, or numbers of one; a cache of more would not fit into any memory.
_MOST = 1 << 16
# Inputs other than caches; the first name is the one most exporters use.
IDS, MASK, POSITIONS = "input_ids", "attention_mask", "position_ids"
PAST_LENGTH, TOTAL_LENGTH = "past_sequence_length", "total_sequence_length"
KEEP, LOGITS = "num_logits_to_keep", "logits"
ROLES = (IDS, MASK, POSITIONS, KEEP, PAST_LENGTH, TOTAL_LENGTH, LOGITS)
# Names of caches, where * stands for any text, and of what they become.
CACHES = (("past_key_values.*", "present.*"),)


@dataclass(frozen=True, slots=True)
class ReadyFacts:
    """Facts about a graph, for a runtime.

    Attributes:
        vocab_size: columns of its logits.
        vocab_used: columns that are tokens, the first ones.
        kv_heads, head_dim: of caches whose graph leaves them open; 0 if that is not known.
        names: of inputs and outputs, by the name that most exporters give them.
        caches: names of caches and of what they become, where ``*`` stands for any text.

    """

    name: str
    vocab_size: int
    vocab_used: int
    max_context: int
    eos_ids: tuple[int, ...]
    kv_heads: int = 0
    head_dim: int = 0
    names: dict[str, str] = field(default_factory=dict)
    caches: tuple[tuple[str, str], ...] = CACHES

    def called(self, role: str) -> str:
        """Return the name of an input or output."""
        return self.names.get(role, role)

    def check(self, where: str) -> ReadyFacts:
        """Return these facts; BundleError unless they are possible."""
        sizes = (self.vocab_size, self.vocab_used, self.max_context)
        ends = all(0 <= token < self.vocab_used for token in self.eos_ids)
        pairs = all(past.count("*") == present.count("*") == 1 for past, present in self.caches)
        roles = set(self.names) <= set(ROLES)
        given = (
            max(self.kv_heads, self.head_dim) <= _MOST and min(self.kv_heads, self.head_dim) >= 0
        )
        if (
            min(sizes) < 1
            or self.vocab_used > self.vocab_size
            or not (ends and pairs and roles and given)
        ):
            raise BundleError(f"{where}: its sizes or names are damaged: get the model again")
        return self


def as_json(facts: ReadyFacts) -> dict[str, Any]:
    """Return the contents of ``ready.json``."""
    return {"version": _VERSION, **to_json(facts)}


def read(graph: Path) -> ReadyFacts | None:
    """Return the facts in the folder of a graph; None if it has none.

    Raises:
        BundleError: it is damaged, or of another version.

    """
    file = graph.with_name(READY)
    try:
        with open_regular(file) as stream:
            raw = json_object(stream.read(_MAX_BYTES))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BundleError(f"{file} cannot be read: {error.strerror}") from None
    if raw is None or raw.pop("version", None) != _VERSION:
        shown = one_line(str(file))
        raise BundleError(f"{shown} is damaged or of another version: get the model again")
    return _parsed(raw, str(file))


def _parsed(raw: Mapping[str, Any], where: str) -> ReadyFacts:
    facts: ReadyFacts = from_json(ReadyFacts, raw, where, BundleError)
    return facts.check(where)
