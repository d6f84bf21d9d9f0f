"""A compiled grammar that follows one text and looks ahead along paths of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from edgedec.decoding.constraint import BoolArray
from edgedec.errors import InputError
from edgedec.grammar import llg

if TYPE_CHECKING:
    import llguidance

    from edgedec.grammar.vocabulary import Vocabulary

T = TypeVar("T")
_NOT_KNOWN = -2
_FREE = -1


@dataclass(frozen=True, eq=False)  # without slots, so that weak references can be taken
class Compiled:
    """A grammar at the beginning of a text.

    Attributes:
        matcher: stays at the beginning; only its copies move.
        kind: of the grammar, for messages.

    """

    matcher: llguidance.LLMatcher
    kind: str


class GrammarConstraint:
    """A ``Constraint`` whose one matcher moves along a path and back.

    Masks are cached until the text has passed them, since draft and target read the same nodes.
    Where the grammar leaves the text one continuation, its tokens are forced as the tokenizer would
    write them, although other tokens spell it as well: the model would hardly draw those.

    Args:
        compiled: the grammar, which stays compiled while this lives.
        matcher: in the state of the text, this constraint's own from now on; default: at its
            beginning.

    """

    def __init__(
        self,
        compiled: Compiled,
        vocabulary: Vocabulary,
        matcher: llguidance.LLMatcher | None = None,
    ) -> None:
        self._compiled, self._vocabulary, self._kind = compiled, vocabulary, compiled.kind
        self._matcher = matcher or compiled.matcher.deep_copy()
        # Tokens after the text that the matcher has consumed.
        self._ahead: list[int] = []
        self._masks: dict[tuple[int, ...], BoolArray] = {}
        self._forced: dict[tuple[int, ...], int] = {}
        self._ended = False

    def allowed(self, path: Sequence[int]) -> BoolArray | None:
        key = tuple(path)
        known = self._masks.get(key)
        if known is None and self._go(path):
            known = self._masks[key] = self._mask(key)
        return known

    def allows(self, path: Sequence[int], token: int) -> bool:
        key = tuple(path)
        known = self._masks.get(key)
        if known is not None:
            return bool(known[token])
        if not self._go(path):
            return False
        forced = self._forced_after(key)
        if forced != _FREE:
            return token == forced
        return bool(self._vocabulary.writes[token] and self._matcher.validate_tokens([token]))

    def forced(self, path: Sequence[int], most: int) -> list[int]:
        found: list[int] = []
        while len(found) < most and self._go([*path, *found]):
            key = (*path, *found)
            token = self._forced_after(key)
            if token == _FREE:
                mask = self._masks.get(key)
                if mask is None:
                    mask = self._masks[key] = self._mask(key)
                if np.count_nonzero(mask) > 1:
                    break
                token = self._forced[key] = int(mask.argmax())
            found.append(token)
        return found

    def push(self, tokens: Sequence[int]) -> None:
        if tokens and tokens[-1] in self._vocabulary.eos_ids:
            self._ended = True
            return
        if not self._go(tokens):
            raise ValueError(f"the {self._kind} does not allow these tokens: {list(tokens)}")
        done = tuple(tokens)
        del self._ahead[: len(done)]
        self._masks = _after(done, self._masks)
        self._forced = _after(done, self._forced)

    def twin(self) -> GrammarConstraint:
        self._back(0)
        other = GrammarConstraint(self._compiled, self._vocabulary, self._matcher.deep_copy())
        other._ended = self._ended
        return other

    def _go(self, path: Sequence[int]) -> bool:
        """Move the matcher to the end of a path; False if it is refused or ends the text."""
        eos_ids = self._vocabulary.eos_ids
        if self._ended or any(token in eos_ids for token in path):
            return False
        ahead = self._ahead
        shared = 0
        while shared < min(len(ahead), len(path)) and ahead[shared] == path[shared]:
            shared += 1
        if shared == len(path) == len(ahead):
            return True
        # The tokens before are known to be allowed, and forced tokens are the only continuation.
        for index in range(shared, len(path)):
            forced = self._forced.get(tuple(path[:index]), _NOT_KNOWN)
            if forced >= 0 and path[index] != forced:
                return False
        self._back(shared)
        rest = list(path[shared:])
        for token in rest:
            if not self.allows(ahead[:], token):
                return False
            self._matcher.consume_token(token)
            self._check()
            ahead.append(token)
        return True

    def _back(self, length: int) -> None:
        extra = len(self._ahead) - length
        if extra > 0:
            self._matcher.rollback(extra)
            del self._ahead[length:]

    def _mask(self, key: tuple[int, ...]) -> BoolArray:
        """Return the mask at the matcher's position."""
        forced = self._forced_after(key)
        writes = self._vocabulary.writes
        if forced != _FREE:
            mask = np.zeros(len(writes), dtype=np.bool_)
            mask[forced] = True
            return mask
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        self._check()
        mask = np.unpackbits(bits, count=len(writes), bitorder="little").view(np.bool_)
        mask &= writes
        if not mask.any():
            raise InputError(
                f"the {self._kind} allows nothing here that the model's vocabulary can write:"
                " change it"
            )
        return mask

    def _forced_after(self, key: tuple[int, ...]) -> int:
        """Return the only token that can continue the text at the matcher's position, if known."""
        known = self._forced.get(key, _NOT_KNOWN)
        if known != _NOT_KNOWN:
            return known
        matcher, token = self._matcher, _FREE
        if matcher.is_stopped():
            self._check()
            token = self._vocabulary.eos_ids[0]
        else:
            found = matcher.compute_ff_tokens()
            self._check()
            if found and self._vocabulary.writes[found[0]]:
                token = found[0]
        self._forced[key] = token
        return token

    def _check(self) -> None:
        """Raise InputError if the matcher reached a limit."""
        if self._matcher.is_error():
            why = llg.reason(self._matcher.get_error())
            raise InputError(f"the {self._kind} is too complex: {why}")


def _after(done: tuple[int, ...], known: dict[tuple[int, ...], T]) -> dict[tuple[int, ...], T]:
    """Return what is known of the paths that begin with ``done``, as seen from its end."""
    count = len(done)
    return {key[count:]: value for key, value in known.items() if key[:count] == done}
