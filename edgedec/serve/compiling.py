"""Compiles the grammars of requests, one at a time, while decoding goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from edgedec.grammar.grammars import Grammars
from edgedec.grammar.matching import GrammarConstraint
from edgedec.grammar.spec import Grammar
from edgedec.serve.errors import ApiError
from edgedec.serve.ticket import Work

# Each may take as long as ``grammars`` allows; known grammars do not wait.
_MOST = 4


class Compiler:
    """Compiles grammars before the decoding thread needs them.

    Args:
        grammars: of the pipeline that decodes the texts.

    """

    def __init__(self, grammars: Grammars) -> None:
        self._grammars = grammars
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="edgedec-grammar")
        self._waiting = 0

    async def prepare(self, works: Sequence[Work]) -> None:
        """Compile the grammar of a request, which all of its texts follow.

        Raises:
            ApiError: too many new ones are waiting.
            InputError, RuntimeUnavailable: it cannot be used; says why.

        """
        grammar = works[0].options.constraint
        if grammar is None:
            return
        if self._grammars.knows(grammar):
            prepared = await asyncio.to_thread(self._grammars.constraint, grammar)
        elif self._waiting >= _MOST:
            raise ApiError(
                429,
                f"{self._waiting} new schemas or grammars are being compiled: ask again later",
                kind="rate_limit_error",
                code="queue_full",
                retry_s=5,
            )
        else:
            prepared = await self._compiled(grammar)
        for work in works:
            work.prepared = prepared

    async def _compiled(self, grammar: Grammar) -> GrammarConstraint:
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._pool, self._grammars.constraint, grammar)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """End its thread after the current grammar."""
        self._pool.shutdown(cancel_futures=True)
