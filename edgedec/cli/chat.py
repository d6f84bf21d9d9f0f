"""``edgedec chat``: a conversation in the terminal."""

from __future__ import annotations

import dataclasses
import io
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from edgedec.cli import _model, _options, _sampling
from edgedec.cli._conversation import Conversation
from edgedec.decoding.drafting import PLAIN

if TYPE_CHECKING:
    from edgedec.errors import PromptTooLong
    from edgedec.pipeline import GenerateOptions, Pipeline


_HELP = """\
/reset        start anew
/drop [N]     leave out the oldest turn, or the N oldest
/draft none   decode plainly; /draft auto or a drafter's name speculates again
/exit         end, as Ctrl-D does; Ctrl-C stops an answer
//TEXT        a message that begins with /"""


@click.command(cls=_options.LoadCommand)
@_model.model
@click.option(
    "--system",
    type=_sampling.text,
    metavar="TEXT",
    help="System message: instructions given before the first turn.",
)
@_options.options(_sampling.SAMPLE, _options.OPEN, _options.LOAD)
def command(bundle: str, system: str | None, **chosen: Any) -> None:
    """Chat with a model in the terminal.

    MODEL, a bundle's folder or a GGUF file, needs a chat template. A line is a message; /help
    lists the commands. /reset starts anew, /drop leaves out the oldest turn and /drop 3 the oldest
    three, /draft none decodes plainly from here on and /draft auto speculates again, /exit or
    Ctrl-D ends. Ctrl-C stops an answer. A message that begins with / is written with //.

    \b
    edgedec chat
    edgedec chat large.gguf --draft small.gguf
    edgedec chat ./qwen --system "Answer in one sentence." --temperature 0.7
    """  # fmt: skip
    options = _sampling.generate_options(chosen)
    from edgedec.errors import InputError
    from edgedec.pipeline import Pipeline

    with Pipeline.open(bundle, _options.open_options(chosen)) as pipeline:
        if pipeline.tokenizer.chat_template is None:
            raise InputError(f"{bundle}: no chat template: use `edgedec generate` instead")
        talk = _Talk(pipeline, options, Conversation(system))
        if isinstance(sys.stdin, io.TextIOWrapper):  # a line that is not UTF-8 is reported as such
            sys.stdin.reconfigure(errors="surrogateescape")
        if sys.stdin.isatty():
            _say(f"chat with {bundle}: /help lists the commands, Ctrl-D ends")
        while (line := _read()) is not None:
            if line:
                talk.take(line)


class _Talk:
    """Handles lines: commands, which begin with a slash, and messages."""

    def __init__(
        self, pipeline: Pipeline, options: GenerateOptions, conversation: Conversation
    ) -> None:
        self._pipeline, self._options = pipeline, options
        self._conversation = conversation
        self._commands: dict[str, Callable[[str], None]] = {
            "/reset": self._reset,
            "/drop": self._drop,
            "/draft": self._draft,
            "/help": self._help,
        }

    def take(self, line: str) -> None:
        """Handle a line; report any error in it, and go on with the conversation."""
        name, _, rest = line.partition(" ")
        if name in self._commands:
            self._commands[name](rest.strip())
        elif line.startswith("/") and not line.startswith("//"):
            known = ", ".join((*self._commands, "/exit"))
            _say(f"no command {name}: there are {known}; a message that begins with / takes //")
        else:
            self._conversation.waiting = line.removeprefix("/") if line[:2] == "//" else line
            self._answer()

    def _answer(self) -> None:
        """Answer the waiting message; if that is impossible, say why."""
        from edgedec.cli import _output
        from edgedec.errors import BundleError, InputError, PassFailed, PromptTooLong, SessionError

        talk, options = self._conversation, self._options
        try:
            stream = self._pipeline.chat(talk.messages, options)
            result, _ = _output.show(stream, sampled=not options.sampling.greedy)
        except PromptTooLong as error:
            self._too_long(error)
        except PassFailed:  # no pipeline is left to answer with
            raise
        except (InputError, BundleError, SessionError) as error:
            talk.waiting = None
            _say(str(error))
        else:
            if result.events:
                talk.answer(result.text)
            else:  # Ctrl-C or the timeout came before the first word
                talk.waiting = None

    def _too_long(self, error: PromptTooLong) -> None:
        """Keep the message pending if dropping turns may help."""
        talk, pipeline = self._conversation, self._pipeline
        if not len(talk):
            talk.waiting = None
            _say(str(error))
            return
        tokens = len(pipeline.tokenizer.encode_chat(talk.messages))
        _say(
            f"the conversation has {tokens} tokens and the context holds"
            f" {pipeline.engine.target.capacity}: /drop leaves out the oldest turn and answers,"
            " /drop 3 the oldest three, /reset starts anew"
        )

    def _help(self, rest: str) -> None:
        for line in _HELP.splitlines():
            _say(line)

    def _reset(self, rest: str) -> None:
        self._conversation.reset()
        _say("the conversation starts anew")

    def _drop(self, rest: str) -> None:
        talk = self._conversation
        if rest and (not rest.isdecimal() or int(rest[:9]) < 1):
            _say(f"/drop {rest}: expected how many turns, 1 or more")
            return
        dropped = talk.drop(int(rest[:9] or 1))
        _say(f"left out {dropped} turn{'' if dropped == 1 else 's'}, {len(talk)} kept")
        if talk.waiting is not None:
            self._answer()

    def _draft(self, name: str) -> None:
        """Use another drafter for the following messages."""
        from edgedec.errors import InputError

        try:
            self._options = dataclasses.replace(
                self._options, draft=None if name == "auto" else name
            )
        except InputError as error:
            _say(f"{error}, or auto")
        else:
            _say("plain decoding from here on" if name == PLAIN else f"drafter {name} from here on")


def _say(text: str) -> None:
    """Print a line that is not the model's answer."""
    from edgedec._support.fields import printable

    click.echo(printable(text), err=True)


def _read() -> str | None:
    """Return the next message; None at the end."""
    if sys.stdin.isatty():
        click.echo("> ", nl=False, err=True)
    try:
        line = sys.stdin.readline()
    except KeyboardInterrupt:
        click.echo(err=True)
        return None
    if not line or line.strip() == "/exit":
        return None
    return line.strip()
