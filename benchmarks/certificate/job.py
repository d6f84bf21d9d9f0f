"""The subject of a certificate: a model, prompts and options."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import Any

from edgedec.decoding.sampling import SamplingParams
from edgedec.loading.build import OpenOptions
from edgedec.pipeline import GenerateOptions
from edgedec.verify.results import GREEDY, Case, alike
from edgedec.verify.same_texts import Prompts

SAMPLED = "sampled"


@dataclass(frozen=True, slots=True)
class Job:
    """The subject of a certificate.

    Attributes:
        bundle: a bundle's folder, ``demo``, or a GGUF file.
        prompts: (name, prompt) pairs.
        source: describes where the prompts come from.
        options: load options; the certificate sets drafter, lengths, rule, format and schedule.
        tokens: length of each text in tokens.
        temperature: temperature of sampled texts, above 0.
        seed: seed of the first prompt's sampled text; it increases by one per prompt.
        chunk: number of prompts that are compared before their result is stored.

    """

    bundle: str
    prompts: Prompts
    source: str
    options: OpenOptions = field(default_factory=lambda: OpenOptions(plan="none"))
    tokens: int = 64
    temperature: float = 0.8
    seed: int = 0
    chunk: int = 100

    def chunks(self) -> list[range]:
        """Return the prompts' indices, chunk by chunk."""
        count = len(self.prompts)
        return [
            range(start, min(start + self.chunk, count)) for start in range(0, count, self.chunk)
        ]

    def cases(self, indices: range) -> list[Case]:
        """Return the greedy case and the sampled one, in which each prompt has its own seed."""
        greedy = GenerateOptions(self.tokens, ignore_eos=True)
        sampled = tuple(replace(greedy, sampling=self.sampling(index)) for index in indices)
        return [alike(GREEDY, greedy, len(indices)), Case(SAMPLED, sampled)]

    def sampling(self, index: int) -> SamplingParams:
        """Return the sampling parameters of a prompt's sampled text."""
        return SamplingParams(temperature=self.temperature, seed=self.seed + index)

    def settings(self) -> dict[str, Any]:
        """Return everything but the model's files, as JSON."""
        prompts = json.dumps([[name, prompt] for name, prompt in self.prompts])
        return {
            "prompts": len(self.prompts),
            "prompts_from": self.source,
            "prompts_sha256": hashlib.sha256(prompts.encode()).hexdigest(),
            "tokens": self.tokens,
            "temperature": self.temperature,
            "seed": self.seed,
            "options": _chosen(self.options),
        }


def _chosen(options: OpenOptions) -> dict[str, Any]:
    """Return the options that differ from the defaults."""
    return {
        name: value if isinstance(value, (bool, int, float)) else str(value)
        for name, value in options.chosen().items()
        if (name, value) != ("plan", "none")
    }
