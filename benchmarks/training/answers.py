# SPDX-License-Identifier: Apache-2.0
"""A target's own answers, many at once, by llama.cpp. What is written stays when it is stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from benchmarks.training.questions import Question

# One in three answers is greedy, one nearly, and one as chats are sampled.
TEMPERATURES = (0.0, 0.2, 0.7)
TOP_K = 200
LONGEST = 160  # tokens of an answer
CONTEXT = 640  # of a chat
PROMPTS = 1024  # tokens of prompts in a pass, at most


@dataclass
class Answer:
    """One that is being written; ``ids`` has the prompt, too."""

    number: int
    kind: str
    prompt: int
    ids: list[int] = field(default_factory=list)

    @property
    def temperature(self) -> float:
        return TEMPERATURES[self.number % len(TEMPERATURES)]

    def line(self) -> str:
        return json.dumps(
            {"i": self.number, "kind": self.kind, "n": self.prompt, "T": self.temperature}
            | {"ids": self.ids}
        )


def answered(file: Path) -> set[int]:
    """Return the numbers of the questions that a file answers."""
    if not file.exists():
        return set()
    lines = file.read_text("utf-8").splitlines()
    return {json.loads(line)["i"] for line in lines if line.endswith("}")}


def draw(logits: npt.NDArray[np.float32], temperature: float, rng: np.random.Generator) -> int:
    """Return a token of the ``TOP_K`` most likely; the likeliest at temperature 0."""
    if temperature == 0:
        return int(logits.argmax())
    top = (
        np.argpartition(logits, -TOP_K)[-TOP_K:] if logits.size > TOP_K else np.arange(logits.size)
    )
    weights = np.exp((logits[top] - logits[top].max()) / temperature)
    return int(top[rng.choice(top.size, p=weights / weights.sum())])


def answer_all(
    model: Path, questions: Sequence[Question], out: Path, *, slots: int = 24, threads: int = 1
) -> None:
    """Append the answers of a GGUF model to a file of JSON lines, until all are there.

    Args:
        model: with a chat template.
        questions: those that the file answers already are left out.
        out: of each answer, "ids" (prompt and answer), "n" (tokens of the prompt), "T" (its
            temperature), "kind" and "i" (the number of its question).
        slots: answers that are written at the same time.
        threads: of llama.cpp.

    """
    done = answered(out)
    if out.exists() and not out.read_text("utf-8").endswith("\n"):  # it was stopped in a line
        whole = out.read_text("utf-8").rpartition("\n")
        out.write_text(whole[0] + whole[1], "utf-8")
    waiting = [number for number in range(len(questions)) if number not in done]
    with out.open("a", encoding="utf-8") as file:
        _Writer(model, questions, slots, threads).run(waiting, file)


class _Writer:
    """The context of llama.cpp with a sequence for each slot."""

    def __init__(
        self, model: Path, questions: Sequence[Question], slots: int, threads: int
    ) -> None:
        import llama_cpp

        self._lib: Any = llama_cpp
        self._model = llama_cpp.Llama(
            str(model), n_ctx=CONTEXT * slots, n_batch=2048, n_threads=threads, vocab_only=True,
            verbose=False,
        )  # fmt: skip
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx, settings.n_seq_max = CONTEXT * slots, slots
        settings.n_batch, settings.n_ubatch = 2048, 512
        settings.n_threads = settings.n_threads_batch = threads
        self._loaded = llama_cpp.llama_model_load_from_file(
            str(model).encode(), llama_cpp.llama_model_default_params()
        )
        self._context = llama_cpp.llama_init_from_model(self._loaded, settings)
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._batch = llama_cpp.llama_batch_init(2048, 0, 1)
        vocabulary = llama_cpp.llama_model_get_vocab(self._loaded)
        self._size = llama_cpp.llama_vocab_n_tokens(vocabulary)
        self._ends = {
            llama_cpp.llama_vocab_eos(vocabulary),
            llama_cpp.llama_vocab_eot(vocabulary),
        }
        self._questions = questions
        self._slots: list[Answer | None] = [None] * slots
        self._rng = np.random.default_rng(11)

    def run(self, waiting: list[int], file: TextIO) -> None:
        queue, started, written = list(reversed(waiting)), time.monotonic(), 0
        while queue or any(self._slots):
            self._batch.n_tokens = 0
            rows = [*self._go_on(), *self._begin(queue)]
            if not rows:
                continue
            if self._lib.llama_decode(self._context, self._batch) != 0:
                raise SystemExit("error: llama.cpp could not compute a pass")
            for slot, row in rows:
                written += self._read(slot, row, file)
            speed = written / (time.monotonic() - started)
            if written % 2000 < len(rows):
                print(f"{written} tokens, {speed:.0f} tokens/s, {len(queue)} left", flush=True)

    def _go_on(self) -> Iterator[tuple[int, int]]:
        """Put the last token of each answer into the pass: its slot and its row."""
        for slot, answer in enumerate(self._slots):
            if answer is not None:
                yield slot, self._add(answer.ids[-1], len(answer.ids) - 1, slot, read=True)

    def _begin(self, queue: list[int]) -> Iterator[tuple[int, int]]:
        """Put prompts of waiting questions into free slots, as many as a pass may hold."""
        for slot, answer in enumerate(self._slots):
            while answer is None and queue:
                number = queue.pop()
                kind, text = self._questions[number]
                prompt = self._prompt(text)
                if len(prompt) > CONTEXT - LONGEST:
                    continue
                if self._batch.n_tokens + len(prompt) > PROMPTS:
                    queue.append(number)
                    return
                answer = self._slots[slot] = Answer(number, kind, len(prompt), prompt)
                self._lib.llama_memory_seq_rm(self._memory, slot, -1, -1)
                for place, token in enumerate(prompt):
                    row = self._add(token, place, slot, read=place == len(prompt) - 1)
                yield slot, row

    def _prompt(self, text: str) -> list[int]:
        """The question as the model's chat template writes it."""
        from llama_cpp.llama_chat_format import Jinja2ChatFormatter

        formatter = Jinja2ChatFormatter(
            template=self._model.metadata["tokenizer.chat_template"], eos_token="", bos_token=""
        )
        written = formatter(messages=[{"role": "user", "content": text}]).prompt
        ids: list[int] = self._model.tokenize(written.encode(), add_bos=False, special=True)
        return ids

    def _add(self, token: int, place: int, slot: int, *, read: bool) -> int:
        row: int = self._batch.n_tokens
        self._batch.token[row], self._batch.pos[row] = token, place
        self._batch.n_seq_id[row], self._batch.seq_id[row][0] = 1, slot
        self._batch.logits[row] = int(read)
        self._batch.n_tokens = row + 1
        return row

    def _read(self, slot: int, row: int, file: TextIO) -> int:
        """Draw the next token of an answer, and write the answer when it is at its end."""
        answer = self._slots[slot]
        assert answer is not None
        pointer = self._lib.llama_get_logits_ith(self._context, row)
        logits = np.ctypeslib.as_array(pointer, shape=(self._size,))
        token = draw(logits, answer.temperature, self._rng)
        answer.ids.append(token)
        if token in self._ends or len(answer.ids) - answer.prompt >= LONGEST:
            file.write(answer.line() + "\n")
            file.flush()
            self._slots[slot] = None
        return 1
