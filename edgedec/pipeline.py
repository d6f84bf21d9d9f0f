r"""The pipeline: opens a bundle with options and decodes texts with it.

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
from edgedec.generation.keywords import OpenChanges, TextOptions, replaced, with_changes
from edgedec.generation.options import GenerateOptions, Message, Prompt, token_ids
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

    from edgedec.grammar.grammars import Grammars

__all__ = ["GenerateOptions", "Generation", "Message", "Pipeline", "Plan", "Prompt", "Stream"]


class Pipeline:
    """A target, a drafter and a tokenizer, ready to decode.

    One text at a time, unless it is opened with ``parallel``: reading a stream while as many
    others are unfinished raises StateError. Streams are read by turns in one thread. What a prompt
    shares with a text before it is not computed again, so that the next turn of a conversation
    reads only what is new.

    If a device fails in the middle of a text, the pipeline opens its models elsewhere, or decodes
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
        return [*self._opener.notes, *self._parts.notes]

    @property
    def engine(self) -> Engine:
        """The engine that decodes; the first of several with ``parallel``."""
        return self._parts.engine

    @engine.setter
    def engine(self, engine: Engine) -> None:
        self._parts.engine = engine

    def _use(self, parts: build.Parts) -> None:
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
            options: choices; ``changes`` overrides single ones by name, as in
                ``Pipeline.open("demo", draft="lookup", threads=2)``.

        Raises:
            BundleError, RuntimeUnavailable, MemoryBudgetError, PlanError, InputError.
            TypeError: ``options`` is something else, or an option is unknown.

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

        The events raise StateError while another stream of this pipeline is unfinished, or as many
        as ``parallel`` allows.

        Args:
            prompt: the text to continue.
            options: choices; ``changes`` overrides single ones by name, those of
                ``options.sampling`` as well, as in ``max_new_tokens=10, temperature=0.8``.

        Raises:
            TypeError: an option is unknown.
            InputError: an empty prompt, an option or a token id out of range, or a grammar that
                cannot be used.
            RuntimeUnavailable: the extra that a grammar needs is not installed.
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
        asked = options.constraint
        sampler = Sampler(
            options.sampling,
            self.target.info.vocab_size,
            tokens,
            coupled=self.engine.rule.coupled,
            constraint=None if asked is None else self.grammars.constraint(asked),
        )
        stop = StopRule(
            eos_ids=() if options.ignore_eos else self.target.info.eos_ids,
            # The end of the context is a limit like any other, at which held-back text is shown.
            max_new_tokens=min(options.max_new_tokens, room),
            stop_strings=options.stop,
            stream=self.tokenizer.stream(tokens),
        )
        deadline = perf_counter() + options.timeout_s if options.timeout_s else None
        by_turns = bool(self._parts.twins)
        request = Request(tokens, sampler, stop, options.logprobs, deadline, by_turns=by_turns)
        if options.draft is not None or options.draft_length is not None:
            # A composite drafter's name allows all of its parts.
            only = None if options.draft == self.engine.drafter.name else options.draft
            request.policy = for_request(
                self.engine.policy, drafter=only, draft_length=options.draft_length
            )
        return request

    @property
    def grammars(self) -> Grammars:
        """Grammars that texts can be held to, compiled for this model."""
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

    def save(self, path: str | Path, note: Mapping[str, Any] | None = None) -> None:
        """Write the last text, prompt and answer, to a file, in one move.

        ``restore`` in a later process then continues it without reading it again: the keys and
        values of both models, what the drafter keeps and what is known of its acceptance.

        Args:
            path: replaced if it exists.
            note: what else to keep, as JSON; ``restore`` returns it.

        Raises:
            StateError: a text is being decoded, or several may be by turns.
            OSError: the file cannot be written; what was there stays.

        """
        self._check_alone("save")
        with replacing(Path(path)) as file:
            saved.save(self.engine, file, note or {})

    def restore(self, path: str | Path) -> dict[str, Any]:
        """Continue the text of a file that ``save`` wrote; return its note.

        The next prompt that begins with that text reads only what follows. The file is untrusted:
        its bytes are hashed before any reaches a model. That tells damage, and not who wrote it:
        a file made to deceive can hold the keys and values of another text than it states.

        Raises:
            SnapshotError: damaged, or of another model, runtime or draft; no text is then held.
            CapacityExceeded: the text is longer than the context; likewise.
            StateError: a text is being decoded, or several may be by turns.
            OSError: the file cannot be read.

        """
        self._check_alone("restore")
        with open_regular(Path(path)) as file:
            return saved.restore(self.engine, file)

    def forget(self) -> None:
        """Read the next prompt from its first token on, whatever it shares with the last text."""
        self.engine.texts.forget()

    def close(self) -> None:
        """Release sessions, caches and weights."""
        self._parts.close()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def _rounds(self, request: Request, metrics: Metrics) -> Iterator[list[Emission]]:
        """Yield an engine's rounds; after a device failure, another engine's for the same text."""
        before, began, asked = waiting_times(), perf_counter(), request
        while True:
            parts = self._parts
            engine = parts.idle_engine(asked.prompt)
            try:
                request = parts.within_memory(asked, metrics, engine)
                for emitted in engine.run(request, metrics):
                    yield emitted
                    if self._parts is not parts:  # opened elsewhere for a text that took its turn
                        break
                else:
                    metrics.waited_s = longest_wait(before, waiting_times())
                    metrics.watched_s = perf_counter() - began
                    metrics.slowdown = (request.policy or engine.policy).slowdown
                    return
            except (PassFailed, RuntimeUnavailable) as error:
                self._use(self._opener.reopen(parts, error))
            asked = dataclasses.replace(asked, prompt=list(request.sampler.history))

    def _check_alone(self, call: str) -> None:
        if self._parts.twins:
            raise StateError(
                f"{call}(): expected a pipeline of one text at a time, got one of"
                f" {1 + len(self._parts.twins)}: open it without parallel"
            )

    def _tokens(self, prompt: Prompt) -> list[int]:
        return self.tokenizer.encode(prompt) if isinstance(prompt, str) else token_ids(prompt)
