"""Decodes the texts of a pipeline: in turns, and elsewhere if a device fails."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from edgedec._support.fields import printable
from edgedec._support.installation import quoted
from edgedec._support.model_path import DEMO
from edgedec._support.shown import Shown
from edgedec.decoding import drafting
from edgedec.decoding.constraint import Constraint
from edgedec.decoding.emission import Emission
from edgedec.decoding.engine import Engine
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import for_request
from edgedec.decoding.request import Request
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.decoding.stopping import StopRule
from edgedec.errors import InputError, PassFailed, PromptTooLong, RuntimeUnavailable, StateError
from edgedec.generation import ANSWER_TOKENS, TEXT_TOKENS
from edgedec.generation.keywords import with_changes
from edgedec.generation.options import GenerateOptions
from edgedec.generation.prompts import is_no_chat
from edgedec.generation.queue import Place, Queue, Round
from edgedec.hardware.contention import longest_wait, waiting_times
from edgedec.hardware.strain import strain
from edgedec.loading.capacity import too_long
from edgedec.loading.open_pair import OpenPair
from edgedec.loading.opening import Configurations
from edgedec.loading.sources import Source
from edgedec.pipeline.forks import Watched
from edgedec.records.place import CPU
from edgedec.records.place import Place as ModelPlace
from edgedec.text.tokenizer import ChatTokens, Tokenizer

if TYPE_CHECKING:
    from edgedec.bundle import Bundle
    from edgedec.grammar.grammars import Grammars
    from edgedec.text.special_text import SpecialText
    from edgedec.text.thinking import Marks, Splitter

_log = logging.getLogger("edgedec")
# The shortest text after which it is asked whether the machine is hot.
_LONG_S = 1.0


class Decoder(Shown):
    """Open models, and the queue of the texts that they decode.

    Args:
        ways: the configurations to open, in order of preference.

    """

    hidden_names = frozenset({"engine", "grammars", "opens_again", "pair", "reloading", "target"})

    def __init__(self, ways: Configurations) -> None:
        if isinstance(ways, (str, Path)):
            raise InputError(f"a pipeline is opened: Pipeline.open({ways!r:.60})")
        self._ways, self._reloading = ways, False
        self._use(ways.open())
        self._queue = Queue(1 + len(self._parts.parallel_engines))
        self._due = False  # whether the models are still to be closed
        self._watched = Watched(self._after_fork)
        self._said_no_chat = False

    def __repr__(self) -> str:
        """Return one line: the model, the drafter, and where they run."""
        what = f"{type(self).__name__} {self.pair.where!r}"
        if self._queue.closed:
            return f"<{what}, closed>"
        plan = self.plan
        draft = self.pair.draft if drafting.info(plan["drafter"]).needs_model else None
        place = ModelPlace(
            plan["format"],
            plan["device"] or CPU,
            plan["threads"] or 0,
            plan["cores"],
            plan["provider"],
        )
        return (
            f"<{what} on {place.label}: drafter {plan['drafter']}"
            f"{'' if draft is None else f', draft {_called(draft, self.pair.bundle)!r}'},"
            f" {plan['max_context']} tokens of context>"
        )

    @property
    def notes(self) -> list[str]:
        """One line for each failure after which the pipeline changed its configuration."""
        return [*self._ways.notes, *self._parts.notes]

    @property
    def opens_again(self) -> bool:
        """True if the next text tries again to open models whose servers were lost."""
        return self._ways.opens_again

    @property
    def reloading(self) -> bool:
        """True while models are opened again after a failure, in the thread of a text."""
        return self._reloading

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
        self.plan = parts.facts
        self.target = parts.target
        self._parts = parts
        self._grammars: Grammars | None = None

    @property
    def grammars(self) -> Grammars:
        """Compiler of grammars for this model."""
        if self._grammars is None:
            from edgedec.grammar.grammars import Grammars

            info = self.target.info
            self._grammars = Grammars(self.tokenizer, info.vocab_size, info.eos_ids)
        return self._grammars

    def free_bytes(self) -> int | None:
        """Return the bytes of ``memory`` that no text may need; None without a limit."""
        self._queue.check_open()
        return self._parts.free_bytes()

    def forget(self) -> None:
        """Discard the cached tokens, so that the next prompt is computed from its first token.

        Drafters forget the texts that they copy from, but those of ``corpus``.
        """
        with Round(self._queue):
            self.engine.pool.forget()
            if self._parts.earlier is not None:
                self._parts.earlier.forget()

    def close(self) -> None:
        """Release sessions, caches and weights, after the round that is running.

        Texts that have not ended, those that wait and all later calls raise StateError. Called in
        the middle of a round of the same thread, as a signal handler may, it takes effect at the
        end of that text.
        """
        self._queue.close()
        if not self._queue.forked:
            self._release()

    def _after_fork(self) -> OpenPair:
        """Refuse all texts, in a process forked from this one; return what must not be freed."""
        self._queue.after_fork()
        return self._parts

    def _release(self) -> None:
        """Close the models; note that it is due if this thread is in the middle of a round."""
        with ExitStack() as stack:
            try:
                stack.enter_context(Round(self._queue, closing=True))
            except StateError:
                self._due = True
                return
            self._due = False
            self._parts.close()

    @cached_property
    def sampling(self) -> SamplingParams | None:
        """The sampling of the model's answers; None if it asks for none and has no chat template.

        It is what the model's files ask for, or else the usual one.
        """
        from edgedec.generation.own_sampling import of_model

        chats = self.tokenizer.chat_template is not None
        return of_model(self.pair.target.generation, chats=chats)

    def _options_of(
        self, given: GenerateOptions | None, changes: Mapping[str, Any], *, answers: bool
    ) -> GenerateOptions:
        """Return the options of a text; without any given, an answer is drawn as the model asks.

        It then goes on to its end, but that of the demo, which was trained on code and has none.
        """
        default = GenerateOptions()
        if answers and given is None:
            length = TEXT_TOKENS if self.pair.where == DEMO else ANSWER_TOKENS
            default = GenerateOptions(length, self.sampling or default.sampling)
        return with_changes(given or default, changes)

    def _splitter(self, tokens: list[int], options: GenerateOptions) -> Splitter | None:
        """Return what keeps the thinking of an answer apart; None if there can be none."""
        if (marks := self._marks(tokens)) is None:
            return None
        from edgedec.text.thinking import Splitter

        return Splitter(self.tokenizer, marks, tokens, self._special(options).shown)

    def _marks(self, tokens: list[int]) -> Marks | None:
        """Return the marks that separate thinking from the answer.

        None for a text that does not answer messages, or a model that does not think.
        """
        if not isinstance(tokens, ChatTokens):
            return None
        from edgedec.text.thinking import marks_of

        return marks_of(self.tokenizer)

    def _special(self, options: GenerateOptions) -> SpecialText:
        from edgedec.text.special_text import special_text

        return special_text(self.tokenizer, options.stop, options.shown_tokens)

    def _constraint(self, tokens: list[int], options: GenerateOptions) -> Constraint | None:
        """Return what the text must follow: a grammar, and the limit of the thinking before it."""
        asked, tokenizer = options.constraint, self.tokenizer
        grammar = None if asked is None else self.grammars.constraint(asked)
        if (marks := self._marks(tokens)) is None:
            return grammar
        template, budget = tokenizer.chat_template, options.think_tokens
        switched_off = options.think is False and template and template.switches_thinking
        if (options.think is False and not switched_off) or (grammar and not marks.ids):
            budget = 0
        if budget is None and (grammar is None or switched_off):
            return grammar
        from edgedec.text.after_thinking import AfterThinking, Rules
        from edgedec.text.thinking import begin

        info = self.target.info
        rules = Rules(tokenizer, marks, info.vocab_size, info.eos_ids, budget)
        return AfterThinking(rules, begin(tokenizer, marks, tokens), grammar)

    def _request(
        self, tokens: list[int], options: GenerateOptions, splitter: Splitter | None = None
    ) -> Request:
        """Return the engine's request to continue these tokens."""
        try:
            room = self.engine.room(tokens)
        except PromptTooLong:
            capacity = self.engine.target.capacity
            raise too_long(len(tokens), capacity, self._parts.bound) from None
        sampler = Sampler(
            options.sampling, self.target.info.vocab_size, tokens,
            coupled=self.engine.rule.coupled, constraint=self._constraint(tokens, options),
            owner=None if options.ignore_eos else options.owner,
        )  # fmt: skip
        ends = self._special(options)
        stop = StopRule(
            eos_ids=() if options.ignore_eos else self.target.info.eos_ids,
            # The end of the context is an ordinary limit, at which held-back text is emitted.
            max_new_tokens=min(options.max_new_tokens, room),
            stop_strings=ends.stops,
            stream=splitter or self.tokenizer.stream(tokens, ends.shown),
            hidden=ends.hidden,
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

    def _rounds(self, request: Request, metrics: Metrics, place: Place) -> Iterator[list[Emission]]:
        """Yield a text's rounds, once it has its place."""
        try:
            if place.take(request):
                yield from self._decoded(request, metrics, place)
                self._note_no_chat(request, metrics)
        finally:
            place.leave()
            if self._due:
                self._release()

    def _note_no_chat(self, request: Request, metrics: Metrics) -> None:
        """Warn once if a chat model ended a text at once because its prompt is not a chat."""
        at_once = request.stop.reason == "eos" and metrics.emitted <= 1
        where = self.pair.where  # the demo was trained on code, and answers nothing
        if self._said_no_chat or not at_once or where == DEMO:
            return
        if is_no_chat(self.tokenizer, request.prompt):
            self._said_no_chat = True
            _log.warning(
                "the text is empty: this model answers chats, and the prompt was continued as text:"
                ' edgedec run %s "...", or in Python messages=[{"role": "user",'
                ' "content": "..."}]',
                quoted(printable(where)),
            )

    def _decoded(
        self, request: Request, metrics: Metrics, place: Place
    ) -> Iterator[list[Emission]]:
        """Yield an engine's rounds; after a device failure, go on with another engine."""
        before, began, asked = waiting_times(), perf_counter(), request
        parts, rounds = self._parts, None
        try:
            while True:
                with place.round:
                    if self._parts.closed:  # by a failure that an earlier text ended with
                        self._reload(self._ways.open)
                    try:
                        self._parts.in_use.check()
                        if rounds is None or self._parts is not parts:
                            parts = self._parts  # others after a parallel stream's device failed
                            asked = replace(asked, prompt=list(request.sampler.history))
                            engine = parts.idle_engine(asked.prompt)
                            request = parts.within_memory(asked, metrics, engine)
                            rounds = engine.run(request, metrics)
                        emitted = next(rounds, None)
                    except (PassFailed, RuntimeUnavailable) as error:
                        self._reload(partial(self._ways.reopen, parts, error))
                        continue
                if emitted is None:
                    break
                yield emitted
        finally:
            if rounds is not None:
                rounds.close()
        metrics.waited_s = longest_wait(before, waiting_times())
        metrics.watched_s = perf_counter() - began
        metrics.slowdown = (request.policy or engine.policy).slowdown
        if metrics.watched_s >= _LONG_S:
            found = strain()
            metrics.slowed_by, metrics.swapped_bytes = found.slowed_by, found.swapped_bytes

    def _reload(self, open_again: Callable[[], OpenPair]) -> None:
        self._reloading = True
        try:
            self._use(open_again())
        finally:
            self._reloading = False


def _called(draft: Source, bundle: Bundle | None) -> str:
    """Return the name that the draft has in the bundle, or else the path of its file."""
    for role in () if bundle is None else (bundle.draft, bundle.target):
        if role and draft.path in [variant.path for variant in role.variants.values()]:
            return role.source
    return str(draft.path)
