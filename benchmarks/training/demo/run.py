# SPDX-License-Identifier: Apache-2.0
"""Train the demo models from nothing: corpus, tokenizers, target, distilled draft, other draft.

    python -m benchmarks.training.demo.run --out models/demo
    python -m benchmarks.training.demo.run --start models/demo --out build/x --target-tokens 18e6

The second form goes on from a pair that was trained before, with its tokenizers. The target becomes
the mean of what it was and what it is then; a model whose budget is 0 stays what it is.
Needs torch, tokenizers and safetensors, four to five hours on two quiet AVX-512 cores. Interrupt
it at any time; the same command resumes from the checkpoints in --scratch. On a machine that does
other work, OMP_WAIT_POLICY=passive keeps waiting threads from burning the core that works.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import shutil
from dataclasses import dataclass, fields
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from tokenizers import Tokenizer

from benchmarks.training.demo.corpus import (
    OTHER_VOCAB_SIZE,
    PACKAGES,
    VOCAB_SIZE,
    Corpus,
    Crops,
    Document,
    encode,
    read_documents,
    read_packages,
    tokenizer_config,
    train_tokenizer,
)
from benchmarks.training.demo.distill import (
    acceptance,
    distillation_loss,
    mixed_draw,
    retokenized,
    sample_texts,
)
from benchmarks.training.demo.network import DRAFT, OTHER_DRAFT, TARGET, Decoder, Dimensions
from benchmarks.training.demo.train import (
    Draw,
    LossOf,
    Progress,
    Schedule,
    Trainer,
    cross_entropy,
    export,
    held_out_loss,
)

CHAT_SHARE = 0.04
OWN_TEXT_SHARE = 0.35


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("models/demo"))
    parser.add_argument("--scratch", type=Path, default=Path("build/demo"))
    parser.add_argument(
        "--start", type=Path, help="folder with a pair to go on from, as models/demo; else anew"
    )
    parser.add_argument("--target-tokens", type=float, default=28e6)
    parser.add_argument("--sampled-tokens", type=float, default=4e5)
    parser.add_argument("--draft-tokens", type=float, default=20e6, help="for each draft")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-compile", action="store_true", help="run torch eagerly")
    return parser.parse_args()


@dataclass(frozen=True)
class Data:
    """The corpus as one tokenizer spells it; `folder` keeps it and what is trained on it."""

    folder: Path
    tokenizer: Tokenizer
    corpus: Corpus

    @property
    def tokenizer_file(self) -> Path:
        return self.folder / "tokenizer.json"

    @property
    def crops(self) -> Crops:
        return Crops(self.corpus, self.tokenizer, chat_share=CHAT_SHARE)


def prepare(
    documents: list[Document],
    packages: list[Document],
    folder: Path,
    vocab_size: int,
    trained: Path | None = None,
) -> Data:
    """Encode the corpus once, with a trained tokenizer or a new one; a resumed run reads both."""
    folder.mkdir(parents=True, exist_ok=True)
    tokens_file, tokenizer_file = folder / "tokens.npz", folder / "tokenizer.json"
    if tokens_file.exists():
        with np.load(tokens_file) as saved:
            streams = dict(saved)
        if set(streams) == {each.name for each in fields(Corpus)}:  # not an earlier recipe's
            return Data(folder, Tokenizer.from_file(str(tokenizer_file)), Corpus(**streams))
    if trained is not None and trained.exists():
        tokenizer = Tokenizer.from_file(str(trained))
    else:
        tokenizer = train_tokenizer(documents, vocab_size)
    tokenizer.save(str(tokenizer_file))
    corpus = encode(documents, packages, tokenizer)
    np.savez(tokens_file, **vars(corpus))
    return Data(folder, tokenizer, corpus)


def write_folder(model: Decoder, folder: Path, tokenizer_file: Path) -> None:
    """A complete Hugging Face folder: weights, configuration and tokenizer."""
    export(model, folder)
    shutil.copyfile(tokenizer_file, folder / "tokenizer.json")
    settings = json.dumps(tokenizer_config(), indent=2)
    (folder / "tokenizer_config.json").write_text(settings + "\n")


def checkpoint(trainer: Trainer, data: Data) -> None:
    """Measure on held-out text and leave a loadable copy of the weights so far."""
    loss = held_out_loss(trainer.model, data.corpus.held_out)
    trained = round(trainer.progress.tokens / 1e6, 2)
    trainer.progress.held_out.append((trained, round(loss, 4)))
    print(f"{trainer.name} held-out loss {loss:.4f} at {trained} M tokens", flush=True)
    write_folder(trainer.model, data.folder / trainer.name, data.tokenizer_file)


def train(trainer: Trainer, data: Data, draw: Draw, loss_of: LossOf, compiled: bool) -> Progress:
    if compiled:
        loss_of = torch.compile(loss_of, dynamic=False)
    trainer.fit(draw, loss_of, partial(checkpoint, trainer, data))
    for weight in trainer.model.parameters():
        weight.requires_grad_(False)
    return trainer.progress


def average(model: Decoder, file: Path) -> None:
    """Set weights to the mean of themselves and those they began as (model soups, 2203.05482).

    A draft only loses by it: what it began as was taught by another target.
    """
    before = load_file(file)
    for name, weight in model.state_dict().items():
        weight.add_(before[name].to(weight.dtype)).div_(2)


def trainer_of(
    name: str, dims: Dimensions, seed: int, tokens: float, data: Data, start: Path | None
) -> Trainer:
    model = Decoder(dims, seed=seed)
    schedule = Schedule(tokens=int(tokens))
    if start is not None and (file := start / name / "model.safetensors").exists():
        model.load_state_dict(load_file(file))
        schedule = schedule.going_on()
    return Trainer(name, model, schedule, data.folder, seed=seed)


def train_target(options: argparse.Namespace, data: Data) -> Trainer:
    trainer = trainer_of("target", TARGET, 1, options.target_tokens, data, options.start)
    loss_of = partial(cross_entropy, trainer.model)
    train(trainer, data, data.crops.draw, loss_of, not options.no_compile)
    if options.start is not None and trainer.schedule.tokens:
        average(trainer.model, options.start / trainer.name / "model.safetensors")
        checkpoint(trainer, data)
    return trainer


def train_draft(
    options: argparse.Namespace, data: Data, target: Decoder, samples: NDArray[np.uint16]
) -> Trainer:
    trainer = trainer_of("draft", DRAFT, 2, options.draft_tokens, data, options.start)
    loss_of = partial(distillation_loss, target, trainer.model)
    draw = mixed_draw(data.crops, samples, OWN_TEXT_SHARE)
    train(trainer, data, draw, loss_of, not options.no_compile)
    return trainer


def train_other_draft(
    options: argparse.Namespace, data: Data, texts: NDArray[np.uint16]
) -> Trainer:
    """No distribution can be handed over between vocabularies: it learns from text alone."""
    name, tokens = "draft_bpe2048", options.draft_tokens
    trainer = trainer_of(name, OTHER_DRAFT, 3, tokens, data, options.start)
    loss_of = partial(cross_entropy, trainer.model)
    draw = mixed_draw(data.crops, texts, OWN_TEXT_SHARE)
    train(trainer, data, draw, loss_of, not options.no_compile)
    return trainer


def describe(trainer: Trainer) -> dict[str, object]:
    progress = trainer.progress
    held_out = progress.held_out[-1][1]
    return {
        "parameters": sum(weight.numel() for weight in trainer.model.parameters()),
        "steps": progress.steps,
        "tokens": progress.tokens,
        "minutes": round(progress.elapsed_s / 60, 1),
        "held_out_loss_nats": held_out,
        "held_out_perplexity": round(math.exp(held_out), 3),
        "training_loss": progress.losses[:: max(1, len(progress.losses) // 40)],
        "held_out_loss": progress.held_out[:: max(1, len(progress.held_out) // 40)],
    }


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    documents = read_documents()
    packages = read_packages([document for document in documents if document.is_held_out])
    options.out.mkdir(parents=True, exist_ok=True)
    held_out = [document.path for document in documents if document.is_held_out]
    (options.out / "heldout.txt").write_text("\n".join(held_out) + "\n")
    spelling = {
        name: options.start and options.start / name / "tokenizer.json"
        for name in ("target", "draft_bpe2048")
    }
    data = prepare(documents, packages, options.scratch, VOCAB_SIZE, spelling["target"])
    folder = options.scratch / "bpe2048"
    other = prepare(documents, packages, folder, OTHER_VOCAB_SIZE, spelling["draft_bpe2048"])
    target = train_target(options, data)
    samples = sample_texts(
        target.model, data.crops, int(options.sampled_tokens), options.scratch / "samples"
    )
    draft = train_draft(options, data, target.model, samples)
    texts = retokenized(samples, data.tokenizer, other.tokenizer)
    foreign = train_other_draft(options, other, texts)
    for trainer, of in ((target, data), (draft, data), (foreign, other)):
        write_folder(trainer.model, options.out / trainer.name, of.tokenizer_file)
    report = {
        "corpus": f"Python {platform.python_version()} standard library",
        "packages": {name: version(name) for name in PACKAGES if find_spec(name)},
        "library_tokens": int(data.corpus.library.size),
        "test_tokens": int(data.corpus.tests.size),
        "package_tokens": int(data.corpus.packages.size),
        "held_out_tokens": int(data.corpus.held_out.size),
        "sampled_tokens": int(samples.size),
        "target": describe(target),
        "draft": describe(draft),
        "draft_bpe2048": describe(foreign),
        "held_out_agreement": acceptance(target.model, draft.model, data.corpus.held_out),
    }
    (options.out / "training.json").write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
