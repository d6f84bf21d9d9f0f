r"""The pipeline: opens a bundle with options and decodes texts with it.

::

    with Pipeline.open("demo") as pipeline:
        for event in pipeline.stream("def fibonacci(n):\n", max_new_tokens=64):
            print(event.text, end="")
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING

from edgedec.decoding.engine import Emission, Request
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import for_request
from edgedec.decoding.sampling import Sampler
from edgedec.decoding.stopping import StopRule
from edgedec.errors import InputError, PassFailed, PromptTooLong, RuntimeUnavailable
from edgedec.generation.keywords import OpenChanges, TextOptions, replaced, with_changes
from edgedec.generation.options import GenerateOptions, Message, Prompt
from edgedec.generation.result import Generation, Plan, plan_of
from edgedec.generation.stream import Stream
from edgedec.hardware.contention import longest_wait, waiting_times
from edgedec.loading import build
from edgedec.loading.build import OpenOptions
from edgedec.loading.capacity import too_long
from edgedec.planning.fallback import Opener, opener
from edgedec.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["GenerateOptions", "Generation", "Message", "Pipeline", "Plan", "Prompt", "Stream"]


class Pipeline:
    """A target, a drafter and a tokenizer, ready to decode.

    One text at a time: reading a stream while another one is unfinished raises StateError. If a
    device fails in the middle of a text, the pipeline opens its models elsewhere, or decodes
    without the draft, logs one warning (logger ``edgedec``), and continues the text. Another device
    may round differently, so the continuation can diverge from the first device's at a near-tie.

    Attributes:
        notes: those warnings, one line each.

    """

    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self._use(opener.open())

    @property
    def notes(self) -> list[str]:
        """One line for each failure after which the pipeline decoded in another way."""
        return list(self._opener.notes)

    def _use(self, parts: build.Parts) -> None:
        self.pair = parts.pair
        self.tokenizer: Tokenizer = parts.tokenizer
        self.plan = parts.plan
        self.target = parts.target
        self.engine = parts.engine
        self._parts = parts

    @classmethod
    def open(
        cls,
        bundle: str | Path,
        options: OpenOptions | None = None,
        **changes: Unpack[OpenChanges],
    ) -> Pipeline:
        """Load a target and, if there is one, a draft.

        Args:
            bundle: a bundle's folder, ``"demo"`` for the pair that ships, or a GGUF file.
            options: choices; ``changes`` overrides single ones by name, as in
                ``Pipeline.open("demo", draft="lookup", threads=2)``.

        Raises:
            BundleError, RuntimeUnavailable, MemoryBudgetError, PlanError, InputError.
            TypeError: ``options`` is something else, or there is no option of a name.

        """
        if isinstance(path := changes.get("draft_model"), str):
            changes["draft_model"] = Path(path)
        options = OpenOptions() if options is None else options
        if not isinstance(options, OpenOptions):
            raise TypeError(
                f"options is {options!r:.60}: expected OpenOptions, or single options by name, as"
                " threads=2"
            )
        return cls(opener(bundle, replaced(options, changes)))

    def stream(
        self,
        prompt: Prompt,
        options: GenerateOptions | None = None,
        **changes: Unpack[TextOptions],
    ) -> Stream:
        """Decode after ``prompt`` (text, or token ids); yields events as they come.

        The events raise StateError while another stream of this pipeline is unfinished.

        Args:
            prompt: the text to continue.
            options: choices; ``changes`` overrides single ones by name, those of
                ``options.sampling`` as well, as in ``max_new_tokens=10, temperature=0.8``.

        Raises:
            TypeError: there is no option of a name.
            InputError: an empty prompt, or an option or a token id out of range.
            PromptTooLong: when the prompt does not fit the context.

        """
        options = with_changes(options or GenerateOptions(), changes)
        request = self._request(self._tokens(prompt), options)
        return Stream(
            self._rounds, request, lambda: plan_of(self.plan, options.draft, options.draft_length)
        )

    def _request(self, tokens: list[int], options: GenerateOptions) -> Request:
        """Return the engine's request for a text after these tokens."""
        try:
            room = self.engine.room(tokens)
        except PromptTooLong:
            capacity = self.engine.target.capacity
            raise too_long(len(tokens), capacity, self._parts.bound) from None
        sampler = Sampler(
            options.sampling,
            self.target.info.vocab_size,
            tokens,
            coupled=self.engine.rule.coupled,
        )
        stop = StopRule(
            eos_ids=() if options.ignore_eos else self.target.info.eos_ids,
            # The end of the context is a limit like any other, at which held-back text is shown.
            max_new_tokens=min(options.max_new_tokens, room),
            stop_strings=options.stop,
            stream=self.tokenizer.stream(tokens),
        )
        deadline = perf_counter() + options.timeout_s if options.timeout_s else None
        request = Request(tokens, sampler, stop, options.logprobs, deadline)
        if options.draft is not None or options.draft_length is not None:
            # A composite drafter's name allows all of its parts.
            only = None if options.draft == self.engine.drafter.name else options.draft
            request.policy = for_request(
                self.engine.policy, drafter=only, draft_length=options.draft_length
            )
        return request

    def generate(
        self,
        prompt: Prompt,
        options: GenerateOptions | None = None,
        **changes: Unpack[TextOptions],
    ) -> Generation:
        """Decode to the end; see ``stream``."""
        stream = self.stream(prompt, options, **changes)
        for _ in stream:
            pass
        assert stream.result is not None
        return stream.result

    def chat(
        self,
        messages: Sequence[Message],
        options: GenerateOptions | None = None,
        **changes: Unpack[TextOptions],
    ) -> Stream:
        """Stream the assistant's next message, by the bundle's chat template; see ``stream``.

        Raises:
            InputError: the bundle has no chat template, or the messages do not fit it.

        """
        return self.stream(self.tokenizer.encode_chat(messages), options, **changes)

    def close(self) -> None:
        """Release sessions, caches and weights."""
        self._parts.close()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _rounds(self, request: Request, metrics: Metrics) -> Iterator[list[Emission]]:
        """Yield the engine's rounds; after a device failure, another engine's for the same text."""
        before, began = waiting_times(), perf_counter()
        while True:
            try:
                yield from self.engine.run(request, metrics)
                metrics.waited_s = longest_wait(before, waiting_times())
                metrics.watched_s = perf_counter() - began
                metrics.slowdown = (request.policy or self.engine.policy).slowdown
                return
            except (PassFailed, RuntimeUnavailable) as error:
                self._use(self._opener.reopen(self._parts, error))
                request = dataclasses.replace(request, prompt=list(request.sampler.history))

    def _tokens(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt)
        if isinstance(prompt, (bytes, bytearray, memoryview)):
            raise InputError("the prompt is bytes: expected text, as prompt.decode() gives it")
        try:
            # Plain integers, since numpy's would overflow in the n-grams' hashes.
            return [operator.index(token) for token in prompt]
        except TypeError:
            raise InputError("the prompt: expected text or a sequence of token ids") from None
