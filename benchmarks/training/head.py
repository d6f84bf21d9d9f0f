# SPDX-License-Identifier: Apache-2.0
"""Trains a head (the demo recipe's) on the kept states of a target, as deep as it drafts."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from tokenizers import Tokenizer, pre_tokenizers
from torch import Tensor

from benchmarks.training.demo.head import DECAY, Head, export_head, most_used
from benchmarks.training.demo.network import Decoder
from benchmarks.training.demo.train import Schedule, Trainer, autocast
from benchmarks.training.states import CHATS_A_FILE, PAD, Chat

DEPTH = 3
WINDOW = 256  # tokens of a chat that a step reads
PROMPT_WEIGHT = 0.25  # of the loss where the text is not the target's own
HELD_OUT = 16  # every 16th chat is measured with and not trained on


class Chats:
    """The chats whose states are kept, and windows of them."""

    def __init__(self, *parts: tuple[list[Chat], Path]) -> None:
        """``parts`` are chats, and the folders where ``keep_states`` wrote theirs."""
        self.chats: list[Chat] = []
        self._rows: list[NDArray[np.float16]] = []
        for chats, folder in parts:
            self._read(chats, folder)
        numbers = np.arange(len(self.chats))
        held_out = numbers % HELD_OUT == HELD_OUT - 1
        answered = np.array([len(chat.tokens) > chat.prompt for chat in self.chats])
        self.trained = numbers[~held_out]
        self.held_out = numbers[held_out & answered]
        if not len(self.held_out):
            raise SystemExit(f"error: expected states of {HELD_OUT} answers at least")
        sizes = np.array([len(self.chats[number].tokens) for number in self.trained], np.float64)
        self._odds = sizes / sizes.sum()

    def _read(self, chats: list[Chat], folder: Path) -> None:
        files = [np.load(file, mmap_mode="r") for file in sorted(folder.glob("?????.npy"))]
        for number, states in enumerate(files):
            mine = chats[number * CHATS_A_FILE : (number + 1) * CHATS_A_FILE]
            ends = np.cumsum([len(chat.tokens) for chat in mine])
            if not len(ends) or ends[-1] != len(states):
                raise SystemExit(f"error: the states in {folder} are of other chats: remove them")
            self._rows += np.split(states, ends[:-1])
            self.chats += mine

    def spread(self) -> Tensor:
        """The usual size of each channel of the tapped states, [taps, H], above 0.

        A few channels are a hundred times the others, and a few tokens a thousand times: medians,
        of the first file's.
        """
        rows = np.concatenate(self._rows[:CHATS_A_FILE])[:, :-1].astype(np.float32)
        middle = np.median(np.abs(rows), axis=0)
        return torch.from_numpy(np.maximum(middle, 0.1 * np.median(middle)))

    def draw(self, rng: np.random.Generator, rows: int, length: int) -> NDArray[np.int64]:
        """Chats and the first places of their windows, [rows, 2]; long chats come more often."""
        del length  # the trainer's; windows are of one length here
        chosen = rng.choice(self.trained, rows, p=self._odds)
        rooms = [max(len(self.chats[number].tokens) - WINDOW, 0) for number in chosen]
        starts = [int(rng.integers(room + 1)) for room in rooms]
        return np.stack([chosen, np.array(starts)], axis=1).astype(np.int64)

    def windows(self, places: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens [rows, n], states [rows, n, taps + 1, H] and weights [rows, n] of windows.

        A weight is 1 where the target wrote the token, ``PROMPT_WEIGHT`` in prompts, and 0 where
        a row is filled.
        """
        tokens, states, weights = [], [], []
        for number, start in places.tolist():
            chat, end = self.chats[number], start + WINDOW
            ids = torch.tensor(chat.tokens[start:end])
            own = torch.arange(start, start + len(ids)) >= chat.prompt
            tokens.append(ids)
            weights.append(torch.where(own, 1.0, PROMPT_WEIGHT))
            states.append(torch.from_numpy(self._rows[number][start:end].astype(np.float32)))
        pad = partial(torch.nn.utils.rnn.pad_sequence, batch_first=True)
        return pad(tokens, padding_value=PAD), pad(states), pad(weights)


def kept_tokens(chats: list[Chat], tokenizer: Tokenizer, size: int) -> Tensor:
    """The ids that a head drafts: special ones and bytes, then the most frequent in the chats."""
    always = set(tokenizer.get_added_tokens_decoder())
    letters = (tokenizer.token_to_id(letter) for letter in pre_tokenizers.ByteLevel.alphabet())
    always |= {token for token in letters if token is not None}
    counts = np.zeros(tokenizer.get_vocab_size(), np.float64)
    for chat in chats:
        np.add.at(counts, chat.tokens[chat.prompt :], 1.0)
        np.add.at(counts, chat.tokens[: chat.prompt], 0.25)
    return most_used(torch.from_numpy(counts), always, size)


def kept_once(chats: list[Chat], tokenizer: Tokenizer, size: int, work: Path) -> Tensor:
    """The ids of ``kept_tokens``, chosen once: more chats may come, and a checkpoint goes on."""
    file = work / "kept.json"
    if not file.exists():
        file.write_text(json.dumps(kept_tokens(chats, tokenizer, size).tolist()), "utf-8")
    kept = torch.tensor(json.loads(file.read_text("utf-8")))
    if len(kept) != size:
        raise SystemExit(f"error: {file} has {len(kept)} tokens: remove it, or give that number")
    return kept


def taught(target: Decoder, last: Tensor, kept: Tensor) -> Tensor:
    """The target's distribution over the ``kept`` ids alone, from its last states."""
    return F.linear(last, target.model.embed_tokens.weight[kept]).float().softmax(-1)


class Balanced(Head):
    """A head whose first matrix reads states divided by ``spread``.

    Steps of Muon are of one size in all directions, and a channel that is large would make them
    large in what the head carries.
    """

    spread: Tensor

    def balance(self, spread: Tensor) -> Balanced:
        self.register_buffer("spread", spread, persistent=False)
        return self

    def steps(self, teacher: Decoder, tokens: Tensor, states: list[Tensor]) -> list[Tensor]:
        balanced = [state / size for state, size in zip(states, self.spread, strict=True)]
        return super().steps(teacher, tokens, balanced)

    def export(self, folder: Path) -> None:
        """Write it as one that reads the states as they are."""
        plain = copy.deepcopy(self)
        with torch.no_grad():
            plain.fc.weight.div_(self.spread.flatten())
        export_head(plain, folder)


def losses(
    target: Decoder, head: Head, chats: Chats, places: Tensor
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """For each step: its logits, the target's distribution and the places' weights."""
    tokens, states, weights = chats.windows(places)
    taps = list(states[:, :, :-1].unbind(2))
    with autocast(tokens.device):
        steps = head.steps(target, tokens, taps)
        with torch.no_grad():
            wanted = taught(target, states[:, :, -1], head.kept)
    found = []
    for step, logits in enumerate(steps):
        # Place p of ``wanted`` is about token p + 1; step 0 at anchor a is about token a + 2.
        count = logits.shape[1] - 1  # the last place's next token is not in the window
        cut = slice(step + 1, step + 1 + count)
        weight = weights[:, step + 2 : step + 2 + count]
        found.append((logits[:, :count], wanted[:, cut], weight))
    return found


def loss(target: Decoder, head: Head, chats: Chats, places: Tensor) -> Tensor:
    """Cross-entropy of all steps with the target's distribution, nats."""
    total = torch.zeros(())
    for step, (logits, wanted, weight) in enumerate(losses(target, head, chats, places)):
        entropy = -(wanted * F.log_softmax(logits.float(), -1)).sum(-1)
        total = total + DECAY**step * (entropy * weight).sum() / weight.sum()
    return total


@torch.no_grad()
def agreement(target: Decoder, head: Head, chats: Chats, most: int = 64) -> list[float]:
    """For each depth, how often first choices are equal in held-out answers."""
    equal, places = np.zeros(head.depth), np.zeros(head.depth)
    for number in chats.held_out[:most]:
        start = max(len(chats.chats[number].tokens) - WINDOW, 0)
        where = torch.tensor([[number, start]])
        for step, (logits, wanted, weight) in enumerate(losses(target, head, chats, where)):
            own = weight == 1
            same = logits.argmax(-1) == wanted.argmax(-1)
            equal[step] += (same & own).sum().item()
            places[step] += own.sum().item()
    return [round(float(share), 4) for share in equal / np.maximum(places, 1)]


def schedule(tokens: float) -> Schedule:
    """Windows of one length, and small steps: there are few chats."""
    step = 8 * WINDOW
    return Schedule(
        int(tokens),
        tokens_per_step=step,
        short=WINDOW,
        medium=WINDOW,
        long_from=2,
        checkpoint_s=120,
    )


def train_head(
    target: Decoder, chats: Chats, kept: Tensor, taps: tuple[int, ...], work: Path, tokens: float
) -> list[float]:
    """Train a head for a number of tokens, write it to ``work/head``, and return its agreement.

    Its vocabulary's rows are the target's and stay so: there is too little text to learn them.
    """
    dims = replace(target.dims, layers=1)
    head = Balanced(dims, kept, target, taps=taps, depth=DEPTH).balance(chats.spread())
    head.lm_head.weight.requires_grad_(False)
    trainer = Trainer("head", head, schedule(tokens), work, seed=4)

    def checkpoint() -> None:
        print("agreement by depth", agreement(target, head, chats, 16), flush=True)
        head.export(work / "head")

    trainer.fit(chats.draw, partial(loss, target, head, chats), checkpoint)
    return agreement(target, head, chats)
