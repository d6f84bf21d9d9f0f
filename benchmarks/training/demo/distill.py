# SPDX-License-Identifier: Apache-2.0
"""The draft learns the target's distribution, on the corpus and on the target's own text."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from benchmarks.training.demo.corpus import Crops
from benchmarks.training.demo.network import Cache, Decoder
from benchmarks.training.demo.train import autocast, device_of

TEMPERATURES = (1.0, 0.7)
SAMPLE_ROWS, SAMPLE_LENGTH, PROMPT_LENGTH = 128, 513, 33
TRANSFER_WEIGHT = 0.85  # KL(teacher || student); the rest is cross-entropy with the text


@torch.inference_mode()
def sample_texts(teacher: Decoder, crops: Crops, tokens: int, scratch: Path) -> NDArray[np.uint16]:
    """Text written by the teacher after short corpus prompts, [rows, SAMPLE_LENGTH].

    Each batch is kept in `scratch`, so that an interrupted run goes on where it was.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    batches = math.ceil(tokens / (SAMPLE_ROWS * SAMPLE_LENGTH))
    return np.concatenate([_batch(teacher, crops, n, scratch / f"{n}.npy") for n in range(batches)])


def _batch(teacher: Decoder, crops: Crops, number: int, file: Path) -> NDArray[np.uint16]:
    if not file.exists():
        rng = np.random.default_rng((7, number))
        torch.manual_seed(7 + number)
        prompts = torch.from_numpy(crops.draw(rng, SAMPLE_ROWS, PROMPT_LENGTH))
        prompts = prompts.to(device_of(teacher))
        temperature = TEMPERATURES[number % len(TEMPERATURES)]
        fresh = file.with_suffix(".new.npy")
        np.save(fresh, _continue(teacher, prompts, temperature).cpu().numpy().astype(np.uint16))
        os.replace(fresh, file)
        print(f"sampled {(number + 1) * SAMPLE_ROWS * SAMPLE_LENGTH} tokens", flush=True)
    return np.load(file)  # type: ignore[no-any-return]


def _continue(teacher: Decoder, prompts: Tensor, temperature: float) -> Tensor:
    # float32: bfloat16 kernels are prepared anew for every length of the cache.
    cache = Cache(teacher.dims, prompts, SAMPLE_LENGTH, torch.float32)
    text, fresh = prompts, prompts
    while text.shape[1] < SAMPLE_LENGTH:
        logits = teacher(fresh, cache)[:, -1] / temperature
        # Exponential race: argmax(p / e) is a draw from p, and cheaper than multinomial.
        race = torch.empty_like(logits).exponential_()
        fresh = (logits.softmax(-1) / race).argmax(-1, keepdim=True)
        text = torch.cat((text, fresh), dim=1)
    return text


def retokenized(
    samples: NDArray[np.uint16], spelt: Tokenizer, wanted: Tokenizer
) -> NDArray[np.uint16]:
    """The teacher's texts in another vocabulary, cut into rows of SAMPLE_LENGTH tokens."""
    texts = spelt.decode_batch(samples.tolist(), skip_special_tokens=False)
    ids = [token for encoding in wanted.encode_batch(texts) for token in encoding.ids]
    rows = len(ids) // SAMPLE_LENGTH
    return np.array(ids[: rows * SAMPLE_LENGTH], dtype=np.uint16).reshape(rows, SAMPLE_LENGTH)


def mixed_draw(
    crops: Crops, samples: NDArray[np.uint16], share: float
) -> Callable[[np.random.Generator, int, int], NDArray[np.int64]]:
    """Corpus windows, about `share` of them replaced by the teacher's texts.

    Windows longer than a sampled text come from the corpus alone.
    """

    def draw(rng: np.random.Generator, rows: int, length: int) -> NDArray[np.int64]:
        windows = crops.draw(rng, rows, length)
        if length <= samples.shape[1]:
            own = rng.random(rows) < share
            chosen = rng.integers(0, len(samples), int(own.sum()))
            windows[own] = samples[chosen, :length]
        return windows

    return draw


def distillation_loss(teacher: Decoder, student: Decoder, rows: Tensor) -> Tensor:
    """0.85 KL(teacher || student) + 0.15 cross-entropy, nats a token; rows [rows, length + 1]."""
    with torch.no_grad(), autocast(rows.device):
        taught = teacher(rows[:, :-1])
    with autocast(rows.device):
        logits = student(rows[:, :-1])
    wanted = taught.float().flatten(0, 1).log_softmax(-1)
    got = logits.float().flatten(0, 1).log_softmax(-1)
    divergence = F.kl_div(got, wanted, reduction="batchmean", log_target=True)
    text = F.nll_loss(got, rows[:, 1:].flatten())
    return TRANSFER_WEIGHT * divergence + (1 - TRANSFER_WEIGHT) * text


@torch.no_grad()
def acceptance(
    teacher: Decoder, student: Decoder, stream: NDArray[np.uint16], length: int = 512
) -> dict[str, float]:
    """Agreement on held-out text: top-1 (greedy) and sum min(p, q) at temperatures 1 and 0.8."""
    usable = (stream.size - 1) // length
    rows = torch.from_numpy(stream[: usable * length].astype(np.int64).reshape(usable, length))
    totals = {"greedy_top1": 0.0, "sampled_alpha_t1.0": 0.0, "sampled_alpha_t0.8": 0.0}
    for part in rows.split(4):
        part = part.to(device_of(teacher))
        with autocast(part.device):
            target, draft = teacher(part).float(), student(part).float()
        agree = target.argmax(-1) == draft.argmax(-1)
        totals["greedy_top1"] += agree.sum().item()
        for temperature in (1.0, 0.8):
            p, q = (target / temperature).softmax(-1), (draft / temperature).softmax(-1)
            overlap = torch.minimum(p, q).sum().item()
            totals[f"sampled_alpha_t{temperature}"] += overlap
    return {name: round(total / rows.numel(), 4) for name, total in totals.items()}
