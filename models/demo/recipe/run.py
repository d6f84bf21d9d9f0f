# SPDX-License-Identifier: Apache-2.0
"""Train the demo pair from nothing: corpus, tokenizer, target, distilled draft.

    python models/demo/recipe/run.py --out models/demo

Needs torch, tokenizers and safetensors, about 100 minutes on two AMX cores. Interrupt it at any
time; the same command resumes from the checkpoints in --scratch. On a machine that does other
work, OMP_WAIT_POLICY=passive keeps waiting threads from burning the core that works.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import torch
from corpus import Corpus, Crops, encode, read_documents, tokenizer_config, train_tokenizer
from distill import acceptance, distillation_loss, mixed_draw, sample_texts
from network import DRAFT, TARGET, Decoder
from numpy.typing import NDArray
from tokenizers import Tokenizer
from train import LossOf, Progress, Schedule, Trainer, cross_entropy, export, held_out_loss

CHAT_SHARE = 0.04
OWN_TEXT_SHARE = 0.35


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("models/demo"))
    parser.add_argument("--scratch", type=Path, default=Path("build/demo"))
    parser.add_argument("--target-minutes", type=float, default=68.0)
    parser.add_argument("--sample-minutes", type=float, default=3.0)
    parser.add_argument("--draft-minutes", type=float, default=24.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-compile", action="store_true", help="run torch eagerly")
    return parser.parse_args()


def prepare(out: Path, scratch: Path) -> tuple[Corpus, Tokenizer]:
    """Read, split and encode the corpus once; a resumed run reads it back from `scratch`."""
    tokens_file, tokenizer_file = scratch / "tokens.npz", scratch / "tokenizer.json"
    if tokens_file.exists():
        with np.load(tokens_file) as saved:
            corpus = Corpus(saved["library"], saved["tests"], saved["held_out"])
        return corpus, Tokenizer.from_file(str(tokenizer_file))
    documents = read_documents()
    out.mkdir(parents=True, exist_ok=True)
    held_out = [document.path for document in documents if document.is_held_out]
    (out / "heldout.txt").write_text("\n".join(held_out) + "\n")
    tokenizer = train_tokenizer(documents)
    tokenizer.save(str(tokenizer_file))
    corpus = encode(documents, tokenizer)
    np.savez(tokens_file, library=corpus.library, tests=corpus.tests, held_out=corpus.held_out)
    return corpus, tokenizer


def write_folder(model: Decoder, folder: Path, tokenizer_file: Path) -> None:
    """A complete Hugging Face folder: weights, configuration and tokenizer."""
    export(model, folder)
    shutil.copyfile(tokenizer_file, folder / "tokenizer.json")
    settings = json.dumps(tokenizer_config(), indent=2)
    (folder / "tokenizer_config.json").write_text(settings + "\n")


def checkpoint(trainer: Trainer, stream: NDArray[np.uint16], scratch: Path) -> None:
    """Measure on held-out text and leave a loadable copy of the weights so far."""
    loss = held_out_loss(trainer.model, stream)
    minutes = round(trainer.progress.elapsed_s / 60, 2)
    trainer.progress.held_out.append((minutes, round(loss, 4)))
    print(f"{trainer.name} held-out loss {loss:.4f} at {minutes} min", flush=True)
    write_folder(trainer.model, scratch / trainer.name, scratch / "tokenizer.json")


def train_target(
    options: argparse.Namespace, corpus: Corpus, crops: Crops
) -> tuple[Decoder, Progress]:
    model = Decoder(TARGET, seed=1)
    schedule = Schedule(minutes=options.target_minutes)
    trainer = Trainer("target", model, schedule, options.scratch)
    loss_of = _compiled(lambda rows: cross_entropy(model, rows), options)
    save = partial(checkpoint, trainer, corpus.held_out, options.scratch)
    trainer.fit(crops.draw, loss_of, save)
    return model, trainer.progress


def train_draft(
    options: argparse.Namespace, corpus: Corpus, crops: Crops, target: Decoder
) -> tuple[Decoder, Progress, int]:
    samples_file = options.scratch / "samples.npy"
    if not samples_file.exists():
        np.save(samples_file, sample_texts(target, crops, options.sample_minutes))
    samples = np.load(samples_file)
    model = Decoder(DRAFT, seed=2)
    trainer = Trainer("draft", model, Schedule(minutes=options.draft_minutes), options.scratch)
    loss_of = _compiled(lambda rows: distillation_loss(target, model, rows), options)
    save = partial(checkpoint, trainer, corpus.held_out, options.scratch)
    trainer.fit(mixed_draw(crops, samples, OWN_TEXT_SHARE), loss_of, save)
    return model, trainer.progress, int(samples.size)


def _compiled(loss_of: LossOf, options: argparse.Namespace) -> LossOf:
    return loss_of if options.no_compile else torch.compile(loss_of, dynamic=False)


def describe(model: Decoder, progress: Progress) -> dict[str, object]:
    held_out = progress.held_out[-1][1]
    return {
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "steps": progress.steps,
        "tokens": progress.tokens,
        "minutes": round(progress.elapsed_s / 60, 1),
        "held_out_loss_nats": held_out,
        "held_out_perplexity": round(math.exp(held_out), 3),
        "training_loss": progress.losses[:: max(1, len(progress.losses) // 40)],
        "held_out_loss": progress.held_out,
    }


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    options.scratch.mkdir(parents=True, exist_ok=True)
    corpus, tokenizer = prepare(options.out, options.scratch)
    crops = Crops(corpus, tokenizer, chat_share=CHAT_SHARE)
    target, target_progress = train_target(options, corpus, crops)
    for weight in target.parameters():
        weight.requires_grad_(False)
    draft, draft_progress, sampled = train_draft(options, corpus, crops, target)
    for name, model in (("target", target), ("draft", draft)):
        write_folder(model, options.out / name, options.scratch / "tokenizer.json")
    report = {
        "corpus": f"Python {platform.python_version()} standard library",
        "library_tokens": int(corpus.library.size),
        "test_tokens": int(corpus.tests.size),
        "held_out_tokens": int(corpus.held_out.size),
        "sampled_tokens": sampled,
        "target": describe(target, target_progress),
        "draft": describe(draft, draft_progress),
        "held_out_agreement": acceptance(target, draft, corpus.held_out),
    }
    (options.out / "training.json").write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
