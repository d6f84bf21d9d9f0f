# SPDX-License-Identifier: Apache-2.0
"""The demo draft, taught to draft several tokens in one pass (PARD, 2504.18583).

Behind the text it reads masks, one for each further token. In training each anchor of a text is
followed by masks; of the later ones a part is dropped (conditional drop, section 3.2 there).
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.training.demo.ahead import Projected, agreement, attend_ahead, transfer
from benchmarks.training.demo.network import Decoder, attend
from benchmarks.training.demo.train import autocast, export

STEPS = 8  # tokens that a pass drafts, the ordinary one included
KEPT, LEAST = 0.8, 0.25  # share of the anchors kept from one mask to the next, and at least
DECAY = 0.9


def steps(
    model: Decoder,
    mask: int,
    tokens: Tensor,
    kept: float = KEPT,
    least: float = LEAST,
    rows: Tensor | None = None,
) -> list[tuple[Tensor, Tensor]]:
    """Return for each step its anchors [n] and its logits [rows, n, vocab].

    Step j stands at position anchor + j, which predicts token anchor + j + 1. ``rows`` are those of
    the head where a part of the vocabulary is drafted.
    """
    length = tokens.shape[1]
    everywhere = torch.arange(length, device=tokens.device)
    chosen = torch.randperm(length - STEPS, device=tokens.device)
    shares = [max(kept ** (step - 1), least) for step in range(1, STEPS)]
    anchors = [everywhere, *(chosen[: max(1, int(share * len(chosen)))] for share in shares)]
    streams = [model.model.embed_tokens(tokens)]
    masks = model.model.embed_tokens(torch.full_like(tokens[:, :1], mask))
    streams += [masks.expand(-1, len(at), -1) for at in anchors[1:]]
    for layer in model.model.layers:
        text: Projected | None = None
        ahead: list[Projected] = []
        for step, (x, at) in enumerate(zip(streams, anchors, strict=True)):
            cos, sin = model.cos[at + step], model.sin[at + step]
            query, key, value = layer.self_attn.project(layer.input_layernorm(x), cos, sin)
            if text is None:
                text, mixed = (key, value), attend(query, key, value)
            else:
                ahead.append((key, value))
                mixed = attend_ahead(query, text, ahead, at)
            x = x + layer.self_attn.join(mixed)
            streams[step] = x + layer.mlp(layer.post_attention_layernorm(x))
    head = model.model.embed_tokens.weight if rows is None else rows
    return [
        (at, F.linear(model.model.norm(x), head)) for at, x in zip(anchors, streams, strict=True)
    ]


def parallel_loss(teacher: Decoder, model: Decoder, mask: int, tokens: Tensor) -> Tensor:
    """Cross-entropy of all steps with the target's distribution; tokens [rows, length]."""
    with autocast(tokens.device):
        with torch.no_grad():
            taught = teacher(tokens)
        losses = [
            DECAY**step * transfer(logits, taught[:, at + step])
            for step, (at, logits) in enumerate(steps(model, mask, tokens))
        ]
    return torch.stack(losses).sum()


@torch.no_grad()
def parallel_agreement(
    teacher: Decoder, model: Decoder, mask: int, rows: Tensor
) -> list[tuple[float, float]]:
    """For each step: the share of equal first choices, and the overlap; rows [rows, length]."""
    sums = torch.zeros(STEPS, 3, dtype=torch.float64)
    for tokens in rows.split(32):
        with autocast(tokens.device):
            taught = teacher(tokens)
            found = steps(model, mask, tokens, kept=1.0)
        for step, (at, logits) in enumerate(found):
            figures = agreement(logits, taught[:, at + step])
            sums[step] += torch.tensor([*figures, logits.shape[0] * logits.shape[1]])
    return [(round(e / n, 4), round(o / n, 4)) for e, o, n in sums.tolist()]


def export_parallel(model: Decoder, mask: int, folder: Path) -> None:
    """Write the draft as an ordinary checkpoint whose configuration names the mask."""
    export(model, folder)
    file = folder / "config.json"
    config = json.loads(file.read_text()) | {"pard_token": mask}
    file.write_text(json.dumps(config, indent=2) + "\n")
