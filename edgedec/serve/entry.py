"""A model in a server's list: loaded or not, who uses it and who waits for it."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from edgedec.errors import MemoryBudgetError
from edgedec.generation.own_sampling import of_model
from edgedec.loading.sources import Source
from edgedec.serve.keeping import FOR_EVER
from edgedec.serve.model import Served, asks
from edgedec.serve.offer import Offer
from edgedec.text.tokenizer import Tokenizer

DEFAULT_TAG = ":latest"  # which Ollama's clients add to names without one
# Tokens of context that a model is to have room for beside others, if it was trained for them.
CONTEXT = 4096
# A tokenizer, a runtime's buffers and a cache take about as much as the files of a small model, and
# hardly more for a large one: measured 1.8 times the file with SmolLM2 135M and Gemma 3 270M.
_BESIDE = 400_000_000


class Waiting(Protocol):
    """A request that waits for a model, which it is given here."""

    served: Served | None


@dataclass(eq=False, slots=True)
class Entry:
    """A model in a server's list.

    Attributes:
        offer: how to open it.
        served: it while it is loaded.
        stays: whether it is never dropped.
        users: requests that were given it and whose texts have not been submitted yet.
        queue: requests that wait until it is loaded.
        working: whether it is being loaded for them.
        leaving: whether it is dropped as soon as its texts have ended: new requests wait.
        keep_s: seconds for which it stays loaded once nobody uses it.
        until: when it is dropped, on the loop's clock, while nobody uses it.
        used: grows with each use, of whatever model.
        held: bytes that it took when it was last loaded; 0 before.
        taken: most bytes that it was seen to take or to lack; 0 before.
        refused: the bytes that did not hold it even alone, and the error; None before.
        lock: held to change ``users``, or ``served`` because of them; from several threads.
        shown: what ``/api/show`` says of it, once that is known.

    """

    offer: Offer
    served: Served | None = None
    stays: bool = False
    users: int = 0
    queue: dict[Waiting, asyncio.Future[Served]] = field(default_factory=dict)
    working: bool = False
    leaving: bool = False
    keep_s: float = FOR_EVER
    until: float = FOR_EVER
    timer: asyncio.TimerHandle | None = None
    used: int = 0
    held: int = 0
    taken: int = 0
    refused: tuple[int, MemoryBudgetError] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    shown: dict[str, Any] | None = None
    _source: Source | None = None
    _facts: dict[str, Any] | None = None

    def known_as(self, name: str) -> bool:
        return name.removesuffix(DEFAULT_TAG) in (self.offer.name, *self.offer.aliases)

    @property
    def unused(self) -> bool:
        """Whether the model is loaded and idle: no request or text uses it."""
        return self.served is not None and not self.users and self.served.turns.idle

    @property
    def known(self) -> bool:
        """Whether ``source`` returns without reading a file."""
        return self.served is not None or self._source is not None

    def source(self) -> Source:
        """Return its target's files; EdgedecError if they cannot be read."""
        if self.served is not None:
            return self.served.pipeline.pair.target
        if self._source is None:
            found = self.offer.source()
            # ``found`` would keep the whole vocabulary of a GGUF file.
            self._source = replace(found, read_tokenizer=self._tokenizer)
        return self._source

    def _tokenizer(self) -> Tokenizer:
        return self.offer.source().read_tokenizer()

    def file_bytes(self) -> int:
        """Return the bytes of its target's files; EdgedecError or OSError if they are not there."""
        return sum(path.stat().st_size for path in self.source().files.values())

    def facts(self) -> dict[str, Any]:
        """Return what is said of it while it is not loaded, from its files.

        Raises:
            EdgedecError: they cannot be read.

        """
        if self._facts is None:
            source = self.source()
            tokenizer = source.read_tokenizer()
            sampling = of_model(source.generation, chats=tokenizer.chat_template is not None)
            asked = asks(tokenizer, sampling)
            self._facts = {**asked, "max_context": source.max_context, "notes": []}
        return self._facts

    def needed(self) -> int:
        """Return about how many bytes it takes: what it took before, or else by its files.

        Raises:
            EdgedecError, OSError: its files cannot be read.

        """
        files = self.file_bytes()  # which must be there
        cached = (self.source().kv_bytes_per_token or 0) * self.least_context()
        return self.taken or files + min(files, _BESIDE) + cached

    def least_context(self) -> int:
        """Return the tokens of context that it is to have beside other models."""
        return min(CONTEXT, self.offer.max_context or CONTEXT, self.source().max_context or CONTEXT)
