r"""The composition root: a bundle and a few choices become something to call.

::

    with Pipeline.open("demo") as pipeline:
        for event in pipeline.stream("def fibonacci(n):\n", max_new_tokens=64):
            print(event.text, end="")
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING

from edgedec import assembly
from edgedec.assembly import OpenOptions
from edgedec.decoding import drafting
from edgedec.decoding.engine import Emission, Request
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import for_request
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.decoding.sampling.params import check_whole
from edgedec.decoding.stopping import StopRule
from edgedec.errors import InputError, PassFailed, PromptTooLong, RuntimeUnavailable
from edgedec.generation import Generation, Plan, plan_of
from edgedec.keywords import OpenChanges, TextOptions, replaced, with_changes
from edgedec.limits import too_long
from edgedec.opening import Opener, opener
from edgedec.placement.contention import longest_wait, waiting_times
from edgedec.streaming import Stream
from edgedec.text import Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["GenerateOptions", "Generation", "Message", "Pipeline", "Plan", "Prompt", "Stream"]

Prompt = str | Sequence[int]
Message = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GenerateOptions:
    """What to generate.

    With fp32 weights, or opened with ``row_invariant=True``, equal options and an equal seed
    give the same text whatever drafts; ``OpenOptions`` says what holds otherwise.

    Attributes:
        max_new_tokens: tokens at most; the context may end the text earlier.
        sampling: how tokens are chosen; the default is greedy.
        stop: strings that end the text, or a single one; they are not part of it.
        logprobs: None for none; 0 for each token's own; n for the n best as well.
        timeout_s: seconds after which the text ends with ``"timeout"``.
        ignore_eos: let the text run on past an end-of-text token, for measuring.
        draft: the only drafter that may draft for this text, of those the pipeline was opened
            with (``lookup`` or ``model``, say); ``none`` is plain decoding; None is any.
        draft_length: tokens to draft a round, 0 is plain decoding; None is as the pipeline.
    """

    max_new_tokens: int = 128
    sampling: SamplingParams = field(default_factory=SamplingParams)
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    timeout_s: float | None = None
    ignore_eos: bool = False
    draft: str | None = None
    draft_length: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", _texts("stop", self.stop))
        for name in ("max_new_tokens", "logprobs", "draft_length"):
            check_whole(f"{name} is", getattr(self, name), none=name != "max_new_tokens")
        if not isinstance(self.sampling, SamplingParams):
            raise InputError(f"sampling is {self.sampling!r:.60}: expected SamplingParams")
        if self.draft not in (None, *drafting.names()):
            raise InputError(
                f"no drafter {self.draft!r}: expected one of {', '.join(drafting.names())}"
            )
        if self.draft_length is not None and self.draft_length < 0:
            raise InputError(f"draft_length is {self.draft_length}: expected 0 or more")
        if self.max_new_tokens < 1:
            raise InputError(f"max_new_tokens is {self.max_new_tokens}: expected at least 1")
        if self.timeout_s is not None:
            number = isinstance(self.timeout_s, Real)
            if not number or not self.timeout_s > 0:
                raise InputError(f"timeout is {self.timeout_s!r:.60} s: expected more than 0")
        if self.logprobs is not None and not 0 <= self.logprobs <= 100:
            raise InputError(f"logprobs is {self.logprobs}: expected 0 to 100")


def _texts(name: str, given: object) -> tuple[str, ...]:
    """Texts from one, or from several of them."""
    if isinstance(given, str):
        return (given,)
    if isinstance(given, Iterable) and not isinstance(given, (bytes, bytearray)):
        texts = tuple(given)
        if all(isinstance(text, str) for text in texts):
            return texts
    raise InputError(f"{name} is {given!r:.60}: expected a text or several")


class Pipeline:
    """A target, a drafter and a tokenizer, ready to decode.

    One text at a time: a stream that is read while another one is half read raises
    StateError. When a device fails in the middle of a text, the pipeline opens its models
    elsewhere, or decodes without the draft, logs one warning (logger ``edgedec``), and goes
    on with the text so far. Another device may round differently, so that what follows can
    leave the text of the first one at a near-tie.

    Attributes:
        notes: those warnings, one line each.
    """

    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self._use(opener.open())

    @property
    def notes(self) -> list[str]:
        """Why places that were planned were given up, one line each."""
        return list(self._opener.notes)

    def _use(self, parts: assembly.Parts) -> None:
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
        """Load a target and, where there is one, a draft.

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

        The events raise StateError while another stream of this pipeline is half read.

        Args:
            prompt: what the text goes on from.
            options: choices; ``changes`` overrides single ones by name, those of
                ``options.sampling`` as well, as in ``max_new_tokens=10, temperature=0.8``.

        Raises:
            TypeError: there is no option of a name.
            InputError: an empty prompt, or an option or a token id out of range.
            PromptTooLong: when the prompt does not fit the context.
        """
        options = with_changes(options or GenerateOptions(), changes)
        tokens = self._tokens(prompt)
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
            # The end of the context is a limit as any other: what was held back is shown.
            max_new_tokens=min(options.max_new_tokens, room),
            stop_strings=options.stop,
            stream=self.tokenizer.stream(tokens),
        )
        deadline = perf_counter() + options.timeout_s if options.timeout_s else None
        request = Request(tokens, sampler, stop, options.logprobs, deadline)
        if options.draft is not None or options.draft_length is not None:
            # The drafter's own name lets all it asks draft.
            only = None if options.draft == self.engine.drafter.name else options.draft
            request.policy = for_request(
                self.engine.policy, drafter=only, draft_length=options.draft_length
            )
        return Stream(
            self._rounds, request, lambda: plan_of(self.plan, options.draft, options.draft_length)
        )

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
        """The assistant's next message, by the bundle's chat template; see ``stream``.

        Raises:
            InputError: the bundle has no chat template, or the messages do not fit it.
        """
        return self.stream(self.tokenizer.encode_chat(messages), options, **changes)

    def close(self) -> None:
        """Give back sessions, caches and weights."""
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
        """The engine's rounds; after a device's failure another engine's, with the same text."""
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
            # Plain integers, whatever the caller's are: numpy's overflow in hashes of n-grams.
            return [operator.index(token) for token in prompt]
        except TypeError:
            raise InputError("the prompt: expected text or a sequence of token ids") from None
