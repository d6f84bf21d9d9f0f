# SPDX-License-Identifier: Apache-2.0
"""Train a small hybrid of Qwen3.5's kind with its MTP layer, on the demo pair's text and tokenizer.

    python -m benchmarks.training.demo.hybrid --start models/demo --out build/hybrid --tokens 4e6

It begins with the embedding of the demo's draft. Needs torch, tokenizers and safetensors.
Interrupt it at any time; the same command resumes from the checkpoints in --scratch.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from benchmarks.training.demo.corpus import VOCAB_SIZE, read_documents, read_packages
from benchmarks.training.demo.drafts import windows
from benchmarks.training.demo.hybrid_network import Hybrid, HybridDimensions
from benchmarks.training.demo.run import (
    checkpoint,
    describe,
    prepare,
    write_folder,
)
from benchmarks.training.demo.train import Schedule, Trainer, autocast

MTP_SHARE = 0.3  # of the loss
DEPTH = 4  # steps that are measured; it learns the first, as published heads do


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--start", type=Path, default=Path("models/demo"))
    parser.add_argument("--out", type=Path, default=Path("build/hybrid"))
    parser.add_argument("--scratch", type=Path, default=Path("build/hybrid-scratch"))
    parser.add_argument("--tokens", type=float, default=4e6)
    parser.add_argument("--tokens-per-step", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compile", action="store_true")
    return parser.parse_args()


def both_losses(model: Hybrid, rows: Tensor) -> Tensor:
    """Loss of the next token, and the head's of the token after it; rows [rows, length + 1]."""
    with autocast(rows.device):
        states = model.states(rows[:, :-1])
        logits = model.logits(states)
        further = model.logits(model.ahead(rows[:, 1:], states)[:, :-1])
    near = F.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())
    far = F.cross_entropy(further.float().flatten(0, 1), rows[:, 2:].flatten())
    return near + MTP_SHARE * far


@torch.no_grad()
def head_agreement(model: Hybrid, rows: Tensor) -> list[float]:
    """For each depth: how often the head's first choice is the target's; rows [rows, length].

    Each step reads the text's own tokens and the states of the step before.
    """
    equal = torch.zeros(DEPTH)
    places = rows.shape[1] - DEPTH - 1
    for tokens in rows.split(16):
        with autocast(tokens.device):
            states = model.states(tokens)
            taught = model.logits(states).argmax(-1)
            for depth in range(DEPTH):
                read = tokens.roll(-1 - depth, 1)  # what has no token after it is not counted
                states = model.ahead(read, states)
                found = model.logits(states[:, :places]).argmax(-1)
                same = found == taught[:, 1 + depth : 1 + depth + places]
                equal[depth] += same.float().mean() * len(tokens) / len(rows)
    return [round(share, 4) for share in equal.tolist()]


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    documents = read_documents()
    packages = read_packages([document for document in documents if document.is_held_out])
    tokenizer = options.start / "target" / "tokenizer.json"
    data = prepare(documents, packages, options.scratch, VOCAB_SIZE, tokenizer)
    model = Hybrid(HybridDimensions(), seed=6)
    embedding = load_file(options.start / "draft" / "model.safetensors")["model.embed_tokens.weight"]
    model.model.embed_tokens.weight.data.copy_(embedding)
    schedule = Schedule(
        int(options.tokens),
        tokens_per_step=options.tokens_per_step,
        medium=SHORT,
        short=SHORT,
        long=4 * SHORT,
        long_every=16,
        checkpoint_s=300.0,
    )
    trainer = Trainer("hybrid", model, schedule, options.scratch, seed=6)
    rows = windows(data.corpus.held_out, "cpu")

    def say() -> None:
        checkpoint(trainer, data)
        print("head", head_agreement(model, rows[:16]), flush=True)

    slow = partial(both_losses, model)
    fast = torch.compile(slow, dynamic=False) if options.compile else slow

    def loss_of(rows: Tensor) -> Tensor:  # compiling the long windows takes longer than they do
        return (fast if rows.shape[1] == SHORT + 1 else slow)(rows)

    trainer.fit(data.crops.draw, loss_of, say)
    write_folder(model, options.out, data.tokenizer_file)
    found = describe(trainer) | {"head_agreement_by_depth": head_agreement(model, rows)}
    (options.out / "training.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
