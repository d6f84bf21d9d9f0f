"""Keeps a draft model's session in step with the text, however far it falls behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

from edgedec.decoding import drafting, snapshot
from edgedec.decoding.drafting._context import Scores
from edgedec.decoding.drafting._translated import translated
from edgedec.decoding.drafting.base import DrafterParts, DrafterState
from edgedec.decoding.prefill import go_back, shared_length
from edgedec.decoding.randomness import Purpose
from edgedec.decoding.sampling import Rows, Sampler
from edgedec.decoding.session import Trimmable
from edgedec.decoding.tree import FloatArray, IntArray, TokenTree
from edgedec.errors import InputError

# Up to this many missing tokens are computed in the next pass; more are prefilled, which needs
# neither logits nor an ancestor mask.
_RIDE_ALONG = 8
# Saved sessions name the window so.
_SAVED_AS = "view"
# First tokens that every window keeps: they are attention sinks (2309.17453, section 3.1).
ATTENTION_SINKS = 4
# A session that holds fewer tokens is too small to leave any out.
_LEAST = 32


def no_model(name: str) -> InputError:
    """Return the error for a drafter that was built without the draft model it needs."""
    other = drafting.default(with_model=False)
    return InputError(f"drafter {name!r} needs a draft model: give one, or use {other!r}")


class Window:
    """The first and the last tokens of a text that exceeds the window (StreamingLLM, 2309.17453).

    The window grows until it is full; then its older half is dropped and the rest computed again,
    since positions count within it. That prefills one token for each token of text, in large
    chunks, and costs far less than the draft passes. The target sees the whole text, so only the
    acceptance rate can suffer.

    Args:
        size: most tokens seen, at most what the draft's session holds.

    Attributes:
        size: as given.
        left_out: tokens of the text that are not seen, after the first ones.

    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.left_out = 0

    def of(self, text: Sequence[int]) -> Sequence[int]:
        """Return the part of a text that is seen."""
        if not self.left_out:
            return text
        return [*text[:ATTENTION_SINKS], *text[ATTENTION_SINKS + self.left_out :]]

    def length(self, text: Sequence[int]) -> int:
        """Return the number of tokens that are seen."""
        return len(text) - self.left_out

    def goes_on(self, text: Sequence[int]) -> bool:
        """Return whether a text, perhaps another one, is longer than what is left out."""
        return len(text) > ATTENTION_SINKS + self.left_out

    def slide(self, text: Sequence[int]) -> int | None:
        """Leave out more of the text; return how many first tokens stay computed.

        None if the window is too small for that, or nothing was left out and nothing is.
        """
        if self.size < _LEAST:
            return None
        before = self.left_out
        self.left_out = max(0, len(text) - ATTENTION_SINKS - self.size // 2)
        return ATTENTION_SINKS if before or self.left_out else None


class DraftContext:
    """Owner of a draft session that keeps it a prefix of the text.

    The session lags: it computes neither the last token of a chain nor what another drafter
    proposed. Missing tokens are added as a chain above the root of the next tree, in the pass that
    computes the root, so a draft of d tokens costs d passes. The caller and the sampler see the
    tree as rooted at the last token of the text, whatever is above it.

    Invariant: the session holds ``_held``, a prefix of what its window shows of
    ``sampler.history[:-1]``: all of it, unless the text is longer than the session.
    """

    def __init__(self, parts: DrafterParts, name: str) -> None:
        if parts.draft is None:
            raise no_model(name)
        self._session, self._widest = translated(parts.draft, parts.translation)
        self._sampler: Sampler | None = None
        self._held: list[int] = []
        self._window = Window(self._session.capacity)
        self._prefill_at_once = parts.prefill_at_once
        # State of the round: the caller's tree, the session's own (with the missing tokens above
        # it), how many those are, nodes pending in the session, and the last pass's scores.
        self._tree: TokenTree | None = None
        self._own = TokenTree(0)
        self._lag = self._pending = self._passes = 0
        self._scores: Scores | None = None

    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        """Follow another request; the prefix shared with the last one stays cached."""
        self._sampler = sampler
        self._drop()
        shared = shared_length(self._held, self._window.of(prompt[:-1]))
        if self._window.left_out and (shared < len(self._held) or not self._window.goes_on(prompt)):
            self._window.left_out = 0
            shared = shared_length(self._held, prompt[:-1])
        self._rollback(shared)

    def room(self) -> int:
        """Return how many nodes, including the root, can still be computed in one round."""
        seen = self._window.length(self._history())
        return min(self._window.size - seen + 1, self._widest)

    def make_room(self, nodes: int) -> int:
        """Return ``room()``; if that is less than ``nodes``, slide the context window first.

        Sliding ends an open round; the tokens that the session then lacks count as ``behind``.
        """
        room = self.room()
        if room >= min(nodes, self._window.size // 4):
            return room
        self._drop()
        kept = self._window.slide(self._history())
        if kept is not None:
            self._rollback(min(kept, len(self._held)))
        return self.room()

    def behind(self) -> int:
        """Return how many tokens to prefill before the next pass; 0 if it can include them."""
        missing = self._window.length(self._history()) - 1 - len(self._held)
        return missing if missing > _RIDE_ALONG else 0

    def catch_up(self) -> bool:
        """Prefill the missing tokens, or a chunk if they are many; return whether all are done."""
        self._drop()
        missing = self._text()[len(self._held) : -1]
        self._prefill(missing[: self._prefill_at_once])
        return len(missing) <= self._prefill_at_once

    def rows(self, tree: TokenTree, masks: Sequence[int] = ()) -> Rows:
        """Return rows of the last pass over ``tree``, after computing any missing nodes.

        The first call for a tree ends any round left open before it. With ``masks``, its pass reads
        them below the root, and has the rows of the chain that is then drawn: there is no other.
        """
        if tree is not self._tree:
            self._open(tree)
        scores = self._scores
        if scores is None or (not masks and self._pending - self._lag < len(tree.tokens)):
            scores = self._scores = self._forward(tree, masks)
        return scores.rows

    def confidence(self, node: int) -> float:
        """See ``Scores``."""
        return self.scores().confidence(node)

    def chances(self, node: int, ids: IntArray) -> FloatArray:
        """See ``Scores``."""
        return self.scores().chances(node, ids)

    def scores(self) -> Scores:
        """Return the scores of the last pass."""
        assert self._scores is not None, "no pass in this round: call rows() first"
        return self._scores

    def keep(self, tree: TokenTree, path: Sequence[int]) -> None:
        """Commit the computed nodes of an accepted path; drop the others."""
        if tree is not self._tree or not self._pending:
            return
        lag, pending = self._lag, self._pending
        nodes = [*range(lag), *(node + lag for node in path if node + lag < pending)]
        tokens = self._own.tokens_on(nodes)
        self._session.commit(nodes)
        self._held += tokens
        self._forget()

    @property
    def empty(self) -> bool:
        """See ``DrafterState``; True for an unloaded model as well."""
        return not self._held

    def save(self, file: BinaryIO) -> None:
        """See ``DrafterState``: the draft's keys and values."""
        self._drop()
        left_out = self._window.left_out
        snapshot.write(file, runtime=_SAVED_AS, model="", length=left_out, payload=[])
        self._session.save(file)

    def load(self, file: BinaryIO, text: Sequence[int]) -> None:
        self._drop()
        left_out, _ = snapshot.read(file, runtime=_SAVED_AS, model="", most=0)
        self._session.load(file)
        self._window.left_out = left_out
        self._held = list(self._window.of(text)[: self._session.length])
        self._rollback(len(self._held))

    def states(self) -> dict[str, DrafterState]:
        """See ``Stateful``."""
        return {"draft": self}

    def evict(self, *, kept: bool = False) -> None:
        """Empty the session and release its memory; the next draft prefills the text again."""
        if kept:
            return
        self._drop()
        self._rollback(0)
        if isinstance(self._session, Trimmable):
            self._session.trim()

    def close(self) -> None:
        """Close the session."""
        self._session.close()

    def passes(self, tree: TokenTree) -> int:
        """Return the number of passes spent on this tree so far."""
        return self._passes if tree is self._tree else 0

    def _history(self) -> list[int]:
        assert self._sampler is not None, "propose() before begin()"
        return self._sampler.history

    def _text(self) -> Sequence[int]:
        return self._window.of(self._history())

    def _forget(self) -> None:
        self._tree = None
        self._own = TokenTree(0)
        self._scores = None
        self._lag = self._pending = self._passes = 0

    def _drop(self) -> None:
        """End an open round, even one that an exception left unfinished."""
        del self._held[self._session.length :]  # interrupted after a rollback
        if self._pending or self._session.length != len(self._held):
            self._rollback(len(self._held))
        self._forget()

    def _rollback(self, length: int) -> None:
        del self._held[go_back(self._session, length) :]

    def _open(self, tree: TokenTree) -> None:
        self._drop()
        text = self._text()
        missing = text[len(self._held) : -1]
        if len(missing) > _RIDE_ALONG:
            self._prefill(missing)
            missing = []
        self._tree, self._lag = tree, len(missing)
        self._own = TokenTree.chain([*missing, tree.tokens[0]]) if missing else tree

    def _prefill(self, tokens: Sequence[int]) -> None:
        try:
            self._session.prefill(tokens)
        finally:
            # If interrupted between chunks, the chunks computed so far stay.
            self._held += tokens[: self._session.length - len(self._held)]

    def _forward(self, tree: TokenTree, masks: Sequence[int]) -> Scores:
        own, lag, start = self._own, self._lag, self._pending
        if lag:
            for node in range(len(own.tokens) - lag, len(tree.tokens)):
                own.add(tree.tokens[node], tree.parents[node] + lag)
        if masks:
            own = TokenTree.chain([*own.tokens, *masks])
        sampler = self._sampler
        assert sampler is not None
        scored = self._session.forward(own, start, sampler.want)
        # Masks are never kept: as far as the text goes, they were not computed.
        self._pending = len(own.tokens) - len(masks)
        self._passes += 1
        seen = scored.below(lag)
        return Scores(seen, sampler.rows(seen, tree, Purpose.DRAFT), sampler)
