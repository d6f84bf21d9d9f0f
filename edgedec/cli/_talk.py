"""A chat: its options, its conversation and the answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgedec._support.options import declared
from edgedec.cli import _figures, _output, _sampling
from edgedec.cli._conversation import Conversation, SessionFile, turns
from edgedec.cli._terminal import note
from edgedec.decoding.params import SamplingParams
from edgedec.errors import (
    BundleError,
    InputError,
    PassFailed,
    PromptTooLong,
    RuntimeUnavailable,
    SessionError,
)
from edgedec.generation import ANSWER_TOKENS
from edgedec.generation.keywords import with_changes
from edgedec.generation.options import FORMER, GenerateOptions
from edgedec.generation.own_sampling import DESCRIBED
from edgedec.hardware.energy import EnergyMeter

if TYPE_CHECKING:
    from edgedec.errors import PromptTooLong
    from edgedec.pipeline import Generation, Pipeline, Stream

# What /show lists where it is set, besides what every answer has.
_DRAWN = [name for name in declared(SamplingParams) if name not in DESCRIBED]
_OTHERS = [one.field for name, one in declared(GenerateOptions).items() if name != "max_new_tokens"]


class Talk:
    """A chat, whose lines ``_slash.take`` handles.

    Args:
        options: options of every answer, until commands change them.
        file: where the conversation is saved after each answer, or None.
        completes: whether each line is continued as text, without a chat template.
        about: names and values that describe the model, for /show.

    Attributes:
        stopped: whether Ctrl-C ended the last answer.
        hides_thinking: whether the thinking before an answer is not printed.

    """

    def __init__(
        self,
        pipeline: Pipeline,
        options: GenerateOptions,
        conversation: Conversation,
        file: SessionFile | None,
        *,
        completes: bool = False,
        about: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.pipeline, self.options, self._first = pipeline, options, options
        self.conversation, self.file = conversation, file
        self.completes, self.coloured = completes, False
        self.about = about
        self.stopped = self.hides_thinking = False

    def change(self, **changes: Any) -> None:
        """Change options of the following answers by name; InputError leaves all as they are."""
        self.options = with_changes(self.options, changes)

    def at_start(self, name: str) -> Any:
        """Return the value that an option had when the chat began."""
        sampling = self._first.sampling
        place = sampling if hasattr(sampling, name) else self._first
        return getattr(place, FORMER.get(name, name))

    def settings(self) -> list[tuple[str, str]]:
        """Return what the next answer is made with, as names and values."""
        options, talk = self.options, self.conversation
        own = None if self.completes else self.pipeline.sampling
        whole = options.max_new_tokens >= ANSWER_TOKENS
        rows = [("sampling", _sampling.described(options.sampling, own))]
        rows.append(("tokens", "to the end" if whole else f"at most {options.max_new_tokens}"))
        for place, names in ((options.sampling, _DRAWN), (options, _OTHERS)):
            found = {name: getattr(place, name) for name in names}
            given = {name: value for name, value in found.items() if value or value is False}
            rows += [(name.removesuffix("_s"), _shown(value)) for name, value in given.items()]
        rows.append(("system", talk.system or "none"))
        held = len(self.pipeline.engine.held_tokens)
        cached = f"{held} tokens" if len(talk) else f"{held} tokens, of earlier texts"
        rows.append(("history", turns(len(talk))))
        rows.append(("cache", cached if held else "empty"))
        return rows

    def greet(self) -> None:
        """Report what a restored conversation contains."""
        if count := len(self.conversation):
            held = len(self.pipeline.engine.held_tokens)
            note(f"continuing after {turns(count)}; {held} tokens are cached")

    def _stream(self) -> Stream:
        talk = self.conversation
        if self.completes:
            assert talk.waiting is not None, "a line to continue"
            return self.pipeline.stream(talk.waiting, self.options)
        return self.pipeline.chat(talk.messages, self.options)

    def answer(self) -> None:
        """Answer the waiting message, or report why that is impossible."""
        talk, options = self.conversation, self.options
        meter = EnergyMeter()
        try:
            result, self.stopped = _output.show(
                self._stream(),
                coloured=self.coloured,
                hides_thinking=self.hides_thinking,
                wraps=not self.completes,
            )
        except PromptTooLong as error:
            self._too_long(error)
        except (PassFailed, RuntimeUnavailable) as error:
            if not self.pipeline.opens_again:  # nothing is left to answer with
                raise
            talk.waiting = None
            note(str(error))
        except (InputError, BundleError, SessionError) as error:
            talk.waiting = None
            note(str(error))
        else:
            _output.show_figures(result, meter, sampled=not options.sampling.greedy)
            self._cut(result)
            if result.events and not self.completes:
                talk.answer(result.text, result.thinking)
                self._write()
            else:  # Ctrl-C or the timeout came before the first word
                talk.waiting = None

    def _cut(self, result: Generation) -> None:
        """Say how to go on where a limit cut the answer."""
        trained = self.pipeline.target.info.max_context
        if hint := _figures.cut(result, self.options, trained, turns=len(self.conversation)):
            note(hint)

    def _write(self) -> None:
        """Save the conversation so far; a full disk does not end it."""
        if self.file is not None:
            try:
                self.file.write()
            except InputError as error:
                note(f"{error}; the next answer or /save tries again")

    def _too_long(self, error: PromptTooLong) -> None:
        """Keep the message pending if dropping turns may help."""
        talk, pipeline = self.conversation, self.pipeline
        if not len(talk):
            talk.waiting = None
            note(str(error))
            return
        holds = f"tokens and the context holds {pipeline.engine.target.capacity}"
        alone = len(pipeline.tokenizer.encode_chat(talk.without_turns))
        if alone > pipeline.engine.target.capacity:
            talk.waiting = None
            advice = str(error).rpartition(": ")[2]
            note(f"this message alone has {alone} {holds}: {advice}")
            return
        tokens = len(pipeline.tokenizer.encode_chat(talk.messages))
        note(
            f"the conversation has {tokens} {holds}: /drop drops the oldest turn and answers,"
            " /drop 3 the oldest three, /reset starts a new conversation"
        )


def _shown(value: Any) -> str:
    """Return an option's value as /set takes it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, dict):
        return ", ".join(f"{token}={bias:g}" for token, bias in value.items())
    return ", ".join(value) if isinstance(value, tuple) else str(value)
