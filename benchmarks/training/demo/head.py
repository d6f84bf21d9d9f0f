# SPDX-License-Identifier: Apache-2.0
"""An EAGLE-3 head (2503.01840) for the demo target: it reads the target's residual streams.

Parameter names are those of the authors' checkpoints. The head is trained as it is used
("training-time test", section 3.2 there): after the first step it reads its own states.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from benchmarks.training.demo.ahead import Projected, agreement, attend_ahead, transfer
from benchmarks.training.demo.network import (
    TARGET,
    Attention,
    Decoder,
    Dimensions,
    Mlp,
    Norm,
    attend,
)
from benchmarks.training.demo.train import autocast

# The head reads what enters these layers of the target.
TAPS = (1, 2, 3)
HEAD = replace(TARGET, ffn=512, layers=1, heads=4, kv_heads=2)
STEPS = 6
DECAY = 0.8  # of the loss from step to step


class Midlayer(nn.Module):
    def __init__(self, dims: Dimensions) -> None:
        super().__init__()
        self.input_layernorm = Norm(dims.hidden, dims.norm_epsilon)
        self.hidden_norm = Norm(dims.hidden, dims.norm_epsilon)
        self.self_attn = Attention(dims, 0, 2 * dims.hidden)
        self.post_attention_layernorm = Norm(dims.hidden, dims.norm_epsilon)
        self.mlp = Mlp(dims)


class Head(nn.Module):
    """States of the target and the tokens after them -> logits of the tokens after those."""

    kept: Tensor

    def __init__(
        self,
        dims: Dimensions,
        kept: Tensor,
        teacher: Decoder,
        seed: int = 4,
        *,
        taps: tuple[int, ...] = TAPS,
        depth: int = STEPS,
    ) -> None:
        """``kept`` are the target's ids that the head can draft, sorted.

        It starts with the target's rows for them, and with its last norm. ``depth`` is how many
        steps it learns to go.
        """
        super().__init__()
        self.dims, self.taps, self.depth = dims, taps, depth
        self.fc = nn.Linear(len(taps) * dims.hidden, dims.hidden, bias=False)
        self.midlayer = Midlayer(dims)
        self.norm = Norm(dims.hidden, dims.norm_epsilon)
        self.lm_head = nn.Linear(dims.hidden, len(kept), bias=False)
        self.register_buffer("kept", kept, persistent=False)
        generator = torch.Generator().manual_seed(seed)
        for weight in self.parameters():
            if weight.ndim == 2:
                nn.init.normal_(weight, std=0.02, generator=generator)
        with torch.no_grad():
            self.lm_head.weight.copy_(teacher.model.embed_tokens.weight[kept])
            self.norm.weight.copy_(teacher.model.norm.weight)

    def steps(self, teacher: Decoder, tokens: Tensor, states: list[Tensor]) -> list[Tensor]:
        """Return the logits of each step, [rows, anchors, draft vocabulary].

        Step j at anchor a stands at position a + j and predicts token a + j + 2. The first step
        has all positions but the last as anchors, others those from which all steps are left.

        Args:
            teacher: has the embedding and the rotary table.
            tokens: [rows, length].
            states: the target's streams before the layers of ``taps``, each [rows, length, hidden].

        """
        embedded = teacher.model.embed_tokens(tokens)
        places = tokens.shape[1] - 1
        anchors = torch.arange(places, device=tokens.device)
        carried = self.fc(torch.cat(states, dim=-1)[:, :-1])
        text: Projected | None = None
        ahead: list[Projected] = []
        logits = []
        for step in range(self.depth):
            cos, sin = teacher.cos[anchors + step], teacher.sin[anchors + step]
            read = embedded[:, 1 + step : 1 + step + len(anchors)]
            query, own = self._project(read, carried, cos, sin)
            if text is None:
                text, mixed = own, attend(query, *own)
            else:
                ahead.append(own)
                mixed = attend_ahead(query, text, ahead, anchors)
            carried = carried + self.midlayer.self_attn.join(mixed)
            carried = carried + self.midlayer.mlp(self.midlayer.post_attention_layernorm(carried))
            logits.append(self.lm_head(self.norm(carried)))
            anchors = anchors[: places - self.depth + 1]
            carried = carried[:, : len(anchors)]
        return logits

    def _project(
        self, embedded: Tensor, carried: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Projected]:
        layer = self.midlayer
        both = torch.cat((layer.input_layernorm(embedded), layer.hidden_norm(carried)), dim=-1)
        query, key, value = layer.self_attn.project(both, cos, sin)
        return query, (key, value)


def head_loss(teacher: Decoder, head: Head, tokens: Tensor) -> Tensor:
    """Cross-entropy of all steps with the target's distribution; tokens [rows, length]."""
    with autocast(tokens.device):
        with torch.no_grad():
            taught, states = teacher.with_states(tokens, head.taps)
        steps = head.steps(teacher, tokens, states)
        losses = [
            DECAY**step * transfer(logits, _taught(taught, step, logits), head.kept)
            for step, logits in enumerate(steps)
        ]
    return torch.stack(losses).sum()


def _taught(taught: Tensor, step: int, logits: Tensor) -> Tensor:
    """The target's logits where a step's are; position p predicts token p + 1."""
    return taught[:, step + 1 : step + 1 + logits.shape[1]]


@torch.no_grad()
def head_agreement(teacher: Decoder, head: Head, rows: Tensor) -> list[tuple[float, float]]:
    """For each depth: the share of equal first choices, and the overlap; rows [rows, length]."""
    sums = torch.zeros(head.depth, 3, dtype=torch.float64)
    for tokens in rows.split(32):
        with autocast(tokens.device):
            taught, states = teacher.with_states(tokens, head.taps)
            steps = head.steps(teacher, tokens, states)
        for step, logits in enumerate(steps):
            found = agreement(logits, _taught(taught, step, logits), head.kept)
            sums[step] += torch.tensor([*found, logits.shape[0] * logits.shape[1]])
    return [(round(e / n, 4), round(o / n, 4)) for e, o, n in sums.tolist()]


def export_head(head: Head, folder: Path) -> None:
    """Write config.json and model.safetensors (fp16) as published heads have them."""
    folder.mkdir(parents=True, exist_ok=True)
    config = head.dims.hf_config() | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "target_hidden_size": head.fc.in_features // len(head.taps),
        "draft_vocab_size": len(head.kept),
        "tie_word_embeddings": False,
        # Counted by the layers that write the streams, as SGLang and ModelOpt do.
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": [tap - 1 for tap in head.taps],
            "use_aux_hidden_state": True,
        },
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    kept = head.kept.cpu()
    tensors = {name: weight.half().contiguous().cpu() for name, weight in head.state_dict().items()}
    tensors["d2t"] = kept - torch.arange(len(kept))
    tensors["t2d"] = torch.zeros(head.dims.vocab, dtype=torch.bool).index_fill(0, kept, True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def most_used(counts: Tensor, always: set[int], size: int) -> Tensor:
    """Return the ``size`` ids that a head drafts, sorted: those of ``always``, then by counts."""
    ranked = [int(token) for token in F.relu(counts).argsort(descending=True, stable=True)]
    others = [token for token in ranked if token not in always]
    return torch.tensor(sorted([*always, *others[: size - len(always)]]))
