"""Prompts of three kinds, or of a file: the same text for every peer."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.questions import has_turns, read_questions
from benchmarks.workloads import random_prompts
from edgedec._support.fields import json_object
from edgedec.batch.jobs import read_jobs
from edgedec.errors import InputError
from edgedec.models.demo.heldout import heldout_prompts
from edgedec.text.tokenizer import Tokenizer

# With it, the prompt and 128 tokens fit every peer's cache of 1024.
LONGEST = 512
SHARED = "EDGEDEC_SHARED_DATA"
_QUESTIONS = Path("spec_bench", "question.jsonl")
_FUNCTIONS = Path("humaneval", "problems.jsonl")
# Spec-Bench reports these categories of MT-bench as one.
CONVERSATION = "conversation"
_MT_BENCH = frozenset(
    ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")
)


@dataclass(frozen=True, slots=True)
class Text:
    """A prompt.

    Attributes:
        kind: ``code``, ``chat``, ``unpredictable`` or ``file``; or a category.
        name: of the prompt, unique in its kind.
        text: what every peer is given.
        ids: its tokens, for peers that take tokens.

    """

    kind: str
    name: str
    text: str
    ids: tuple[int, ...]

    @property
    def digest(self) -> str:
        """Return a hash that distinguishes texts of one name in the records."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]


class NoTexts(Exception):
    """Texts of a kind are not here; the message says why."""


def code(count: int, tokenizer: Tokenizer) -> list[Text]:
    """Return held-out function heads."""
    named = ((prompt.name, prompt.text) for prompt in heldout_prompts(10 * count))
    return _fitting("code", named, count, tokenizer)


def chat(count: int, tokenizer: Tokenizer) -> list[Text]:
    """Return first turns of Spec-Bench's chats, or raise NoTexts."""
    folder = os.environ.get(SHARED)
    if not folder:
        raise NoTexts(f"set {SHARED} to a folder with {_QUESTIONS}")
    file = Path(folder) / _QUESTIONS
    if not file.is_file():
        raise NoTexts(f"{file} is missing")
    turns = list(_first_turns(file))
    random.Random(0).shuffle(turns)
    rendered = ((name, _as_chat(turn, tokenizer)) for name, turn in turns)
    return _fitting("chat", rendered, count, tokenizer)


def unpredictable(count: int, tokenizer: Tokenizer) -> list[Text]:
    """Return random tokens, as text: what no draft can predict at first."""
    drawn = random_prompts(count, tokenizer.vocab_size)
    texts = (tokenizer.decode(ids).replace("\ufffd", "").strip() for ids in drawn)
    named = ((f"random {number}", text) for number, text in enumerate(texts))
    return _fitting("unpredictable", named, count, tokenizer)


KINDS: dict[str, Callable[[int, Tokenizer], list[Text]]] = {
    "code": code,
    "chat": chat,
    "unpredictable": unpredictable,
}
# Kinds by the names that earlier records give them.
FORMER = {"hopeless": "unpredictable"}


def categories(count: int, tokenizer: Tokenizer, file: Path | None, longest: int) -> list[Text]:
    """Return ``count`` texts of each category: Spec-Bench's six, and functions of HumanEval.

    ``file`` has others: questions with turns, by their categories, or prompts. Raise NoTexts.
    """
    if file is not None:
        return _of_categories(file, count, tokenizer, longest)
    folder = os.environ.get(SHARED)
    files = [Path(folder or "", one) for one in (_QUESTIONS, _FUNCTIONS)]
    if folder is None or not all(one.is_file() for one in files):
        names = " and ".join(map(str, (_QUESTIONS, _FUNCTIONS)))
        raise NoTexts(f"give --prompts FILE, or set {SHARED} to a folder with {names}")
    return [one for file in files for one in _of_categories(file, count, tokenizer, longest)]


def _of_categories(file: Path, count: int, tokenizer: Tokenizer, longest: int) -> list[Text]:
    named: dict[str, list[tuple[str, str]]] = {}
    if has_turns(file):
        for question in read_questions(file):
            kind = CONVERSATION if question.category in _MT_BENCH else question.category
            named.setdefault(kind, []).append((question.id, _as_chat(question.turns[0], tokenizer)))
    else:
        named["code" if file.name == _FUNCTIONS.name else file.stem] = [
            (job.id, job.prompt) for job in read_jobs(file) if isinstance(job.prompt, str)
        ]
    for some in named.values():
        random.Random(0).shuffle(some)
    return [
        text
        for kind, some in named.items()
        for text in _fitting(kind, some, count, tokenizer, longest)
    ]


def from_file(path: Path, count: int, tokenizer: Tokenizer) -> list[Text]:
    """Return the prompts of a file with one JSON object per line, each with ``prompt``."""
    jobs = read_jobs(path)
    for job in jobs:
        if not isinstance(job.prompt, str) or not job.prompt.strip():
            raise InputError(f'{path}: {job.id}: expected "prompt" to be a text that is not empty')
    return _fitting("file", ((job.id, str(job.prompt)) for job in jobs), count, tokenizer)


def _first_turns(file: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
        found = json_object(line) or {}
        turns = found.get("turns")
        if not (isinstance(turns, list) and turns and isinstance(turns[0], str)):
            raise InputError(
                f'{file}:{number}: expected a JSON object with "turns", a list of texts'
            )
        yield f"question {found.get('question_id', number)}", turns[0]


def _as_chat(turn: str, tokenizer: Tokenizer) -> str:
    """Return a user's turn in the form of the tokenizer's chat template, if it has one."""
    template = tokenizer.chat_template
    if template is None:
        return turn
    text = template.render([{"role": "user", "content": turn}])
    # Every peer's tokenizer adds the first token where ours does.
    adds = tokenizer.bos_id is not None and tokenizer.encode("a")[0] == tokenizer.bos_id
    return text.removeprefix(tokenizer.bos_token or "") if adds else text


def _fitting(
    kind: str,
    named: Iterable[tuple[str, str]],
    count: int,
    tokenizer: Tokenizer,
    longest: int = LONGEST,
) -> list[Text]:
    """Return the first texts that are short enough."""
    found: list[Text] = []
    for name, text in named:
        # llama.cpp's programs drop the end of the last line.
        text = text.rstrip("\n")
        ids = tuple(tokenizer.encode(text))
        if 1 < len(ids) <= longest and len(found) < count:
            found.append(Text(kind, name, text, ids))
    if not found:
        raise InputError(f"no text of the kind {kind} has 2 to {longest} tokens")
    return found
