"""Chat templates in the manner of the large families, and which of them have pieces."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgedec.text.chat import ChatTemplate

_FOLDER = Path(__file__).with_name("templates")


@dataclass(frozen=True, slots=True)
class Sample:
    """A template, in a file of its name.

    Attributes:
        source: Jinja.
        pieces: whether pieces can say what it does.
        system: whether they take a system message.
        bos, eos: given to it.

    """

    source: str
    pieces: bool = True
    system: bool = True
    bos: str = ""
    eos: str = ""

    @property
    def template(self) -> ChatTemplate:
        """The template, ready to render."""
        return ChatTemplate(self.source, bos_token=self.bos, eos_token=self.eos)


def _sample(
    name: str, *, pieces: bool = True, system: bool = True, bos: str = "", eos: str = ""
) -> Sample:
    return Sample((_FOLDER / f"{name}.jinja").read_text("utf-8"), pieces, system, bos, eos)


_LLAMA3 = "<|begin_of_text|>"

SAMPLES = {
    "chatml": _sample("chatml"),
    # Without a system message there is one of the model's own.
    "qwen2": _sample("qwen2"),
    # Earlier answers lose their thinking.
    "qwen3": _sample("qwen3"),
    "llama3": _sample("llama3", bos=_LLAMA3),
    # The system's turn is always there, with dates in front of the message.
    "llama31": _sample("llama31", bos=_LLAMA3),
    # With the date of the day: tomorrow's pieces would be others.
    "llama32": _sample("llama32", pieces=False, bos=_LLAMA3),
    "gemma2": _sample("gemma2", system=False, bos="<bos>"),
    # The system message comes first in the first user's turn, with its white space.
    "gemma3": _sample("gemma3", bos="<bos>"),
    "phi3": _sample("phi3"),
    # Alternating turns that a system message breaks.
    "mistral1": _sample("mistral1", bos="<s>", eos="</s>"),
    # The system message stands in the first user's brackets.
    "mistral2": _sample("mistral2", bos="<s>", eos="</s>"),
    # The system message stands in the last user's brackets: pieces without system messages.
    "mistral3": _sample("mistral3", system=False, bos="<s>", eos="</s>"),
    # BOS at the beginning of every user's turn.
    "llama2": _sample("llama2", system=False, bos="<s>", eos="</s>"),
    # What pieces cannot say: numbered turns, changed contents, another prompt in long talks.
    "numbered": _sample("numbered", pieces=False),
    "escaped": _sample("escaped", pieces=False),
    "first-only": _sample("first-only", pieces=False),
}
