# SPDX-License-Identifier: Apache-2.0
"""Trains a head (the demo recipe's) on the kept states of a target, as deep as it drafts."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from head import DECAY, Head, export_head, most_used
from network import Decoder
from numpy.typing import NDArray
from tokenizers import Tokenizer, pre_tokenizers
from torch import Tensor
from train import Schedule, Trainer, autocast

from benchmarks.training.states import CHATS_A_FILE, PAD, Chat

DEPTH = 3
WINDOW = 256  # tokens of a chat that a step reads
PROMPT_WEIGHT = 0.25  # of the loss where the text is not the target's own
HELD_OUT = 16  # every 16th chat is measured with and not trained on


class Chats:
    """The chats whose states are kept, and windows of them."""

    def __init__(self, chats: list[Chat], folder: Path) -> None:
        """``folder`` has what ``keep_states`` wrote for these chats."""
        files = [np.load(file, mmap_mode="r") for file in sorted(folder.glob("?????.npy"))]
        self.chats = chats[: len(files) * CHATS_A_FILE]
        self._rows: list[NDArray[np.float16]] = []
        for number, states in enumerate(files):
            mine = self.chats[number * CHATS_A_FILE : (number + 1) * CHATS_A_FILE]
            ends = np.cumsum([len(chat.tokens) for chat in mine])
            if ends[-1] != len(states):
                raise SystemExit(f"error: the states in {folder} are of other chats: remove them")
            self._rows += np.split(states, ends[:-1])
        numbers = np.arange(len(self.chats))
        self.trained = numbers[numbers % HELD_OUT != HELD_OUT - 1]
        self.held_out = numbers[numbers % HELD_OUT == HELD_OUT - 1]
        if not len(self.held_out):
            raise SystemExit(f"error: expected states of {HELD_OUT} chats at least in {folder}")
        sizes = np.array([len(self.chats[number].tokens) for number in self.trained], np.float64)
        self._odds = sizes / sizes.sum()

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
    head = Head(dims, kept, target, taps=taps, depth=DEPTH)
    head.lm_head.weight.requires_grad_(False)
    trainer = Trainer("head", head, schedule(tokens), work, seed=4)

    def checkpoint() -> None:
        print("agreement by depth", agreement(target, head, chats, 16), flush=True)
        export_head(head, work / "head")

    trainer.fit(chats.draw, partial(loss, target, head, chats), checkpoint)
    return agreement(target, head, chats)
