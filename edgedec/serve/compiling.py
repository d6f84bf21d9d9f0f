"""Compiles the grammars of requests, one at a time, while decoding goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from edgedec.grammar.grammars import Grammars
from edgedec.serve.lane import Lane
from edgedec.serve.ticket import Work


class Compiler:
    """Compiles grammars before the decoding thread needs them.

    Args:
        grammars: of the pipeline that decodes the texts.

    """

    def __init__(self, grammars: Grammars) -> None:
        self._grammars = grammars
        # Each may take as long as ``grammars`` allows; known grammars do not wait.
        self._lane = Lane("grammar", "new schemas or grammars are being compiled")

    async def prepare(self, works: Sequence[Work]) -> None:
        """Compile the grammar of a request, which all of its texts follow.

        Raises:
            ApiError: too many new ones are waiting.
            InputError, RuntimeUnavailable: it cannot be used; says why.

        """
        grammar = works[0].options.constraint
        if grammar is None:
            return
        compiled = partial(self._grammars.constraint, grammar)
        if self._grammars.knows(grammar):
            prepared = await asyncio.to_thread(compiled)
        else:
            prepared = await self._lane.run(compiled)
        for work in works:
            work.prepared = prepared

    def close(self) -> None:
        """Turn away the grammars that wait; the thread ends after the current one."""
        self._lane.close()

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._lane.join()
