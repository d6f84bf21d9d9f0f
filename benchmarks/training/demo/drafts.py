# SPDX-License-Identifier: Apache-2.0
"""Train what else drafts for the demo target: an EAGLE-3 head, and a parallel draft (PARD).

    python -m benchmarks.training.demo.drafts --out models/demo --device cuda

Needs torch, tokenizers, safetensors and the trained pair; minutes on a GPU, hours on two cores.
Interrupt it at any time; the same command resumes from the checkpoints in --scratch.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from tokenizers import Tokenizer, pre_tokenizers
from torch import Tensor, nn

from benchmarks.training.demo.corpus import (
    SPECIAL_TOKENS,
    VOCAB_SIZE,
    Crops,
    read_documents,
    read_packages,
)
from benchmarks.training.demo.distill import acceptance, mixed_draw, sample_texts
from benchmarks.training.demo.head import (
    HEAD,
    Head,
    export_head,
    head_agreement,
    head_loss,
    most_used,
)
from benchmarks.training.demo.network import DRAFT, TARGET, Decoder, Dimensions
from benchmarks.training.demo.parallel import export_parallel, parallel_agreement, parallel_loss
from benchmarks.training.demo.run import CHAT_SHARE, Data, prepare
from benchmarks.training.demo.train import Draw, Schedule, Trainer

OWN_TEXT_SHARE = 0.5
# The token of byte 0xFF, which no text in UTF-8 has: it is free to stand for a mask.
MASK = "\u00ff"
MEASURED_ROWS, MEASURED_LENGTH = 128, 512


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("models/demo"))
    parser.add_argument("--scratch", type=Path, default=Path("build/demo-drafts"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--draft-vocab", type=int, default=3072, help="tokens that the head drafts")
    parser.add_argument("--head-tokens", type=float, default=60e6)
    parser.add_argument("--parallel-tokens", type=float, default=30e6)
    parser.add_argument("--sampled-tokens", type=float, default=2e6)
    parser.add_argument("--tokens-per-step", type=int, default=16384)
    return parser.parse_args()


def load(folder: Path, dimensions: Dimensions, device: str) -> Decoder:
    model = Decoder(dimensions)
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return model.to(device)


def schedule(tokens: float, options: argparse.Namespace) -> Schedule:
    """Windows up to 2048: longer ones do not fit where all steps are computed at once."""
    pace = options.tokens_per_step
    return Schedule(int(tokens), tokens_per_step=pace, long=2048, long_every=8)


def kept_tokens(tokenizer: Tokenizer, data: Data, samples: NDArray[np.uint16], size: int) -> Tensor:
    """The head's tokens: special ones, bytes and digits, then by counts in the target's texts.

    The corpus counts for a tenth, so that what the samples lack is in its order, too.
    """
    always = {tokenizer.token_to_id(token) for token in SPECIAL_TOKENS}
    always |= {tokenizer.token_to_id(letter) for letter in pre_tokenizers.ByteLevel.alphabet()}
    counts = np.bincount(samples.reshape(-1), minlength=VOCAB_SIZE).astype(np.float64)
    corpus = np.bincount(data.corpus.library, minlength=VOCAB_SIZE)
    counts += 0.1 * corpus * counts.sum() / corpus.sum()
    return most_used(torch.from_numpy(counts), always, size)


def train_head(
    options: argparse.Namespace, data: Data, target: Decoder, kept: Tensor, rows: Tensor, draw: Draw
) -> dict[str, object]:
    head = Head(HEAD, kept.to(options.device), target).to(options.device)
    trainer = Trainer("head", head, schedule(options.head_tokens, options), data.folder, seed=4)
    measure = partial(head_agreement, target, head, rows)
    trainer.fit(draw, partial(head_loss, target, head), partial(say, trainer, measure))
    export_head(head, options.out / "head")
    return report(trainer, measure()) | {"draft_vocab_size": len(kept)}


def train_parallel(
    options: argparse.Namespace, data: Data, target: Decoder, rows: Tensor, draw: Draw
) -> dict[str, object]:
    model = load(options.out / "draft", DRAFT, options.device)
    mask = data.tokenizer.token_to_id(MASK)
    plan = schedule(options.parallel_tokens, options)
    trainer = Trainer("parallel", model, plan, data.folder, seed=5)
    measure = partial(parallel_agreement, target, model, mask, rows)
    loss_of = partial(parallel_loss, target, model, mask)
    trainer.fit(draw, loss_of, partial(say, trainer, measure))
    folder = options.out / "draft_parallel"
    export_parallel(model, mask, folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((options.out / "draft" / name).read_bytes())
    alone = acceptance(target, model, data.corpus.held_out)
    return report(trainer, measure()) | {"token_by_token": alone}


def say(trainer: Trainer, measure: Callable[[], object]) -> None:
    print(trainer.name, measure(), flush=True)


def report(trainer: Trainer, measured: object) -> dict[str, object]:
    progress = trainer.progress
    return {
        "parameters": parameters(trainer.model),
        "steps": progress.steps,
        "tokens": progress.tokens,
        "minutes": round(progress.elapsed_s / 60, 1),
        "training_loss": progress.losses[:: max(1, len(progress.losses) // 40)],
        "first_choices_and_overlap_by_depth": measured,
    }


def parameters(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


def windows(stream: NDArray[np.uint16], device: str) -> Tensor:
    """Consecutive windows of the held-out text, [rows, MEASURED_LENGTH]."""
    rows = min(MEASURED_ROWS, stream.size // MEASURED_LENGTH)
    cut = stream[: rows * MEASURED_LENGTH].astype(np.int64).reshape(rows, MEASURED_LENGTH)
    return torch.from_numpy(cut).to(device)


def main() -> None:
    options = arguments()
    documents = read_documents()
    packages = read_packages([document for document in documents if document.is_held_out])
    spelling = options.out / "target" / "tokenizer.json"
    data = prepare(documents, packages, options.scratch, VOCAB_SIZE, spelling)
    target = load(options.out / "target", TARGET, options.device).requires_grad_(False)
    crops = Crops(data.corpus, data.tokenizer, chat_share=CHAT_SHARE)
    folder = options.scratch / "samples"
    samples = sample_texts(target, crops, int(options.sampled_tokens), folder)
    draw = mixed_draw(crops, samples, OWN_TEXT_SHARE)
    kept = kept_tokens(data.tokenizer, data, samples, options.draft_vocab)
    covered = np.isin(samples, kept.numpy()).mean()
    rows = windows(data.corpus.held_out, options.device)
    head = train_head(options, data, target, kept, rows, draw) | {"covered": round(covered, 4)}
    draft = load(options.out / "draft", DRAFT, options.device)
    found = {
        "corpus": f"Python {platform.python_version()} standard library and packages",
        "device": torch.cuda.get_device_name() if options.device == "cuda" else options.device,
        "sampled_tokens": int(samples.size),
        "held_out_tokens": int(rows.numel()),
        "head": head,
        "draft": acceptance(target, draft, data.corpus.held_out),
        "draft_parallel": train_parallel(options, data, target, rows, draw),
    }
    (options.out / "training_drafts.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
