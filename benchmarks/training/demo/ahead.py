# SPDX-License-Identifier: Apache-2.0
"""What a drafter computes ahead of the text, for many places of a text at once.

Step 0 reads the text. Step j > 0 computes what is drafted j tokens behind an anchor, a position of
the text: it attends to the text up to the anchor, and to steps 1..j behind that same anchor.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

Projected = tuple[Tensor, Tensor]  # keys and values, each [rows, kv_heads, places, head_dim]


def attend_ahead(query: Tensor, text: Projected, ahead: list[Projected], anchors: Tensor) -> Tensor:
    """Attention of step ``len(ahead)``, [rows, heads, n, head_dim].

    Args:
        query: the step's queries, of the shape of the result.
        text: step 0, at all positions.
        ahead: steps 1 and on, this one included, whose first n places have the same anchors.
        anchors: positions of the text, [n].

    """
    keys, values = text
    count = query.shape[2]
    # [rows, kv_heads, queries that share a key, n, head_dim]
    grouped = query.unflatten(1, (keys.shape[1], -1)) * query.shape[-1] ** -0.5
    on_text = grouped @ keys[:, :, None].transpose(-1, -2)
    later = torch.arange(keys.shape[2], device=query.device) > anchors[:, None]
    on_text = on_text.masked_fill(later, float("-inf"))
    on_ahead = [(grouped * key[:, :, None, :count]).sum(-1, keepdim=True) for key, _ in ahead]
    weights = torch.cat((on_text, *on_ahead), dim=-1).float().softmax(-1).to(values.dtype)
    mixed = weights[..., : keys.shape[2]] @ values[:, :, None]
    for step, (_, value) in enumerate(ahead, keys.shape[2]):
        mixed = mixed + weights[..., step, None] * value[:, :, None, :count]
    return mixed.flatten(1, 2)


def transfer(logits: Tensor, taught: Tensor, kept: Tensor | None = None) -> Tensor:
    """Mean cross-entropy of a drafter with the target's distribution, nats.

    Args:
        logits: the drafter's, [rows, places, its vocabulary].
        taught: the target's at the same places, [rows, places, vocabulary].
        kept: the target's ids of the drafter's vocabulary, if it has fewer; what the target gives
            to other tokens counts nothing.

    """
    wanted = taught.float().softmax(-1)
    wanted = wanted if kept is None else wanted[..., kept]
    return -(wanted * F.log_softmax(logits.float(), -1)).sum(-1).mean()


def agreement(logits: Tensor, taught: Tensor, kept: Tensor | None = None) -> tuple[float, float]:
    """Sums over places: equal first choices; overlap of the distributions, sum min(p, q)."""
    target, drafted = taught.float(), logits.float().softmax(-1)
    choice = drafted.argmax(-1)
    choice = choice if kept is None else kept[choice]
    p = target.softmax(-1)
    p = p if kept is None else p[..., kept]
    equal = (choice == target.argmax(-1)).sum().item()
    return equal, torch.minimum(p, drafted).sum().item()
