"""Finds the form in which a chat template takes a conversation, by rendering marked ones.

A template is a program: whether a word stands in its source says little about what it does. So
conversations with a marker in every place are rendered, and the first form in which every marker
arrives is the template's. What no form carries is said in other words, or named.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from edgedec.text import described
from edgedec.text.described import as_object

Message = dict[str, Any]
# Renders messages and tools; an empty text where the template refuses them.
Ask = Callable[[Sequence[Message], "Sequence[Message] | None"], str]
# Where tools go: in a variable, or as text in the system message (Phi-4-mini).
VARIABLE, IN_SYSTEM = "variable", "system"
# How a call's arguments are given, and the content of a message of calls alone.
OBJECT, TEXT = "object", "text"
NOTHING: tuple[dict[str, Any], ...] = ({"content": ""}, {"content": None}, {})

_NAME, _KEY, _VALUE, _RESULT = "Zq_function", "zq_key", "Zq_value", "Zq_result"
_TOOL: Message = {
    "type": "function",
    "function": {
        "name": _NAME,
        "description": "A function.",
        "parameters": {
            "type": "object",
            "properties": {_KEY: {"type": "string", "description": "A value."}},
            "required": [_KEY],
        },
    },
}
# The second as Mistral's templates demand it: nine letters and digits.
_IDS = ("call_0123456789", "call00001")


@dataclass(frozen=True, slots=True)
class Form:
    """How a template takes a conversation.

    Attributes:
        parts: roles whose content it reads as a list of parts only.
        system: whether it takes system messages; otherwise they join the user's.
        tools: ``VARIABLE``, ``IN_SYSTEM``, or None: they are described.
        bare_system: whether it lists tools only where there is a system message.
        calls: arguments as ``OBJECT`` or ``TEXT``; None: calls become text.
        nothing: fields of a message of calls alone, one of ``NOTHING``.
        results: whether it takes messages of the role ``tool``; otherwise they are the user's.
        short_ids: whether it refuses ids of calls as the API writes them.
        declared: whether only its name says that it lists tools.
        single: whether it refuses several calls of one message (Llama 3.1); each then has its own.

    """

    parts: frozenset[str] = frozenset()
    system: bool = True
    tools: str | None = None
    bare_system: bool = False
    calls: str | None = None
    nothing: dict[str, Any] = dataclasses.field(default_factory=lambda: NOTHING[0])
    results: bool = False
    short_ids: bool = False
    declared: bool = False
    single: bool = False

    def shaped(
        self, talk: Sequence[Message], tools: Sequence[Message] | None
    ) -> tuple[list[Message], Sequence[Message] | None]:
        """Return messages and tools as the template takes them.

        Args:
            talk: checked messages.
            tools: as the API writes them.

        """
        found = _with_ids(talk)
        if self.single:
            found = _one_by_one(found)
        if self.calls is None or (tools and self.tools is None):
            found = described.with_spoken_results(described.with_spoken_calls(found))
        elif not self.results:
            found = described.with_spoken_results(found)
        if tools:
            found, tools = self._listed(found, tools)
        if not self.system:
            found = _without_system(found)
        ids = itertools.count(1)
        numbers: dict[str, str] = {}
        for one in found if self.short_ids else ():
            for call in one.get("tool_calls", ()):
                numbers.setdefault(str(call.get("id")), f"call{next(ids):05d}")
        return [self._message(one, numbers) for one in found], tools

    def _listed(
        self, talk: list[Message], tools: Sequence[Message]
    ) -> tuple[list[Message], Sequence[Message] | None]:
        """Return messages and tools with these where the template looks for them."""
        if self.tools is None:
            return described.with_tools(talk, tools), None
        if not self.bare_system and self.tools != IN_SYSTEM:
            return talk, tools
        if talk[0]["role"] != "system":
            talk = [{"role": "system", "content": ""}, *talk]
        if self.tools != IN_SYSTEM:
            return talk, tools
        listed = json.dumps([one["function"] for one in tools], ensure_ascii=False)
        return [{**talk[0], "tools": listed}, *talk[1:]], None

    def _message(self, given: Message, numbers: dict[str, str]) -> Message:
        found = dict(given)
        if given["role"] in self.parts and given["content"]:
            found["content"] = [{"type": "text", "text": given["content"]}]
        if "tool_call_id" in given:
            found["tool_call_id"] = numbers.get(given["tool_call_id"], given["tool_call_id"])
        if calls := given.get("tool_calls"):
            found["tool_calls"] = [self._call(one, numbers) for one in calls]
            if not given["content"]:
                del found["content"]
                found |= self.nothing
        return found

    def _call(self, given: Message, numbers: dict[str, str]) -> Message:
        function = given["function"]
        arguments = function.get("arguments", {})
        if self.calls == OBJECT:
            arguments = as_object(arguments)
        elif not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        found = {"type": "function", **given, "function": {**function, "arguments": arguments}}
        if numbers:
            found["id"] = numbers[str(given.get("id"))]
        return found


def _with_ids(talk: Sequence[Message]) -> list[Message]:
    """Return a conversation in which calls and their results have ids, as not every API asks for.

    A result without one is that of the first call that waits for one, of its function if it says
    which.
    """
    found, waiting = [], list[tuple[str, str]]()
    for place, one in enumerate(talk):
        if calls := one.get("tool_calls"):
            calls = [{"id": f"call_{place}_{number}", **call} for number, call in enumerate(calls)]
            waiting += [(str(call["id"]), call["function"]["name"]) for call in calls]
            one = {**one, "tool_calls": calls}
        elif one["role"] == "tool" and waiting:
            name = one.get("tool_name", one.get("name"))
            own = next((pair for pair in waiting if pair[1] == name), waiting[0])
            own = next((pair for pair in waiting if pair[0] == one.get("tool_call_id")), own)
            waiting.remove(own)
            one = {"tool_call_id": own[0], **one}
        found.append(one)
    return found


def _without_system(talk: Sequence[Message]) -> list[Message]:
    """Return a conversation whose system messages join the user's next one, or the one before."""
    found: list[Message] = []
    waiting: list[str] = []
    for one in talk:
        if one["role"] == "system":
            waiting += filter(None, [one["content"]])
        elif one["role"] == "user" and waiting:
            found.append({**one, "content": "\n\n".join([*waiting, one["content"]])})
            waiting = []
        else:
            found.append(one)
    if waiting and found and found[-1]["role"] == "user":
        found[-1] = {**found[-1], "content": "\n\n".join([found[-1]["content"], *waiting])}
    elif waiting:
        found.append({"role": "user", "content": "\n\n".join(waiting)})
    return found


def _one_by_one(talk: Sequence[Message]) -> list[Message]:
    """Return a conversation in which each call is a message, and its result follows it."""
    found: list[Message] = []
    for calls, results in _turns(talk):
        left, ids = list(results), {one.get("id") for one in calls.get("tool_calls", ())}
        for place, call in enumerate(calls.get("tool_calls", ())):
            content = "" if place else calls["content"]
            found.append({**calls, "content": content, "tool_calls": [call]})
            own = [one for one in left if one.get("tool_call_id") == call.get("id")]
            own = own or [one for one in left if one.get("tool_call_id") not in ids][:1]
            found += own
            left = [one for one in left if one not in own]
        found += left if "tool_calls" in calls else [calls, *left]
    return found


def _turns(talk: Sequence[Message]) -> list[tuple[Message, list[Message]]]:
    """Return the messages, each with the results that follow it."""
    found: list[tuple[Message, list[Message]]] = []
    for one in talk:
        if one["role"] == "tool" and found:
            found[-1][1].append(one)
        else:
            found.append((one, []))
    return found


# -- the probe ------------------------------------------------------------------------------------


def plain_form(ask: Ask) -> Form:
    """Return how a template takes texts: its system messages, and content as text or as parts."""
    form = Form(system=False)
    for role, talk in (("user", _talk("user")), ("assistant", _talk("user", "assistant", "user"))):
        in_parts = dataclasses.replace(form, parts=form.parts | {role})
        if not _arrives(ask, form, talk) and _arrives(ask, in_parts, talk):
            form = in_parts
    for more in ((), ("system",)):
        own = dataclasses.replace(form, system=True, parts=form.parts.union(more))
        if _arrives(ask, own, _talk("system", "user")):
            return own
    return form


def calling_form(ask: Ask, plain: Form, *, declared: bool) -> Form:
    """Return how a template takes tools, calls and results besides.

    Args:
        plain: see ``plain_form``.
        declared: whether the template is the one that its publisher gives for tools.

    """
    form = dataclasses.replace(plain, tools=VARIABLE if declared else None, declared=declared)
    for tools, bare in ((VARIABLE, False), (VARIABLE, True), (IN_SYSTEM, False)):
        tried = dataclasses.replace(plain, tools=tools, bare_system=bare)
        if plain.system or not (bare or tools == IN_SYSTEM):
            text = ask(*tried.shaped(_talk("user"), [_TOOL]))
            if all(mark in text for mark in (_NAME, _KEY, "zq0user")):
                form = tried
                break
    return _with_calls(ask, form)


def _with_calls(ask: Ask, form: Form) -> Form:
    """Return the form with calls and results; the first in which arguments are JSON, or any."""
    tools, possible = [_TOOL] if form.tools else None, None
    for short, nothing, calls, parts in itertools.product(
        (False, True), NOTHING, (OBJECT, TEXT), (form.parts, form.parts | {"tool"})
    ):
        tried = dataclasses.replace(
            form, calls=calls, results=True, nothing=nothing, short_ids=short, parts=parts
        )
        text = ask(*tried.shaped(_calling(), tools))
        if not all(mark in text for mark in (_NAME, _KEY, _VALUE)):
            continue
        if _RESULT not in text:
            if parts == form.parts:
                continue  # as parts, then
            tried = dataclasses.replace(tried, results=False, parts=form.parts)
        # Python's own spelling of an object, or a text within a text, is not what was trained.
        if f"'{_KEY}'" not in text and f'\\"{_KEY}' not in text:
            return tried
        possible = possible or tried
    return possible or form


def _talk(*roles: str) -> list[Message]:
    return [{"role": role, "content": f"zq{at}{role}"} for at, role in enumerate(roles)]


def _calling() -> list[Message]:
    call = {"id": _IDS[0], "type": "function",
            "function": {"name": _NAME, "arguments": {_KEY: _VALUE}}}  # fmt: skip
    return [
        *_talk("user"),
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": _RESULT, "tool_call_id": _IDS[0], "name": _NAME},
    ]


def arrives(ask: Ask, form: Form) -> bool:
    """Return whether a user's message does."""
    return _arrives(ask, form, _talk("user"))


def _arrives(ask: Ask, form: Form, talk: Sequence[Message]) -> bool:
    text = ask(*form.shaped(talk, None)).lower()
    return all(one["content"] in text for one in talk)


# -- one conversation -----------------------------------------------------------------------------


def shape_of(talk: Sequence[Message]) -> tuple[Any, ...]:
    """Return what decides, apart from the words, where the parts of a conversation go."""
    return tuple(
        (one["role"], bool(one["content"]), len(one.get("tool_calls", ()))) for one in talk
    )


def left_out(ask: Ask, form: Form, talk: Sequence[Message], *, tools: bool) -> list[str] | None:
    """Return the parts of a conversation that do not arrive, as the API names them.

    None if the template refuses it.

    Args:
        talk: checked messages.
        tools: whether tools are to be listed as well.

    """
    marked, marks = [], dict[str, str]()
    for place, one in enumerate(talk):
        found: Message = {**one, "content": f"zq{place}content" if one["content"] else ""}
        if one["content"]:
            marks[f"messages[{place}].content"] = found["content"]
        if calls := one.get("tool_calls"):
            found["tool_calls"] = [
                {**call, "function": {**call["function"], "arguments": {"k": f"zq{place}c{at}z"}}}
                for at, call in enumerate(calls)
            ]
            marks |= {f"messages[{place}].tool_calls[{at}]": f"zq{place}c{at}z"
                      for at in range(len(calls))}  # fmt: skip
        marked.append(found)
    if tools and form.tools and not form.declared and talk[-1]["role"] == "user":
        marks["tools"] = _NAME
    text = ask(*form.shaped(marked, [_TOOL] if tools else None)).lower()
    return None if not text else [name for name, mark in marks.items() if mark.lower() not in text]
