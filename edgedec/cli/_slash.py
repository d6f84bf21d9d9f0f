"""The lines of a chat: messages, and commands, which begin with a slash, in one table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click

from edgedec._support.option_names import ELSEWHERE
from edgedec.cli import _conversation, _sampling
from edgedec.cli._conversation import turns
from edgedec.cli._talk import Talk
from edgedec.cli._terminal import note
from edgedec.decoding.drafting import PLAIN
from edgedec.errors import InputError

ENDS = ("/quit", "/exit", "/bye")
_THINK = {"on": True, "off": False, "": None}


class Command(NamedTuple):
    """A command of a chat.

    Attributes:
        argument: what follows its name, for the list of commands.
        help: what it does, in a line.
        do: called with the chat and the text after the name, stripped; reports errors itself.

    """

    argument: str
    help: str
    do: Callable[[Talk, str], None]


def _help(talk: Talk, rest: str) -> None:
    for name, command in COMMANDS.items():
        note(f"{f'{name} {command.argument}':19} {command.help}")
    note("/quit               end, as /exit, /bye and Ctrl-D do; Ctrl-C stops an answer, and twice"
         " leaves")  # fmt: skip
    note("//TEXT              a message that begins with /")


def _system(talk: Talk, text: str) -> None:
    if talk.completes:
        note("a system message needs a chat template, which this model does not have")
        return
    try:
        talk.conversation.instruct(_sampling.system_text(text) or None)
    except click.BadParameter as error:
        note(f"/system: {error.message}")
        return
    note("the system message is changed" if text else "no system message from here on")


def _save(talk: Talk, name: str) -> None:
    if not name:
        note("/save: expected a file")
        return
    path, own = Path(name).expanduser(), talk.file
    try:
        if own is not None and own.is_at(path):
            own.write()  # this chat has it locked
        else:
            _conversation.save(path, talk.pipeline, talk.conversation)
    except InputError as error:
        note(str(error))
    else:
        note(f"kept {turns(len(talk.conversation))} in {name}")


def _load(talk: Talk, name: str) -> None:
    if not name:
        note("/load: expected a file")
        return
    try:
        _conversation.load(Path(name).expanduser(), talk.pipeline, talk.conversation)
    except InputError as error:
        note(str(error))
    else:
        talk.greet()


def _clear(talk: Talk, rest: str) -> None:
    talk.conversation.reset()
    note("new conversation")


def _drop(talk: Talk, rest: str) -> None:
    if rest and (not rest.isdecimal() or int(rest[:9]) < 1):
        note(f"/drop {rest}: expected a number of turns, 1 or more")
        return
    dropped = talk.conversation.drop(int(rest[:9] or 1))
    note(f"left out {turns(dropped)}, {len(talk.conversation)} kept")
    if talk.conversation.waiting is not None:
        talk.answer()


def _drafter(talk: Talk, name: str) -> None:
    """Use another drafter for the following messages."""
    try:
        talk.change(drafter=None if name == "auto" else name)
    except InputError as error:
        note(f"{error}, or auto")
    else:
        note("plain decoding from here on" if name == PLAIN else f"drafter {name} from here on")


def _temperature(talk: Talk, text: str) -> None:
    try:
        talk.change(temperature=float(text))
    except (ValueError, InputError):
        note(f"/temperature {text}: expected a number, 0 or more")
    else:
        greedy = talk.options.sampling.greedy
        note("greedy from here on" if greedy else f"temperature {text} from here on")


def _tokens(talk: Talk, text: str) -> None:
    if not text.isdecimal() or not int(text[:9]) >= 1:
        note(f"/tokens {text}: expected a number, 1 or more")
        return
    talk.change(max_new_tokens=int(text[:9]))
    note(f"answers of at most {int(text[:9])} tokens from here on")


def _think(talk: Talk, word: str) -> None:
    if word in ("hide", "show"):
        talk.hides_thinking = word == "hide"
        note("the thinking is not printed" if talk.hides_thinking else "the thinking is printed")
    elif word not in _THINK:
        note(f"/think {word}: expected on, off, hide, show, or nothing")
    else:
        talk.change(think=_THINK[word])
        note(f"thinking: {word or 'as the chat template says'}")


def _colours(talk: Talk, rest: str) -> None:
    talk.coloured = not talk.coloured
    note(
        "green: drafted tokens that the target accepted; the others are the target's"
        if talk.coloured
        else "no colours from here on"
    )


def _set(talk: Talk, rest: str) -> None:
    """Set an option of a text, checked as on the command line; without a value, as at the start."""
    word, _, text = rest.removeprefix("parameter ").strip().partition(" ")  # as Ollama has it
    text, given = _unquoted(text.strip()), word.replace("-", "_")
    known = _sampling.parameters()
    name = ELSEWHERE.get(given, given)
    if name not in known:
        if (own := COMMANDS.get(f"/{given}")) is not None and own.argument:
            own.do(talk, text)
        else:
            note(f"/set {rest}".rstrip() + f": expected NAME VALUE, with a name of system,"
                 f" drafter, {', '.join(known)}")  # fmt: skip
        return
    try:
        value = _sampling.parsed(name, text) if text else talk.at_start(name)
        talk.change(**{name: value})
    except (InputError, click.BadParameter) as error:
        reason = error.message if isinstance(error, click.BadParameter) else str(error)
        note(f"/set {name}: {reason}")
    else:
        note(f"{name} {text} from here on" if text else f"{name} as at the start")


def _unquoted(text: str) -> str:
    """Return a value without the quotes around it, which a command line would take off."""
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if quoted else text


def _show(talk: Talk, rest: str) -> None:
    """Show what answers are made with: the model's part, then what was set."""
    rows = [*talk.about, *talk.settings()]
    width = max(len(name) for name, _ in rows) + 2
    for name, value in rows:
        note(f"{name:{width}}{value}")


COMMANDS: dict[str, Command] = {
    "/system": Command("[TEXT|@FILE]", "set the system message, or remove it without", _system),
    "/save": Command("FILE", "save the conversation with its keys and values, for /load FILE",
                     _save),
    "/load": Command("FILE", "continue a conversation written by /save or --session", _load),
    "/clear": Command("", "start a new conversation, as /reset does", _clear),
    "/reset": Command("", "the same", _clear),
    "/drop": Command("[N]", "drop the oldest turn, or the N oldest", _drop),
    "/drafter": Command("NAME", "none decodes plainly; auto or a drafter's name speculates again",
                        _drafter),
    "/temperature": Command("NUMBER", "0 is greedy", _temperature),
    "/tokens": Command("N", "most tokens of an answer", _tokens),
    "/set": Command("NAME VALUE", "any option of a text, as /set top_k 20; without VALUE as at the"
                    " start", _set),
    "/show": Command("", "show the model, the options and how long the conversation is", _show),
    "/think": Command("[on|off]", "think before an answer, or not; /think hide and /think show:"
                      " print it or not", _think),
    "/colours": Command("", "show accepted draft tokens in green, or stop doing so", _colours),
    "/help": Command("", "this list", _help),
}  # fmt: skip


def names() -> list[str]:
    """Return the names of all commands."""
    return [*COMMANDS, *ENDS]


def take(talk: Talk, line: str) -> None:
    """Handle a line; report any error in it, and go on with the conversation."""
    name, _, rest = line.partition(" ")
    talk.stopped = False
    name = "/drafter" if name == "/draft" else name  # its former name
    if name in COMMANDS:
        COMMANDS[name].do(talk, rest.strip())
    elif line.startswith("/") and not line.startswith("//"):
        note(f"no command {name}: expected one of {', '.join(names())};"
             " for a message that begins with /, write //")  # fmt: skip
    else:
        talk.conversation.waiting = line.removeprefix("/") if line[:2] == "//" else line
        talk.answer()
