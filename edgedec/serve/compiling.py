"""Compiles the grammars of requests, one at a time, while decoding goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from edgedec.grammar.grammars import Grammars
from edgedec.serve.errors import busy
from edgedec.serve.lane import Lane
from edgedec.serve.turns import Work


class Compiler:
    """Compiles grammars before the decoding thread needs them.

    Args:
        grammars: of the pipeline that decodes the texts.

    """

    # New ones, the current one included: each may take as long as ``grammars`` allows.
    most = 4

    def __init__(self, grammars: Grammars) -> None:
        self._grammars = grammars
        self._lane = Lane("grammar")

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
        if self._grammars.knows(grammar):  # it does not wait
            prepared = await asyncio.to_thread(compiled)
        else:
            if self._lane.jobs >= self.most:
                raise busy(
                    f"{self._lane.jobs} new schemas or grammars are being compiled: ask again"
                    " later", retry_s=5,
                )  # fmt: skip
            prepared = await self._lane.run(compiled)
        for work in works:
            work.prepared = prepared

    def close(self) -> None:
        """Turn away the grammars that wait; the thread ends after the current one."""
        self._lane.close()

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._lane.join()
