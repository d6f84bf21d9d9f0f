"""Pipelines over models that think, in the manner of Qwen3, DeepSeek-R1, Gemma 4 and gpt-oss.

The templates are written for these tests. The models are tables behind random noise: what they
write next depends on what they have written in this turn, whoever put it there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tiny_tokenizers
from tiny_checkpoints import scripted_checkpoint
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from edgedec import Pipeline
from edgedec.decoding import acceptance, drafting
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.engine import Engine
from edgedec.decoding.policy import Fixed
from edgedec.decoding.tree import FloatArray
from edgedec.hardware.clock import WallClock
from edgedec.loading.open_pair import OpenPair
from edgedec.loading.sources import Pair, Source
from edgedec.overlap.engine import LookaheadDrafter, OverlappedEngine
from edgedec.overlap.lookahead import Lookahead
from edgedec.testing import FakeModel
from edgedec.text.thinking import text_of
from edgedec.text.tokenizer import Tokenizer

THOUGHTS = [" first", " then", " so", " add", " left", " right"]
ANSWER = ["The", " answer", " is", " 42"]
QWEN = (
    "{% for m in messages %}{% set text = m.content %}"
    "{% if m.role == 'assistant' %}"
    "{% set text = text.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "{{ '<|turn|>' + m.role + '\n' + text + '<|close|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|turn|>assistant\n' }}"
    "{% if enable_thinking is defined and enable_thinking is false %}"
    "{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}"
)
# Also keeps the thinking of earlier answers, as templates of agents do.
KEEPS = QWEN.replace(
    "+ text +",
    "+ ('<think>' + m.reasoning_content + '</think>' if m.reasoning_content else '') + text +",
)
DEEPSEEK = (
    "{% for m in messages %}{% set text = m.content %}"
    "{% if '</think>' in text %}{% set text = text.split('</think>')[-1] %}{% endif %}"
    "{{ '<|turn|>' + m.role + text }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|turn|>assistant<think>\n' }}{% endif %}"
)
GEMMA = (
    "{% if enable_thinking %}{{ '<|turn>system\n<|think|><turn|>\n' }}{% endif %}"
    "{% for m in messages %}"
    "{{ '<|turn>' + m.role + '\n' + m.content.split('<channel|>')[-1] + '<turn|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|turn>assistant\n' }}"
    "{% if enable_thinking is false %}{{ '<|channel>thought\n<channel|>' }}{% endif %}{% endif %}"
)
HARMONY = (
    "{{ '<|start|>system<|message|>Reasoning: ' + (reasoning_effort or 'medium') + '<|end|>' }}"
    "{% for m in messages %}{% set channel = '<|channel|>final' if m.role == 'assistant' else '' %}"
    "{{ '<|start|>' + m.role + channel + '<|message|>' + m.content + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"
)


@dataclass(frozen=True)
class Manner:
    """How a family marks its thinking.

    Attributes:
        template: of its conversations.
        user, assistant: what begins their messages.
        opens, closes: what the model writes around its thoughts.
        tokens: added to the vocabulary; those in ``special`` as special ones.

    """

    template: str
    user: str
    assistant: str
    opens: str
    closes: str
    tokens: Sequence[str]
    special: Sequence[str] = ()

    def tokenizer(self) -> Tokenizer:
        backend = Backend.from_str(tiny_tokenizers.byte_level().to_str())
        words = [*self.tokens, "assistant", "\n\n", *THOUGHTS, *ANSWER]
        backend.add_special_tokens([AddedToken(w) for w in ("<|return|>", *self.special)])
        backend.add_tokens([AddedToken(word) for word in words])
        return Tokenizer(backend, {"eos_token": "<|return|>", "chat_template": self.template})


_TURNS = "<|turn|>user", "<|turn|>assistant"
_TAGS = "<think>\n", "</think>\n\n"
_MARKS = "<|turn|>", "<think>", "</think>"
MANNERS = {
    "qwen": Manner(QWEN, *_TURNS, *_TAGS, _MARKS),
    "deepseek": Manner(DEEPSEEK, *_TURNS, *_TAGS, _MARKS),
    "harmony": Manner(
        HARMONY, "<|start|>user", "<|start|>assistant", "<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>", ("analysis", "final"),
        ("<|start|>", "<|channel|>", "<|message|>", "<|end|>"),
    ),
    "gemma": Manner(
        GEMMA, "<|turn>user", "<|turn>assistant", "<|channel>thought\n", "<channel|>",
        ("thought", "\n"), ("<|turn>", "<turn|>", "<|think|>", "<|channel>", "<channel|>"),
    ),
    "spelled": Manner(QWEN, *_TURNS, *_TAGS, ("<|turn|>",)),
}  # fmt: skip


class Thinker(FakeModel):
    """Writes a turn: what opens the thinking, thoughts, what closes it, the answer, an end.

    Args:
        tokenizer, manner: of the model.
        certainty: how far the next token of the turn stands out of the noise.

    """

    def __init__(self, tokenizer: Tokenizer, manner: Manner, certainty: float) -> None:
        self._eos, self._tokenizer, self._manner = tokenizer.eos_id, tokenizer, manner
        assert self._eos is not None
        size = tokenizer.vocab_size
        super().__init__(size, sharpness=1.0, eos_ids=(self._eos,), max_context=1024)
        self._certainty = certainty

    def logits(self, tokens: Sequence[int]) -> FloatArray:
        row = super().logits(tokens)
        wanted = self._wanted(text_of(self._tokenizer, tokens))
        ids = self._tokenizer.encode(wanted, add_special_tokens=False) if wanted else [self._eos]
        row[ids[0]] += self._certainty
        return row

    def _wanted(self, text: str) -> str:
        """What comes next in the turn; empty at its end."""
        manner = self._manner
        turn = text.rpartition(manner.user)[2].partition(manner.assistant)[2]
        thought, closed, after = turn.partition(manner.closes)
        if closed:
            return next(iter(ANSWER[_said(ANSWER, after) :]), "")
        if manner.closes.rstrip() in turn:
            return _rest(manner.closes, turn)
        opened, found, thought = thought.partition(manner.opens)
        if not found:
            return _rest(manner.opens, opened)
        left = THOUGHTS[_said(THOUGHTS, thought) :]
        begun = len(_rest(manner.closes, thought)) < len(manner.closes)
        return left[0] if left and not begun else _rest(manner.closes, thought)


def _said(words: Sequence[str], text: str) -> int:
    return sum(text.count(word) for word in words)


def _rest(whole: str, text: str) -> str:
    """What is missing of a text of which another ends with a part."""
    got = next(k for k in range(len(whole), -1, -1) if text.endswith(whole[:k]))
    return whole[got:]


class _Ways:
    """A pipeline's only configuration: models that are open."""

    notes = ()

    def __init__(self, parts: OpenPair) -> None:
        self._parts = parts

    def open(self) -> OpenPair:
        return self._parts


def thinking_pipeline(
    manner: str | Manner,
    *,
    drafter: str = "model",
    certainty: float = 14.0,
    generation: Mapping[str, Any] | None = None,
    capacity: int = 512,
    parallel: int = 1,
) -> Pipeline:
    """A pipeline whose draft is much like its target."""
    if isinstance(manner, str):
        manner = MANNERS[manner]
    tokenizer = manner.tokenizer()
    model = Thinker(tokenizer, manner, certainty)
    draft = FakeModel(tokenizer.vocab_size, seed=1, like=(model, 0.8), max_context=1024)

    def engine() -> Engine:
        rule = acceptance.rule("coupling")
        if drafter == "overlapped":
            clock = WallClock()
            ahead = Lookahead(DrafterParts(tokenizer.vocab_size, draft.open(capacity)), clock)
            drafting_ahead = LookaheadDrafter(ahead, clock)
            return OverlappedEngine(model.open(capacity), drafting_ahead, Fixed(4), rule, clock)
        built = drafting.create(drafter, DrafterParts(tokenizer.vocab_size, draft.open(capacity)))
        policy = Fixed(0) if drafter == "none" else Fixed(4)
        return Engine(model.open(capacity), built, policy, rule)

    source = Source(
        "target", "onnx", Path("thinker"), {}, lambda: tokenizer, lambda: None,
        generation=generation or {},
    )  # fmt: skip
    plan = {"drafter": drafter, "draft_length": 4, "max_context": capacity, "lossless": True}
    plan |= {"schedule": "sequential", "threads": 1, "accept": "coupling"}
    first, *others = [engine() for _ in range(parallel)]
    pair = Pair("thinker", source, None, None, shared_tokenizer=True)
    stack = ExitStack()
    for one in (first, *others):
        stack.callback(one.drafter.close)
    parts = OpenPair(pair, model, first, tokenizer, plan, stack, "trained")  # type: ignore[arg-type]
    parts.parallel_engines = others
    return Pipeline(_Ways(parts))  # type: ignore[arg-type]


# What a small real model writes: one token after the other, whatever stands before.
_SCRIPT = ["<|turn|>assistant\n", "<think>", " first", " then", "</think>", "\n\n", *ANSWER]


def thinking_checkpoint(folder: Path, generation: Mapping[str, Any] | None = None) -> Path:
    """A checkpoint in the manner of Qwen3, with a ``generation_config.json``."""
    entries = {"eos_token": "<|end|>", "chat_template": QWEN}
    scripted_checkpoint(folder, _SCRIPT, context=512, entries=entries)
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation), "utf-8")
    return folder
