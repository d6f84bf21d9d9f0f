"""Handles the lines of a chat: commands, which begin with a slash, and messages to answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from edgedec.cli import _conversation, _figures
from edgedec.cli._conversation import Conversation, SessionFile, turns
from edgedec.cli._terminal import note
from edgedec.decoding.drafting import PLAIN
from edgedec.errors import InputError

if TYPE_CHECKING:
    from edgedec.errors import PromptTooLong
    from edgedec.pipeline import GenerateOptions, Generation, Pipeline, Stream

_HELP = """\
/system TEXT        set the system message, or remove it without TEXT
/save FILE          save the conversation with its keys and values, for /load FILE
/load FILE          continue a conversation written by /save or --session
/reset              start a new conversation
/drop [N]           drop the oldest turn, or the N oldest
/drafter NAME       none decodes plainly; auto or a drafter's name speculates again
/temperature NUMBER 0 is greedy
/tokens N           most tokens of an answer
/think [on|off]     think before an answer, or not; /think hide and /think show: print it or not
/colours            show accepted draft tokens in green, or stop doing so
/help               this list
/quit               end, as /exit, /bye and Ctrl-D do; Ctrl-C stops an answer, and twice leaves
//TEXT              a message that begins with /"""
_THINK = {"on": True, "off": False, "": None}
ENDS = ("/quit", "/exit", "/bye")


class Talk:
    """Handles the lines of a chat.

    Args:
        pipeline: generates the answers.
        options: options of every answer, until commands change them.
        conversation: the messages so far.
        file: where the conversation is saved after each answer, or None.
        completes: whether each line is continued as text, without a chat template.

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
    ) -> None:
        self._pipeline, self._options = pipeline, options
        self._conversation, self._file = conversation, file
        self._completes, self._coloured = completes, False
        self.stopped = self.hides_thinking = False
        self._commands: dict[str, Callable[[str], None]] = {
            "/system": self._system,
            "/save": self._save,
            "/load": self._load,
            "/reset": self._reset,
            "/drop": self._drop,
            "/drafter": self._drafter,
            "/temperature": self._temperature,
            "/tokens": self._tokens,
            "/think": self._think,
            "/colours": self._colours,
            "/help": self._help,
        }

    @property
    def commands(self) -> list[str]:
        """The names of all commands."""
        return [*self._commands, *ENDS]

    def greet(self) -> None:
        """Report what a restored conversation contains."""
        if count := len(self._conversation):
            held = len(self._pipeline.engine.held_tokens)
            note(f"continuing after {turns(count)}; {held} tokens are cached")

    def take(self, line: str) -> None:
        """Handle a line; report any error in it, and go on with the conversation."""
        name, _, rest = line.partition(" ")
        self.stopped = False
        name = "/drafter" if name == "/draft" else name  # its former name
        if name in self._commands:
            self._commands[name](rest.strip())
        elif line.startswith("/") and not line.startswith("//"):
            known = ", ".join(self.commands)
            note(f"no command {name}: expected one of {known};"
                 " for a message that begins with /, write //")  # fmt: skip
        else:
            self._conversation.waiting = line.removeprefix("/") if line[:2] == "//" else line
            self._answer()

    def _stream(self) -> Stream:
        talk = self._conversation
        if self._completes:
            assert talk.waiting is not None, "a line to continue"
            return self._pipeline.stream(talk.waiting, self._options)
        return self._pipeline.chat(talk.messages, self._options)

    def _answer(self) -> None:
        """Answer the waiting message, or report why that is impossible."""
        from edgedec.cli import _output
        from edgedec.errors import (
            BundleError,
            PassFailed,
            PromptTooLong,
            RuntimeUnavailable,
            SessionError,
        )
        from edgedec.hardware.energy import EnergyMeter

        talk, options = self._conversation, self._options
        meter = EnergyMeter()
        try:
            result, self.stopped = _output.show(
                self._stream(), coloured=self._coloured, hides_thinking=self.hides_thinking
            )
        except PromptTooLong as error:
            self._too_long(error)
        except (PassFailed, RuntimeUnavailable) as error:
            if not self._pipeline.opens_again:  # nothing is left to answer with
                raise
            talk.waiting = None
            note(str(error))
        except (InputError, BundleError, SessionError) as error:
            talk.waiting = None
            note(str(error))
        else:
            _output.show_figures(result, meter, sampled=not options.sampling.greedy)
            self._cut(result)
            if result.events and not self._completes:
                talk.answer(result.text, result.thinking)
                self._write()
            else:  # Ctrl-C or the timeout came before the first word
                talk.waiting = None

    def _cut(self, result: Generation) -> None:
        """Say how to go on where a limit cut the answer."""
        trained = self._pipeline.target.info.max_context
        if hint := _figures.cut(result, self._options, trained, turns=len(self._conversation)):
            note(hint)

    def _write(self) -> None:
        """Save the conversation so far; a full disk does not end it."""
        if self._file is not None:
            try:
                self._file.write()
            except InputError as error:
                note(str(error))

    def _too_long(self, error: PromptTooLong) -> None:
        """Keep the message pending if dropping turns may help."""
        talk, pipeline = self._conversation, self._pipeline
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

    # -- commands ------------------------------------------------------------------------------

    def _help(self, rest: str) -> None:
        for line in _HELP.splitlines():
            note(line)

    def _system(self, text: str) -> None:
        if self._completes:
            note("a system message needs a chat template, which this model does not have")
            return
        self._conversation.instruct(text or None)
        note("the system message is changed" if text else "no system message from here on")

    def _save(self, name: str) -> None:
        if not name:
            note("/save: expected a file")
            return
        path, own = Path(name).expanduser(), self._file
        try:
            if own is not None and own.is_at(path):
                own.write()  # this chat has it locked
            else:
                _conversation.save(path, self._pipeline, self._conversation)
        except InputError as error:
            note(str(error))
        else:
            note(f"kept {turns(len(self._conversation))} in {name}")

    def _load(self, name: str) -> None:
        if not name:
            note("/load: expected a file")
            return
        try:
            _conversation.load(Path(name).expanduser(), self._pipeline, self._conversation)
        except InputError as error:
            note(str(error))
        else:
            self.greet()

    def _reset(self, rest: str) -> None:
        self._conversation.reset()
        note("new conversation")

    def _drop(self, rest: str) -> None:
        talk = self._conversation
        if rest and (not rest.isdecimal() or int(rest[:9]) < 1):
            note(f"/drop {rest}: expected a number of turns, 1 or more")
            return
        dropped = talk.drop(int(rest[:9] or 1))
        note(f"left out {turns(dropped)}, {len(talk)} kept")
        if talk.waiting is not None:
            self._answer()

    def _drafter(self, name: str) -> None:
        """Use another drafter for the following messages."""
        try:
            self._options = dataclasses.replace(
                self._options, drafter=None if name == "auto" else name
            )
        except InputError as error:
            note(f"{error}, or auto")
        else:
            note("plain decoding from here on" if name == PLAIN else f"drafter {name} from here on")

    def _temperature(self, text: str) -> None:
        try:
            sampling = dataclasses.replace(self._options.sampling, temperature=float(text))
        except (ValueError, InputError):
            note(f"/temperature {text}: expected a number, 0 or more")
            return
        self._options = dataclasses.replace(self._options, sampling=sampling)
        note("greedy from here on" if sampling.greedy else f"temperature {text} from here on")

    def _tokens(self, text: str) -> None:
        if not text.isdecimal() or not int(text[:9]) >= 1:
            note(f"/tokens {text}: expected a number, 1 or more")
            return
        self._options = dataclasses.replace(self._options, max_new_tokens=int(text[:9]))
        note(f"answers of at most {int(text[:9])} tokens from here on")

    def _think(self, word: str) -> None:
        if word in ("hide", "show"):
            self.hides_thinking = word == "hide"
            note(
                "the thinking is not printed" if self.hides_thinking else "the thinking is printed"
            )
        elif word not in _THINK:
            note(f"/think {word}: expected on, off, hide, show, or nothing")
        else:
            self._options = dataclasses.replace(self._options, think=_THINK[word])
            note(f"thinking: {word or 'as the chat template says'}")

    def _colours(self, rest: str) -> None:
        self._coloured = not self._coloured
        note(
            "green: drafted tokens that the target accepted; the others are the target's"
            if self._coloured
            else "no colours from here on"
        )
