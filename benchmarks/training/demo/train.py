# SPDX-License-Identifier: Apache-2.0
"""Training on a budget of tokens, resumable, at a pace that two shared cores can keep.

Attention costs a third of a step at windows of 512, so most of the text is read in windows of
256; longer ones come late, and every so often one of 4096, while the rate can still teach it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor, nn

from benchmarks.training.demo.network import Decoder

_VOCABULARIES = ("embed_tokens.weight", "embed_tokens_per_layer.weight", "lm_head.weight")
LossOf = Callable[[Tensor], Tensor]  # token ids [rows, length + 1] -> scalar loss
Draw = Callable[[np.random.Generator, int, int], NDArray[np.int64]]

_NATIVE_BF16 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


@dataclass(frozen=True)
class Schedule:
    tokens: int  # the budget; tokens rather than minutes, so that a busy machine trains as well
    muon_rate: float = 4e-3  # hidden matrices; update RMS matched to AdamW's
    adam_rate: float = 4e-3  # embeddings and norms
    weight_decay: float = 0.05
    warmup: float = 0.02  # share of the budget
    tokens_per_step: int = 16384
    short: int = 256
    medium: int = 512
    medium_from: float = 0.75  # of the budget
    long: int = 4096
    long_from: float = 0.5
    long_every: int = 32  # steps
    checkpoint_s: float = 400.0

    def going_on(self) -> Schedule:
        """For weights that were trained before: half the rates, which keep what they know."""
        return replace(self, muon_rate=self.muon_rate / 2, adam_rate=self.adam_rate / 2)

    def rate(self, progress: float) -> float:
        """Linear warm-up, then linear decay to zero; a factor of the base rates."""
        return min(progress / self.warmup, (1 - progress) / (1 - self.warmup), 1.0)

    def length(self, progress: float, step: int) -> int:
        if progress >= self.long_from and step % self.long_every == 0:
            return self.long
        return self.medium if progress >= self.medium_from else self.short


@dataclass
class Progress:
    """The figures that training.json reports about one model."""

    steps: int = 0
    tokens: int = 0
    elapsed_s: float = 0.0
    losses: list[tuple[float, float]] = field(default_factory=list)  # (minutes, mean loss)
    held_out: list[tuple[float, float]] = field(default_factory=list)  # (M tokens, nats/token)


def autocast(device: torch.device) -> torch.autocast:
    """bf16 where the processor computes with it; elsewhere it is several times slower than fp32."""
    native = device.type != "cpu" or _NATIVE_BF16
    return torch.autocast(device.type, torch.bfloat16, enabled=native)


def device_of(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def cross_entropy(model: Decoder, rows: Tensor) -> Tensor:
    """Mean next-token loss in nats; rows [rows, length + 1]."""
    with autocast(rows.device):
        logits = model(rows[:, :-1])
    return F.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())


@torch.no_grad()
def held_out_loss(model: Decoder, stream: NDArray[np.uint16], length: int = 512) -> float:
    """Nats a token over consecutive windows that cover the whole held-out stream."""
    total, count = 0.0, 0
    for start in range(0, stream.size - 1, 8 * length):
        window = stream[start : start + 8 * length + 1].astype(np.int64)
        usable = (window.size - 1) // length
        if usable == 0:
            break
        index = np.arange(usable)[:, None] * length + np.arange(length + 1)
        rows = torch.from_numpy(window[index]).to(device_of(model))
        total += cross_entropy(model, rows).item() * usable
        count += usable
    return total / count


def orthogonal(grad: Tensor, factors: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """Newton-Schulz iterations as those of torch.optim.Muon, in the gradient's own numbers."""
    tall = grad.shape[0] > grad.shape[1]
    x = grad.T if tall else grad
    x = x / x.norm().clamp(min=eps)
    a, b, c = factors
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


if not _NATIVE_BF16:  # where bfloat16 is emulated, Muon's own took 35 times as long: most of a step
    torch.optim._muon._zeropower_via_newtonschulz = orthogonal


class Optimisers:
    """Muon for hidden matrices, AdamW for embeddings, LM heads and norms."""

    def __init__(self, model: nn.Module, schedule: Schedule) -> None:
        hidden, other = [], []
        for name, weight in model.named_parameters():
            is_hidden = weight.ndim == 2 and not name.endswith(_VOCABULARIES)
            (hidden if is_hidden else other).append(weight)
        self._parts = (
            torch.optim.Muon(
                hidden,
                lr=schedule.muon_rate,
                weight_decay=schedule.weight_decay,
                adjust_lr_fn="match_rms_adamw",
            ),
            torch.optim.AdamW(
                other, lr=schedule.adam_rate, betas=(0.9, 0.95), weight_decay=0.0, eps=1e-8
            ),
        )
        self._rates = (schedule.muon_rate, schedule.adam_rate)

    def step(self, factor: float) -> None:
        for part, rate in zip(self._parts, self._rates, strict=True):
            for group in part.param_groups:
                group["lr"] = rate * factor
            part.step()
            part.zero_grad(set_to_none=True)

    def state(self) -> list[dict[str, object]]:
        return [part.state_dict() for part in self._parts]

    def load(self, states: list[dict[str, object]]) -> None:
        for part, state in zip(self._parts, states, strict=True):
            part.load_state_dict(state)


class Trainer:
    """Trains one model until its tokens are used up; `scratch` holds its checkpoint."""

    def __init__(
        self, name: str, model: nn.Module, schedule: Schedule, scratch: Path, seed: int = 1
    ) -> None:
        self.name, self.model, self.schedule = name, model, schedule
        self.progress = Progress()
        self._optimisers = Optimisers(model, schedule)
        self._file = scratch / f"{name}.pt"
        self._seed = seed
        if self._file.exists():
            self._load()

    @property
    def done(self) -> float:
        tokens = self.schedule.tokens  # none: the weights stay what they are
        return min(self.progress.tokens / tokens, 1.0) if tokens else 1.0

    def fit(self, draw: Draw, loss_of: LossOf, on_checkpoint: Callable[[], None]) -> None:
        """Train to the end of the budget, calling `on_checkpoint` every few minutes."""
        rng = np.random.default_rng((self._seed, self.progress.steps))
        clock = saved = time.monotonic()
        recent: list[float] = []
        while (done := self.done) < 1.0:
            recent.append(self._step(draw, loss_of, rng, done))
            now = time.monotonic()
            self.progress.elapsed_s += now - clock
            clock = now
            if len(recent) == 20:
                self._log(recent)
                recent.clear()
            if now - saved > self.schedule.checkpoint_s:
                on_checkpoint()
                self.save()
                saved = now
        on_checkpoint()
        self.save()

    def _step(self, draw: Draw, loss_of: LossOf, rng: np.random.Generator, done: float) -> float:
        length = self.schedule.length(done, self.progress.steps)
        rows = torch.from_numpy(draw(rng, self.schedule.tokens_per_step // length, length + 1))
        loss = loss_of(rows.to(device_of(self.model)))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self._optimisers.step(self.schedule.rate(done))
        self.progress.steps += 1
        self.progress.tokens += self.schedule.tokens_per_step
        return loss.item()

    def _log(self, recent: list[float]) -> None:
        progress, mean = self.progress, sum(recent) / len(recent)
        minutes = progress.elapsed_s / 60
        progress.losses.append((round(minutes, 2), round(mean, 4)))
        speed = progress.tokens / progress.elapsed_s
        print(
            f"{self.name} {progress.tokens / 1e6:.2f}/{self.schedule.tokens / 1e6:.0f} M tokens"
            f"  {minutes:.1f} min  loss {mean:.4f}  {speed:.0f} tokens/s",
            flush=True,
        )

    def save(self) -> None:
        state = {
            "model": self.model.state_dict(),
            "optimisers": self._optimisers.state(),
            "progress": asdict(self.progress),
        }
        fresh = self._file.with_suffix(".new")
        torch.save(state, fresh)
        os.replace(fresh, self._file)  # a kill in mid-write leaves the old checkpoint

    def _load(self) -> None:
        state = torch.load(self._file, weights_only=True, map_location=device_of(self.model))
        self.model.load_state_dict(state["model"])
        self._optimisers.load(state["optimisers"])
        self.progress = Progress(**state["progress"])
        print(f"{self.name}: resumed at {self.progress.elapsed_s / 60:.1f} min", flush=True)


def export(model: Decoder, folder: Path) -> None:
    """Write config.json, generation_config.json and model.safetensors (fp16)."""
    folder.mkdir(parents=True, exist_ok=True)
    generation = {"eos_token_id": [0, 4], "pad_token_id": 0, "_from_model_config": False}
    for name, value in (("config", model.dims.hf_config()), ("generation_config", generation)):
        (folder / f"{name}.json").write_text(json.dumps(value, indent=2) + "\n")
    tensors = {name: weight.half().contiguous() for name, weight in model.state_dict().items()}
    fresh = folder / "model.safetensors.new"
    save_file(tensors, fresh, metadata={"format": "pt"})
    os.replace(fresh, folder / "model.safetensors")  # readers never see half a file
