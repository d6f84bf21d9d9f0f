# SPDX-License-Identifier: Apache-2.0
"""Teaches a trained draft to draft several tokens in one pass (PARD, 2504.18583)."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.training.demo.network import Decoder
from benchmarks.training.demo.parallel import DECAY, LEAST, steps
from benchmarks.training.demo.train import Trainer, autocast
from benchmarks.training.draft import export_draft
from benchmarks.training.head import Chats, schedule, taught
from benchmarks.training.states import load_target

# One of SmolLM2's special tokens that no chat has; its row stays what it is.
MASK = 16


def loss(target: Decoder, draft: Decoder, chats: Chats, kept: Tensor, places: Tensor) -> Tensor:
    """Cross-entropy of all steps with the target's distribution over the ``kept`` ids, nats."""
    tokens, states, weights = chats.windows(places)
    weights = F.pad(weights, (0, 1))  # no token follows the last
    losses = []
    with autocast(tokens.device):
        with torch.no_grad():
            wanted = taught(target, states[:, :, -1], kept)
        found = steps(draft, MASK, tokens, rows=draft.model.embed_tokens.weight[kept])
    for step, (at, logits) in enumerate(found):
        weight = weights[:, at + step + 1]
        entropy = -(wanted[:, at + step] * F.log_softmax(logits.float(), -1)).sum(-1)
        losses.append(DECAY**step * (entropy * weight).sum() / weight.sum())
    return torch.stack(losses).sum()


@torch.no_grad()
def agreement(
    target: Decoder, draft: Decoder, chats: Chats, kept: Tensor, most: int
) -> list[float]:
    """How often first choices are equal in held-out answers, by step."""
    sums: list[list[int]] = []
    for number in chats.held_out[:most]:
        tokens, states, weights = chats.windows(torch.tensor([[number, 0]]))
        own = F.pad(weights, (0, 1)) == 1
        best = taught(target, states[:, :, -1], kept).argmax(-1)
        rows = draft.model.embed_tokens.weight[kept]
        found = steps(draft, MASK, tokens, kept=1.0, least=LEAST, rows=rows)
        sums.append([])
        for step, (at, logits) in enumerate(found):
            counted = own[:, at + step + 1]
            equal = (logits.argmax(-1) == best[:, at + step]) & counted
            sums[-1] += [int(equal.sum()), int(counted.sum())]
    totals = torch.tensor(sums).sum(0).reshape(-1, 2)
    return [round(equal / max(places, 1), 4) for equal, places in totals.tolist()]


def train_parallel(
    target: Decoder, chats: Chats, kept: Tensor, work: Path, tokens: float
) -> list[float]:
    """Teach the draft in ``work/draft``, write it to ``work/parallel``; return its agreement."""
    draft = load_target(work / "draft").requires_grad_(True)
    draft.model.embed_tokens.weight.requires_grad_(False)
    trainer = Trainer("parallel", draft, schedule(tokens).going_on(), work, seed=6)

    def checkpoint() -> None:
        print("agreement by step", agreement(target, draft, chats, kept, 16), flush=True)
        folder = work / "parallel"
        export_draft(draft, work / "draft", folder)
        file = folder / "config.json"
        named = json.loads(file.read_text("utf-8")) | {"pard_token": MASK}
        file.write_text(json.dumps(named, indent=2) + "\n", "utf-8")

    trainer.fit(chats.draw, partial(loss, target, draft, chats, kept), checkpoint)
    return agreement(target, draft, chats, kept, 64)
