r"""The pipeline: opens a bundle with options and generates text with it.

::

    with Pipeline.open("demo") as pipeline:
        for event in pipeline.stream("def fibonacci(n):\n", max_new_tokens=64):
            print(event.text, end="")
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from edgedec._support.atomic import replacing
from edgedec._support.files import open_regular
from edgedec.decoding.emission import Emission
from edgedec.decoding.engine import Engine, Request
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import for_request
from edgedec.decoding.sampling import Sampler
from edgedec.decoding.stopping import StopRule
from edgedec.errors import PassFailed, PromptTooLong, RuntimeUnavailable, StateError
from edgedec.generation import saved
from edgedec.generation.keywords import TextOptions, with_changes
from edgedec.generation.options import GenerateOptions, Message, Prompt, token_ids
from edgedec.generation.result import Generation, Setup, setup_of
from edgedec.generation.stream import Stream
from edgedec.hardware.contention import longest_wait, waiting_times
from edgedec.loading.capacity import too_long
from edgedec.loading.open_pair import OpenPair
from edgedec.loading.opening import Configurations, configurations
from edgedec.loading.option_types import OpenChanges
from edgedec.loading.options import OpenOptions
from edgedec.planning.follow import plan_to_follow
from edgedec.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from edgedec.grammar.grammars import Grammars

__all__ = ["GenerateOptions", "Generation", "Message", "Pipeline", "Prompt", "Setup", "Stream"]


class Pipeline:
    """A target, a drafter and a tokenizer, ready to decode.

    It decodes one stream at a time, or up to ``parallel`` of them by turns in one thread; reading
    from one more raises StateError until another has ended. The prefix that a prompt shares with an
    earlier generation stays cached, so that the next turn of a conversation computes only its new
    tokens.

    If a device fails during a generation, the pipeline opens its models elsewhere, or decodes
    without the draft, logs one warning (logger ``edgedec``), and continues the text. Another device
    may round differently, so the continuation can diverge from the first device's at a near-tie.

    Attributes:
        notes: those warnings, one line each.

    """

    def __init__(self, ways: Configurations) -> None:
        self._ways = ways
        self._use(ways.open())

    @property
    def notes(self) -> list[str]:
        """One line for each failure after which the pipeline changed its configuration."""
        return [*self._ways.notes, *self._parts.notes]

    @property
    def engine(self) -> Engine:
        """The engine that decodes; the first one if there are several (``parallel``)."""
        return self._parts.engine

    @engine.setter
    def engine(self, engine: Engine) -> None:
        self._parts.engine = engine

    def _use(self, parts: OpenPair) -> None:
        self.pair = parts.pair
        self.tokenizer: Tokenizer = parts.tokenizer
        self.plan = parts.plan
        self.target = parts.target
        self._parts = parts
        self._grammars: Grammars | None = None

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
            options: how to open it; ``changes`` overrides single options by name, including load
                options, as in ``Pipeline.open("demo", drafter="lookup", threads=2)``.

        Raises:
            BundleError, RuntimeUnavailable, MemoryBudgetError, PlanError, InputError.
            TypeError: ``options`` is something else, or an option is unknown.

        """
        options = OpenOptions() if options is None else options
        if not isinstance(options, OpenOptions):
            raise TypeError(
                f"options is {options!r:.60}: expected OpenOptions, or single options by name, as"
                " threads=2"
            )
        return cls(configurations(bundle, options.changed(**changes), plan_to_follow))

    def stream(
        self,
        prompt: Prompt,
        options: GenerateOptions | None = None,
        **changes: Unpack[TextOptions],
    ) -> Stream:
        """Return a stream that continues ``prompt`` and yields events as they come.

        Reading an event raises StateError while another stream of this pipeline, or ``parallel`` of
        them, are unfinished.

        Args:
            prompt: the text to continue, or its token ids.
            options: how to generate; ``changes`` overrides single options by name, including those
                of ``options.sampling``, as in ``max_new_tokens=10, temperature=0.8``.

        Raises:
            TypeError: an option is unknown.
            InputError: an empty prompt, an option or a token id out of range, or a grammar that
                cannot be used.
            RuntimeUnavailable: the extra that a grammar needs is not installed.
            PromptTooLong: the prompt does not fit the context.

        """
        options = with_changes(options or GenerateOptions(), changes)
        request = self._request(self._tokens(prompt), options)
        drafter, length = options.drafter, options.draft_length
        return Stream(self._rounds, request, lambda: setup_of(self.plan, drafter, length))

    def _request(self, tokens: list[int], options: GenerateOptions) -> Request:
        """Return the engine's request to continue these tokens."""
        self._parts.check_open()
        try:
            room = self.engine.room(tokens)
        except PromptTooLong:
            capacity = self.engine.target.capacity
            raise too_long(len(tokens), capacity, self._parts.bound) from None
        asked = options.constraint
        constraint = None if asked is None else self.grammars.constraint(asked)
        sampler = Sampler(
            options.sampling, self.target.info.vocab_size, tokens,
            coupled=self.engine.rule.coupled, constraint=constraint,
        )  # fmt: skip
        stop = StopRule(
            eos_ids=() if options.ignore_eos else self.target.info.eos_ids,
            # The end of the context is an ordinary limit, at which held-back text is emitted.
            max_new_tokens=min(options.max_new_tokens, room),
            stop_strings=options.stop,
            stream=self.tokenizer.stream(tokens),
        )
        deadline = perf_counter() + options.timeout_s if options.timeout_s else None
        by_turns = bool(self._parts.parallel_engines)
        request = Request(tokens, sampler, stop, options.logprobs, deadline, by_turns=by_turns)
        if options.drafter is not None or options.draft_length is not None:
            # A composite drafter's name allows all of its parts.
            only = None if options.drafter == self.engine.drafter.name else options.drafter
            length = options.draft_length
            request.policy = for_request(self.engine.policy, drafter=only, draft_length=length)
        return request

    @property
    def grammars(self) -> Grammars:
        """Compiler of grammars for this model."""
        if self._grammars is None:
            from edgedec.grammar.grammars import Grammars

            info = self.target.info
            self._grammars = Grammars(self.tokenizer, info.vocab_size, info.eos_ids)
        return self._grammars

    def generate(
        self,
        prompt: Prompt,
        options: GenerateOptions | None = None,
        **changes: Unpack[TextOptions],
    ) -> Generation:
        """Generate to the end and return the result; see ``stream``."""
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
        """Stream the assistant's next message, using the bundle's chat template; see ``stream``.

        Raises:
            InputError: the bundle has no chat template, or the messages do not fit it.

        """
        return self.stream(self.tokenizer.encode_chat(messages), options, **changes)

    def save(self, path: str | Path, note: Mapping[str, Any] | None = None) -> None:
        """Save the state of the last generation, prompt and output, to a file, atomically.

        It contains the keys and values of both models, the drafter's state and its acceptance
        statistics, so that after ``restore`` a later process continues without prefill.

        Args:
            path: replaced if it exists.
            note: the caller's own data, as JSON; ``restore`` returns it.

        Raises:
            StateError: a generation is in progress, the pipeline was opened with ``parallel``, or
                it is closed.
            OSError: the file cannot be written; an existing one is unchanged.

        """
        self._parts.check_alone("save")
        with replacing(Path(path)) as file:
            saved.save(self.engine, file, note or {})

    def restore(self, path: str | Path) -> dict[str, Any]:
        """Load the state that ``save`` wrote to a file; return its note.

        The next prompt that begins with the saved text computes only the tokens after it. The file
        is untrusted: its bytes are hashed before any reaches a model. The hash detects damage but
        not forgery: a forged file can hold the keys and values of another text than it states.

        Raises:
            SnapshotError: damaged, or of another model, runtime or draft; the cache is then empty.
            CapacityExceeded: the saved text is longer than the context; the cache is then empty.
            StateError: a generation is in progress, or the pipeline was opened with ``parallel``.
            OSError: the file cannot be read.

        """
        self._parts.check_alone("restore")
        with open_regular(Path(path)) as file:
            return saved.restore(self.engine, file)

    def free_bytes(self) -> int | None:
        """Return the bytes of ``memory`` that no text may need; None without a limit."""
        return self._parts.free_bytes()

    def forget(self) -> None:
        """Discard the cached tokens, so that the next prompt is computed from its first token."""
        self.engine.pool.forget()

    def close(self) -> None:
        """Release sessions, caches and weights; the pipeline then decodes no more."""
        self._parts.close()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def _rounds(self, request: Request, metrics: Metrics) -> Iterator[list[Emission]]:
        """Yield an engine's rounds; after a device failure, go on with another engine."""
        before, began, asked = waiting_times(), perf_counter(), request
        while True:
            parts = self._parts
            engine = parts.idle_engine(asked.prompt)
            try:
                request = parts.within_memory(asked, metrics, engine)
                for emitted in engine.run(request, metrics):
                    yield emitted
                    if self._parts is not parts:  # reopened elsewhere by a parallel stream
                        break
                else:
                    metrics.waited_s = longest_wait(before, waiting_times())
                    metrics.watched_s = perf_counter() - began
                    metrics.slowdown = (request.policy or engine.policy).slowdown
                    return
            except StateError:
                self._parts.check_open()  # a session closed in the middle says less
                raise
            except (PassFailed, RuntimeUnavailable) as error:
                self._use(self._ways.reopen(parts, error))
            asked = dataclasses.replace(asked, prompt=list(request.sampler.history))

    def _tokens(self, prompt: Prompt) -> list[int]:
        return self.tokenizer.encode(prompt) if isinstance(prompt, str) else token_ids(prompt)
