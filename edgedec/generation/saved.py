"""Saves an engine's cached tokens to a file, so that a later process continues without prefill.

::

    head          tokens, the policy's statistics, names of the parts below, and the caller's note
    target        its keys and values
    draft, ...    the drafter's states, one part each

Each is an envelope of ``edgedec.decoding.snapshot``, hashed on its own. The file is not compressed:
keys and values in float32 hardly shrink, and a disk takes them faster than a compressor does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, BinaryIO

from edgedec.decoding import snapshot
from edgedec.decoding.drafting.base import states_of
from edgedec.decoding.engine import Engine
from edgedec.decoding.policy import Learning
from edgedec.errors import CapacityExceeded, SnapshotError

_KIND, _FORMAT = "text", "1"
_MOST_HEAD = 1 << 26


def save(engine: Engine, file: BinaryIO, note: Mapping[str, Any]) -> None:
    """Write the engine's cached tokens with their state, and a note, as JSON.

    Raises:
        StateError: a request is being decoded, or a model's sessions cannot be saved.

    """
    text = list(engine.held_tokens)
    states = {name: one for name, one in states_of(engine.drafter).items() if not one.empty}
    learned = engine.policy.learned() if isinstance(engine.policy, Learning) else {}
    head = {"tokens": text, "learned": learned, "parts": list(states), "note": dict(note)}
    payload = json.dumps(head, allow_nan=False).encode()
    snapshot.write(file, runtime=_KIND, model=_FORMAT, length=len(text), payload=[payload])
    engine.target.save(file)
    for state in states.values():
        state.save(file)


def restore(engine: Engine, file: BinaryIO) -> dict[str, Any]:
    """Load a saved state into the engine; return the note.

    Parts of a drafter that this engine does not have, or that its context window does not hold, are
    left out; its own are computed again.

    Raises:
        SnapshotError: damaged, or of other models; the engine's cache is then empty.
        CapacityExceeded: the text is longer than the context; the engine's cache is then empty.
        StateError: a request is being decoded.

    """
    engine.set_held_tokens(())
    engine.target.rollback(0)
    head = _head(file)
    try:
        engine.target.load(file)
        states = states_of(engine.drafter)
        for name in head["parts"]:
            if name not in states:
                break
            try:
                states[name].load(file, head["tokens"])
            except (CapacityExceeded, snapshot.TooLarge):
                break
        if engine.target.length != len(head["tokens"]):
            raise damaged()
        if isinstance(engine.policy, Learning):
            engine.policy.learn_from(head["learned"])
    except BaseException:
        engine.target.rollback(0)
        raise
    engine.set_held_tokens(head["tokens"])
    note: dict[str, Any] = head["note"]
    return note


def damaged() -> SnapshotError:
    """Return the error for a saved text with invalid contents."""
    return SnapshotError("the saved text is damaged: start again, or use another file")


def _head(file: BinaryIO) -> dict[str, Any]:
    length, payload = snapshot.read(file, runtime=_KIND, model=_FORMAT, most=_MOST_HEAD)
    try:
        head = json.loads(payload)
    except (ValueError, RecursionError):
        raise damaged() from None
    kinds = {"tokens": list, "learned": dict, "parts": list, "note": dict}
    if not isinstance(head, dict) or any(type(head.get(k)) is not v for k, v in kinds.items()):
        raise damaged()
    tokens = head["tokens"]
    if len(tokens) != length or not all(type(token) is int and token >= 0 for token in tokens):
        raise damaged()
    if not all(type(name) is str for name in head["parts"]):
        raise damaged()
    return head
