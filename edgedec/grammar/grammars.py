"""Compiles grammars for one model, and caches the latest ones."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from edgedec._support.sandbox import Limits, Refused, Sandbox, Stopped
from edgedec.errors import InputError
from edgedec.grammar import llg
from edgedec.grammar.matching import Compiled, GrammarConstraint
from edgedec.grammar.spec import Grammar
from edgedec.grammar.vocabulary import Vocabulary, library

if TYPE_CHECKING:
    from edgedec.text.tokenizer import Tokenizer

# A large schema compiles in a tenth of a second and a few megabytes.
_LIMITS = Limits(memory_bytes=1 << 30, cpu_s=2.0, wall_s=30.0, answer_bytes=4 << 20)
_COMPILER = Sandbox("edgedec.grammar._compile_child", idle_s=30.0)
_KEPT = 16


class Grammars:
    """Makes constraints for texts of one model.

    A grammar is compiled in a child process first, since it is untrusted and may crash or hang the
    library. The last few grammars, and those in use, stay compiled. Any thread may call it.

    Args:
        vocab_size: columns of a logits row.

    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, eos_ids: Sequence[int]) -> None:
        self._parts = tokenizer, vocab_size, tuple(eos_ids)
        self._last: OrderedDict[Grammar, Compiled] = OrderedDict()
        self._living: WeakValueDictionary[Grammar, Compiled] = WeakValueDictionary()
        self._lock = threading.Lock()

    def constraint(self, grammar: Grammar) -> GrammarConstraint:
        """Return the constraint of a new text.

        Raises:
            RuntimeUnavailable: llguidance is not installed.
            InputError: the grammar cannot be used; or the model has no end-of-text token.

        """
        # Outside the lock: compiling may take seconds, in which other texts go on.
        compiled = self._living.get(grammar) or self._compile(grammar)
        with self._lock:
            self._last[grammar] = self._living[grammar] = compiled
            self._last.move_to_end(grammar)
            if len(self._last) > _KEPT:
                self._last.popitem(last=False)
            found = GrammarConstraint(compiled, self.vocabulary)
        found.allowed([])  # a grammar that allows nothing is refused before the prompt is read
        return found

    def knows(self, grammar: Grammar) -> bool:
        return grammar in self._living

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The model's vocabulary, read when first needed."""
        return Vocabulary(*self._parts)

    def _compile(self, grammar: Grammar) -> Compiled:
        library()
        task = {"kind": grammar.kind, "source": grammar.source}
        try:
            text = _COMPILER.ask(task, _LIMITS)
        except Stopped as error:
            raise InputError(f"the {grammar.kind} is too complex: {error}") from None
        except Refused as error:
            raise InputError(f"the {grammar.kind} cannot be used: {error}") from None
        matcher = llg.matcher(self.vocabulary.ll, str(text))
        if matcher.is_error():
            why = llg.reason(matcher.get_error())
            raise InputError(f"the {grammar.kind} cannot be used: {why}")
        return Compiled(matcher, grammar.kind)
