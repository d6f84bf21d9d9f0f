# SPDX-License-Identifier: Apache-2.0
"""A draft cut from a target: a few of its layers, taught by the target's distribution."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from benchmarks.training.demo.network import Decoder
from benchmarks.training.demo.train import Trainer, autocast
from benchmarks.training.head import Chats, schedule, taught


def layers_to_keep(layers: int, count: int) -> list[int]:
    """Return ``count`` of the layers, evenly, the first and the last among them."""
    return [int(place) for place in np.linspace(0, layers - 1, count).round()]


def cut(target: Decoder, count: int) -> Decoder:
    """Return a decoder of some of the target's layers, with its embedding, which stays as it is."""
    draft = Decoder(replace(target.dims, layers=count))
    weights = target.state_dict()
    chosen = {name: weights[name] for name in weights if not name.startswith("model.layers.")}
    for new, old in enumerate(layers_to_keep(target.dims.layers, count)):
        prefix = f"model.layers.{old}."
        for name in weights:
            if name.startswith(prefix):
                chosen[f"model.layers.{new}.{name.removeprefix(prefix)}"] = weights[name]
    draft.load_state_dict(chosen)
    draft.model.embed_tokens.weight.requires_grad_(False)
    return draft


def _last(draft: Decoder, tokens: Tensor) -> Tensor:
    """The draft's states behind its last norm, [rows, n, hidden]."""
    x = draft.model.embed_tokens(tokens)
    cos, sin = draft.cos[: tokens.shape[1]], draft.sin[: tokens.shape[1]]
    for layer in draft.model.layers:
        x = layer(x, cos, sin, None)
    return draft.model.norm(x)  # type: ignore[no-any-return]


def compared(
    target: Decoder, draft: Decoder, chats: Chats, kept: Tensor, places: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The draft's logits of the ``kept`` ids, the target's distribution and the weights."""
    tokens, states, weights = chats.windows(places)
    with autocast(tokens.device):
        rows = draft.model.embed_tokens.weight[kept]
        logits = F.linear(_last(draft, tokens), rows)[:, :-1]
        with torch.no_grad():
            wanted = taught(target, states[:, :-1, -1], kept)
    return logits, wanted, weights[:, 1:]


def loss(target: Decoder, draft: Decoder, chats: Chats, kept: Tensor, places: Tensor) -> Tensor:
    """Cross-entropy with the target's distribution, nats."""
    logits, wanted, weight = compared(target, draft, chats, kept, places)
    entropy = -(wanted * F.log_softmax(logits.float(), -1)).sum(-1)
    return (entropy * weight).sum() / weight.sum()


@torch.no_grad()
def agreement(target: Decoder, draft: Decoder, chats: Chats, kept: Tensor, most: int = 64) -> float:
    """How often first choices are equal in held-out answers."""
    equal = places = 0
    for number in chats.held_out[:most]:
        where = torch.tensor([[number, 0]])
        logits, wanted, weight = compared(target, draft, chats, kept, where)
        own = weight == 1
        equal += int(((logits.argmax(-1) == wanted.argmax(-1)) & own).sum())
        places += int(own.sum())
    return round(equal / max(places, 1), 4)


def export_draft(draft: Decoder, source: Path, out: Path) -> None:
    """Write the draft as a folder like that of its target, with the target's tokenizer."""
    out.mkdir(parents=True, exist_ok=True)
    config = json.loads((source / "config.json").read_text("utf-8"))
    config |= {"num_hidden_layers": draft.dims.layers, "torch_dtype": "float16"}
    config.pop("dtype", None)  # the field's other name
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    for file in sorted(source.iterdir()):
        if file.suffix in (".json", ".jinja", ".model") and not (out / file.name).exists():
            shutil.copyfile(file, out / file.name)
    tensors = {name: weight.half().contiguous() for name, weight in draft.state_dict().items()}
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})


def train_draft(
    target: Decoder, chats: Chats, kept: Tensor, source: Path, work: Path, *, layers: int,
    tokens: float,
) -> float:  # fmt: skip
    """Train a draft of ``layers`` layers, write it to ``work/draft``, and return its agreement."""
    draft = cut(target, layers)
    plan = schedule(tokens).going_on()  # its layers know something already
    trainer = Trainer("draft", draft, plan, work, seed=5)

    def checkpoint() -> None:
        print("agreement", agreement(target, draft, chats, kept, 16), flush=True)
        export_draft(draft, source, work / "draft")

    trainer.fit(chats.draw, partial(loss, target, draft, chats, kept), checkpoint)
    return agreement(target, draft, chats, kept)
