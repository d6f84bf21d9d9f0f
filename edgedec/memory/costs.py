"""Memory of the open models at each level of retreat, as it was measured."""

from __future__ import annotations

from dataclasses import dataclass

from edgedec._support.amounts import megabytes
from edgedec.decoding import drafting
from edgedec.memory.account import Account, ModelCosts, Shape, account
from edgedec.memory.levels import Level


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured memory of the open models.

    Attributes:
        target, draft: the models; see ``ModelCosts``.
        process: the interpreter with the runtimes.
        tokenizer: as loaded.
        drafted: most drafted tokens of a round.
        parallel: texts that are decoded by turns, each with tables of its own.

    """

    target: ModelCosts
    draft: ModelCosts | None
    process: int
    tokenizer: int
    drafted: int
    parallel: int = 1

    def of(
        self, level: Level, context: int, *, sampled: bool, prompt: int | None = None
    ) -> Account:
        """Return the account of a level, for a text of this many tokens."""
        drafted = self.drafted if level.limits is None else min(self.drafted, level.limits.nodes)
        draft = self.draft if level.weights else None
        if draft is not None and not level.model:
            draft = draft.without_cache
        shape = Shape(context, drafted, level.drafters * self.parallel, sampled, prompt)
        return account(self.target, draft, shape, process=self.process, tokenizer=self.tokenizer)

    def without_draft(self, needed: int, granted: int) -> str:
        """Return advice to leave the draft model out, where that is enough; else nothing."""
        held = 0 if self.draft is None else self.draft.held
        if not held or needed - held > granted:
            return ""
        other = drafting.default(with_model=False)
        return f", or --draft {other}, which leaves out a draft model of {megabytes(held)} MB"

    def fitting(self, level: Level, bytes_: int, most: int) -> int:
        """Return the longest context, up to ``most``, whose account fits; 0 if none does."""
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            if self.of(level, middle, sampled=True).total <= bytes_:
                low = middle
            else:
                high = middle - 1
        return low
