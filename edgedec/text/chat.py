"""Renders chat templates, untrusted Jinja programs that come with a model.

A child process with limits on its memory and time (see ``sandbox``) renders them; it starts with
the first conversation and stays for the next turns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from edgedec._support.fields import one_line
from edgedec._support.sandbox import Limits, Refused, Sandbox, Stopped
from edgedec.errors import BundleError, EdgedecError, InputError
from edgedec.text import template_form
from edgedec.text.template_form import Form

MAX_SOURCE = 256 << 10
MAX_CHARS = 4_000_000
# Python and Jinja take 25 MiB of address space; a text of MAX_CHARS and its answer at most 100. A
# turn takes a millisecond or two; on a slow device and in a long conversation perhaps fifty.
LIMITS = Limits(memory_bytes=160 << 20, cpu_s=1.0, wall_s=10.0, answer_bytes=5 * MAX_CHARS)
# Variables of templates that switch thinking, and the one that says how much.
SWITCHES, EFFORT = ("enable_thinking", "thinking"), "reasoning_effort"
# Templates by name that serve conversations with tools, and with documents.
TOOL_USE, RAG = "tool_use", "rag"
_QUESTION = [{"role": "user", "content": "Hi"}]
# What shows where a message ends that is continued; the space after it, whether templates trim.
_MARK = "ZqContinuedHere"
# Shapes of conversations whose answer is kept.
_SHAPES = 256
_IDLE_S = 600.0
_CHILD = Sandbox("edgedec.text._template_child", idle_s=_IDLE_S)


class ChatTemplate:
    """A chat template, compiled at its first use.

    Args:
        source: Jinja source, as ``tokenizer_config.json`` holds it; kept as ``source``.
        bos_token, eos_token: given to the template under these names; the first is kept.
        named: other templates of the model: ``tool_use`` serves conversations with tools, ``rag``
            those with documents.
        tokens: more special tokens by name, for the template.

    Raises:
        BundleError: it is too large.

    """

    def __init__(
        self,
        source: str,
        *,
        bos_token: str = "",
        eos_token: str = "",
        named: Mapping[str, str] | None = None,
        tokens: Mapping[str, Any] | None = None,
    ) -> None:
        if len(source) > MAX_SOURCE:
            raise BundleError(f"the chat template: expected at most {MAX_SOURCE} characters")
        self.source = source
        self.bos_token = bos_token
        self._tokens = {**(tokens or {}), "bos_token": bos_token, "eos_token": eos_token}
        self._named = {
            name: ChatTemplate(text, bos_token=bos_token, eos_token=eos_token, tokens=tokens)
            for name, text in (named or {}).items()
            if name in (TOOL_USE, RAG)
        }
        self._declared = False
        if TOOL_USE in self._named:
            self._named[TOOL_USE]._declared = True
        self._absent: dict[str, None] = dict.fromkeys(("tools", "documents"))
        self._switches: bool | None = None
        self._forms: dict[bool, Form] = {}
        self._left_out: dict[Any, tuple[Form, list[str]]] = {}

    # -- what it does, found by rendering ----------------------------------------------------------

    @property
    def switches_thinking(self) -> bool | None:
        """True if the template can switch thinking off: its text depends on the variables.

        None if it was stopped before that was known; it is rendered again when next asked.
        """
        if self._switches is None:
            on_and_off = ({"variables": thinking(one)} for one in (True, False))
            self._switches = self._differs(self.render, *on_and_off)
        return self._switches

    @property
    def reads_effort(self) -> bool | None:
        """As ``switches_thinking``, for how much to think."""
        return self._differs(
            self.render, *({"variables": {EFFORT: one}} for one in ("low", "high"))
        )

    @property
    def dated(self) -> bool | None:
        """As ``switches_thinking``, for the day on which it is rendered."""
        return self._differs(self._conversation, {"now": 1e9}, {"now": 1.6e9})

    @property
    def takes_tools(self) -> bool | None:
        """As ``switches_thinking``: whether tools reach the model, listed or described."""
        tool = {"type": "function", "function": {"name": "look_up", "parameters": {}}}
        return self._differs(self.render, {}, {"tools": [tool]})

    @property
    def reads_documents(self) -> bool | None:
        """As ``switches_thinking``, for documents to answer from."""
        documents = {"documents": [{"title": "A", "text": "B"}]}
        return self._differs(self.render, {}, {"variables": documents})

    def _differs(self, render: Callable[..., str], *options: dict[str, Any]) -> bool | None:
        try:
            return len({render(_QUESTION, **one) for one in options}) > 1
        except InputError:  # its own answer to these messages, which stays the same
            return False
        except EdgedecError:
            return None

    def marks(self, opening: str, closing: str) -> bool:
        """Return whether the template writes marks of thinking, or takes out what they mark.

        Raises:
            BundleError: it was stopped before that was known.

        """
        answer = {"role": "assistant", "content": f"zqthought{closing}zqanswer"}
        known = {"role": "assistant", "content": "zqanswer", "reasoning_content": "zqthought"}
        tried = [(_QUESTION, thinking(one)) for one in (True, False)]
        tried += [([*_QUESTION, known], {}), ([*_QUESTION, known, *_QUESTION], {})]
        texts = [self._text_or_nothing(talk, variables) for talk, variables in tried]
        if any(mark in text for text in texts for mark in (opening, closing)):
            return True
        text = self._text_or_nothing([*_QUESTION, answer, *_QUESTION], {})
        return "zqanswer" in text and "zqthought" not in text

    def _text_or_nothing(self, talk: list[dict[str, Any]], variables: dict[str, Any]) -> str:
        try:
            return self._conversation(talk, None, variables)
        except InputError:
            return ""

    def _for(self, tools: Any, variables: Mapping[str, Any] | None) -> ChatTemplate:
        """Return the model's template for a conversation with these."""
        name = TOOL_USE if tools else RAG if (variables or {}).get("documents") else ""
        return self._named.get(name, self)

    def _form(self, talk: Sequence[dict[str, Any]], tools: Any) -> Form:
        """Return the template's form, without looking at calls where there are none."""
        calling = bool(tools) or any(one["role"] == "tool" or "tool_calls" in one for one in talk)
        if False not in self._forms:
            self._forms[False] = self._plain_form()
        if calling and True not in self._forms:
            self._forms[True] = template_form.calling_form(
                self._tried, self._forms[False], declared=self._declared
            )
        return self._forms[calling]

    def _plain_form(self) -> Form:
        """Return the form of texts, and learn how tools that are not there are given.

        Transformers gives None, and others leave the variable out; templates expect either.
        """
        found = template_form.plain_form(self._tried)
        if not template_form.arrives(self._tried, found):
            self._absent = {}
            other = template_form.plain_form(self._tried)
            if template_form.arrives(self._tried, other):
                return other
            self._absent = dict.fromkeys(("tools", "documents"))
        return found

    def _tried(self, messages: Sequence[dict[str, Any]], tools: Any) -> str:
        try:
            return self._rendered(messages, tools)
        except InputError:
            return ""

    def left_out(
        self, messages: Any, tools: Sequence[Mapping[str, Any]] | None = None
    ) -> list[str]:
        """Return the text beside calls that the template leaves out, as the API names it.

        Args:
            messages, tools: see ``render``.

        Raises:
            InputError: the template leaves out something else, which is named.

        """
        talk = check_messages(messages)
        _, lost = self._for(tools, None)._tried_forms(talk, tools)
        for name in lost:
            if not _is_beside(name, talk):
                raise InputError(
                    f"{name}: the model's chat template leaves it out of this conversation: send it"
                    " another way, such as in the user's last message"
                )
        return lost

    def _tried_forms(self, talk: list[dict[str, Any]], tools: Any) -> tuple[Form, list[str]]:
        """Return the form of one conversation, and the parts that it leaves out."""
        form, shape = self._form(talk, tools), (template_form.shape_of(talk), bool(tools))
        if shape not in self._left_out:
            tried = [form]
            if any(one["role"] == "system" for one in talk):  # which may stand in between
                tried.append(dataclasses.replace(form, system=False))
            if any(len(one.get("tool_calls", ())) > 1 for one in talk):
                tried += [dataclasses.replace(one, single=True) for one in tried]
            found = [
                (one, template_form.left_out(self._tried, one, talk, tools=bool(tools)))
                for one in tried
            ]
            taken = [(one, lost) for one, lost in found if lost is not None]
            if len(self._left_out) >= _SHAPES:
                self._left_out.clear()
            self._left_out[shape] = min(taken, key=lambda one: len(one[1]), default=(form, []))
        return self._left_out[shape]

    # -- a conversation ----------------------------------------------------------------------------

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the conversation as the model was trained to read it.

        Args:
            messages: objects with ``role`` and ``content``, a text or a list of parts with texts.
                The thinking before an answer is its ``reasoning_content``, which many templates
                leave out.
            add_generation_prompt: end with the beginning of the assistant's turn.
            continue_final_message: end within the last message instead.
            tools: functions that the model may call, as JSON schemas.
            variables: of the template's own, such as ``enable_thinking``.

        Raises:
            InputError: the messages are not as expected, or the template refuses them.
            BundleError: the template is not Jinja, or exceeds its limits.

        """
        talk = check_messages(messages)
        if continue_final_message:
            return self._continued(talk, tools, variables)
        return self._conversation(talk, tools, variables, ending=add_generation_prompt)

    def _continued(self, talk: list[dict[str, Any]], tools: Any, variables: Any) -> str:
        """Return a conversation up to the last message's end, which a mark shows."""
        last = talk[-1]
        if not last["content"] or "tool_calls" in last:
            raise InputError("continue_final_message: expected a last message with text alone")
        marked = [*talk[:-1], {**last, "content": f"{last['content']}{_MARK} "}]
        text, found, rest = self._conversation(marked, tools, variables, ending=False).rpartition(
            _MARK
        )
        if not found:
            raise InputError("continue_final_message: the chat template leaves the last one out")
        return text if rest.startswith(" ") else text.rstrip()

    def _conversation(
        self,
        talk: list[dict[str, Any]],
        tools: Any = None,
        variables: Any = None,
        *,
        ending: bool = True,
        now: float | None = None,
    ) -> str:
        one = self._for(tools, variables)
        form, _ = one._tried_forms(talk, tools)
        shaped, listed = form.shaped([_both_names(message) for message in talk], tools)
        return one._rendered(shaped, listed, ending=ending, variables=variables, now=now)

    def _rendered(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Any = None,
        *,
        ending: bool = True,
        variables: Mapping[str, Any] | None = None,
        now: float | None = None,
    ) -> str:
        """Return what the template makes of these, as they are."""
        given = {
            **self._absent,
            **(variables or {}),
            "messages": list(messages),
            **({"tools": list(tools)} if tools else {}),
            "add_generation_prompt": ending,
            **self._tokens,
        }
        task = {"source": self.source, "variables": given, "max_chars": MAX_CHARS, "now": now}
        try:
            text = _CHILD.ask(task, LIMITS)
        except Stopped as error:
            raise BundleError(f"the chat template was stopped: {error}") from None
        except Refused as error:
            if error.kind == "source":
                raise BundleError(f"the chat template is not Jinja: {error}") from None
            raise InputError(f"the chat template refuses these messages: {error}") from None
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"messages: expected JSON values only: {error}") from None
        return str(text)


def _is_beside(name: str, talk: Sequence[dict[str, Any]]) -> bool:
    """Return whether a part is the text of a message that has calls as well."""
    place, _, part = name.removeprefix("messages[").partition("]")
    return part == ".content" and "tool_calls" in talk[int(place)]


def thinking(think: bool | None, effort: str | None = None) -> dict[str, Any]:
    """Return the variables, as templates name them, that ask a model to think, or not to.

    Args:
        think: None leaves it to the template.
        effort: such as ``low``; None likewise.

    """
    switch = {} if think is None else dict.fromkeys(SWITCHES, think)
    return switch | ({} if effort is None else {EFFORT: effort})


def _both_names(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message whose thinking has both names that templates read."""
    thought = message.get("reasoning_content")
    return message if thought is None else {"thinking": thought, **message}


def ending(
    messages: Any, add_generation_prompt: bool | None, continue_final_message: bool | None
) -> dict[str, bool]:
    """Return how a conversation ends: an assistant's last text is continued unless asked otherwise.

    Raises:
        InputError: both are asked for.

    """
    if continue_final_message and add_generation_prompt:
        raise InputError(
            "continue_final_message and add_generation_prompt exclude each other: leave one out"
        )
    last = check_messages(messages)[-1]
    unfinished = last["role"] == "assistant" and bool(last["content"]) and "tool_calls" not in last
    if continue_final_message is None:
        continue_final_message = unfinished and add_generation_prompt is None
    return {
        "continue_final_message": continue_final_message,
        "add_generation_prompt": add_generation_prompt is not False,
    }


def check_messages(messages: Any) -> list[dict[str, Any]]:
    """Return a checked copy of messages, whose ``role`` and ``content`` are texts; or InputError.

    Parts are joined, and what is null or an empty list counts as absent.
    """
    if not isinstance(messages, (list, tuple)) or not messages:
        raise InputError('messages: expected a list such as [{"role": "user", "content": "Hi"}]')
    return [_checked(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _checked(message: Any, where: str) -> dict[str, Any]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise InputError(f"{where}: expected an object with text role and content")
    found = {name: value for name, value in message.items() if value is not None and value != []}
    content = message.get("content")
    if content is None and "tool_calls" in found:
        content = ""
    if isinstance(content, (list, tuple)):
        content = "".join(_part(one, f"{where}.content[{at}]") for at, one in enumerate(content))
    if not isinstance(content, str):
        raise InputError(f"{where}: expected an object with text role and content")
    if "tool_calls" in found:
        found["tool_calls"] = [_call(one, where) for one in found["tool_calls"]]
    return {**found, "content": content}


def _part(given: Any, where: str) -> str:
    """Return the text of a part of a content, or raise InputError."""
    text = given.get("text") if isinstance(given, Mapping) else None
    kind = given.get("type", "text") if isinstance(given, Mapping) else type(given).__name__
    if isinstance(text, str):
        return text
    raise InputError(
        f"{where}: a part of type {one_line(str(kind))[:60]!r}: expected"
        ' {"type": "text", "text": "..."}, this model reads text alone'
    )


def _call(given: Any, where: str) -> dict[str, Any]:
    function = given.get("function", given) if isinstance(given, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise InputError(f"{where}.tool_calls: expected calls of functions by name")
    own = given if function is not given else {}
    arguments = function.get("arguments")
    if arguments is None or arguments == "":  # of a function without parameters
        arguments = {}
    return {**own, "function": {**function, "arguments": arguments}}
