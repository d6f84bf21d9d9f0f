# SPDX-License-Identifier: Apache-2.0
"""Train a small hybrid of Qwen3.5's kind with its MTP layer, on the demo pair's text and tokenizer.

    python -m benchmarks.training.demo.hybrid --start models/demo --out build/hybrid --tokens 4e6

It begins with what it can use of the demo's draft: embedding, norms, MLPs, one layer's attention.
Needs torch, tokenizers and safetensors. Interrupt it at any time: the same command resumes from the
checkpoints in --scratch, and --out has what was trained so far.
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
from benchmarks.training.demo.train import Schedule, Trainer, autocast, held_out_loss

MTP_SHARE = 0.3  # of the loss
SHORT = 256  # tokens of most windows
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


@torch.no_grad()
def convert(draft: dict[str, Tensor], model: Hybrid) -> None:
    """Copy the weights that fit from a decoder of two layers with the same hidden size and heads.

    The first delta layer and the attending one get its MLPs, the latter and the MTP layer its last
    attention: of the pairs of channels those with the frequencies that are rotated here come first,
    gates begin half open. The layers between begin as the identity.
    """
    dims = model.dims
    whole = {name: weight.float() for name, weight in draft.items()}
    last = dims.layers - 1
    for name in ("embed_tokens.weight", "norm.weight"):
        plus = 1 if "norm" in name else 0
        model.get_parameter(f"model.{name}").copy_(whole[f"model.{name}"] - plus)
    model.mtp.norm.weight.copy_(whole["model.norm.weight"] - 1)
    for source, place in (
        ("model.layers.0", "model.layers.0"),
        ("model.layers.1", f"model.layers.{last}"),
        ("model.layers.1", "mtp.layers.0"),
    ):
        for part in ("gate", "up", "down"):
            name = f"mlp.{part}_proj.weight"
            model.get_parameter(f"{place}.{name}").copy_(whole[f"{source}.{name}"])
        for name in ("input_layernorm.weight", "post_attention_layernorm.weight"):
            model.get_parameter(f"{place}.{name}").copy_(whole[f"{source}.{name}"] - 1)
    for layer in range(1, last):
        model.get_parameter(f"model.layers.{layer}.mlp.down_proj.weight").zero_()
        model.get_parameter(f"model.layers.{layer}.linear_attn.out_proj.weight").zero_()
    for place in (f"model.layers.{last}.self_attn", "mtp.layers.0.self_attn"):
        for name, weight in _attention(whole, "model.layers.1.self_attn", dims).items():
            model.get_parameter(f"{place}.{name}").copy_(weight)
    unit = torch.eye(dims.hidden)
    model.mtp.fc.weight.copy_(0.5 * torch.cat((unit, unit), 1))


def _attention(weights: dict[str, Tensor], at: str, dims: HybridDimensions) -> dict[str, Tensor]:
    pairs, kept = dims.head_dim // 2, int(dims.rotated * dims.head_dim) // 2
    turned = torch.arange(kept) * (pairs // kept)
    others = torch.tensor([pair for pair in range(pairs) if pair not in turned.tolist()])
    order = torch.cat((turned, turned + pairs, others, others + pairs))
    query, key = (
        weights[f"{at}.{one}_proj.weight"].unflatten(0, (-1, dims.head_dim))[:, order]
        for one in "qk"
    )
    # For inputs of unit RMS, queries and keys then have the sizes that they had without norms.
    sizes = [x.square().sum(2).mean().sqrt() - 1 for x in (query, key)]
    gated = torch.stack((query, torch.zeros_like(query)), 1)
    return {
        "q_proj.weight": gated.flatten(0, 2),
        "k_proj.weight": key.flatten(0, 1),
        "v_proj.weight": weights[f"{at}.v_proj.weight"],
        "o_proj.weight": 2 * weights[f"{at}.o_proj.weight"],
        "q_norm.weight": sizes[0].expand(dims.head_dim),
        "k_norm.weight": sizes[1].expand(dims.head_dim),
    }


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
    convert(load_file(options.start / "draft" / "model.safetensors"), model)
    schedule = Schedule(
        int(options.tokens),
        tokens_per_step=options.tokens_per_step,
        medium=SHORT,
        short=SHORT,
        long=4 * SHORT,
        long_every=16,
        checkpoint_s=300.0,
    ).going_on()
    trainer = Trainer("hybrid", model, schedule, options.scratch, seed=6)
    rows = windows(data.corpus.held_out, "cpu")

    def say() -> None:  # of little text, since a busy machine trains seldom
        loss = held_out_loss(model, data.corpus.held_out[:4097])
        print(f"held-out loss {loss:.3f}, head {head_agreement(model, rows[:4])}", flush=True)
        write_folder(model, options.out, data.tokenizer_file)

    slow = partial(both_losses, model)
    fast = torch.compile(slow, dynamic=False) if options.compile else slow

    def loss_of(rows: Tensor) -> Tensor:  # compiling the long windows takes longer than they do
        return (fast if rows.shape[1] == SHORT + 1 else slow)(rows)

    trainer.fit(data.crops.draw, loss_of, say)
    checkpoint(trainer, data)
    found = describe(trainer) | {"head_agreement_by_depth": head_agreement(model, rows)}
    (options.out / "training.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
