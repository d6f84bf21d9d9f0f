"""The user's sampling options."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from edgedec._support.options import TEXT, check_whole, described, option
from edgedec.errors import InputError

_COLDEST = 1e-3
_LARGEST_LOGIT_CHANGE = 1e6


@described
@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Options for choosing the next token. Checked on creation; errors are InputError.

    Order, as everywhere in the field: logit bias, repetition / presence / frequency penalties,
    temperature, top-k, top-p, min-p, draw. Each filter takes the renormalised probabilities left by
    the filters before it; equal ones are ordered by id, so that the sets are the same on every
    machine.

    """

    # fmt: off
    temperature: float = option(
        0.0, "0 is greedy. By default an answer of a chat template is drawn as the model's files"
        " ask for, else at 0.7 with top-k 40 and top-p 0.9; other texts are greedy.",
        text="0 is greedy: the most likely token after bias and penalties.", group=TEXT,
        wire=(0, 100),
    )
    top_k: int = option(
        0, "Keep the k most likely tokens; 0 keeps all.", group=TEXT, wire=(-1, 1 << 31),
    )
    top_p: float = option(
        1.0, "Keep the most likely tokens whose probabilities add up to this.", group=TEXT,
        wire=(0, 1),
    )
    min_p: float = option(
        0.0, "Keep tokens with at least this share of the highest probability.", group=TEXT,
        wire=(0, 1),
    )
    repetition_penalty: float = option(
        1.0, "Above 1: tokens of prompt and text become less likely.",
        text="divides positive and multiplies negative logits of every token already in the prompt"
        " or the text (CTRL, 1909.05858, section 4.1); 1 is none.", group=TEXT, wire=(0, 100),
    )
    presence_penalty: float = option(
        0.0, "Subtracted from the logits of tokens that occur in the text, not the prompt.",
        group=TEXT, wire=(-2, 2),
    )
    frequency_penalty: float = option(
        0.0, "Subtracted from a token's logit for each time it occurs in the text, not the prompt.",
        group=TEXT, wire=(-2, 2),
    )
    logit_bias: dict[int, float] = option(
        dict, "Added to this token's logit; repeatable.", text="added to the logits of these token"
        " ids.", group=TEXT, kind="bias", metavar="ID=VALUE", takes="Mapping[int, float]",
    )
    seed: int | None = option(
        None, "Random seed; default: one is drawn and reported.", group=TEXT, short="-s",
        kind="seed", metavar="N", wire=(-(1 << 63), 1 << 63),
    )
    # fmt: on

    def __post_init__(self) -> None:
        limit = _LARGEST_LOGIT_CHANGE
        if self.temperature != 0:
            _check("temperature", self.temperature, _COLDEST, limit, f"0 (greedy) or {_COLDEST} to")
        check_whole("top_k", self.top_k, none=False)
        if self.top_k < 0:
            raise InputError(f"top_k {self.top_k}: expected 1 or more, or 0 to keep all tokens")
        check_whole("seed", self.seed)
        _check("top_p", self.top_p, math.nextafter(0, 1), 1, "more than 0, at most")
        _check("min_p", self.min_p, 0, 1, "0 to")
        _check("repetition_penalty", self.repetition_penalty, 1 / limit, limit, "more than 0, to")
        _check("presence_penalty", self.presence_penalty, -limit, limit, f"{-limit:g} to")
        _check("frequency_penalty", self.frequency_penalty, -limit, limit, f"{-limit:g} to")
        if not isinstance(self.logit_bias, Mapping):
            raise InputError(f"logit_bias {self.logit_bias!r:.60}: expected token ids with numbers")
        for token, bias in self.logit_bias.items():
            check_whole("logit_bias of token", token, none=False)
            _check(f"logit_bias of token {token}", bias, -limit, limit, f"{-limit:g} to")

    @property
    def greedy(self) -> bool:
        """True if nothing is drawn."""
        return self.temperature == 0

    @property
    def penalised(self) -> bool:
        """True if a row depends on the earlier text by more than the model's own logits."""
        return (
            self.repetition_penalty != 1
            or self.presence_penalty != 0
            or self.frequency_penalty != 0
        )

    @property
    def filtered(self) -> bool:
        """True if some tokens may lose all their probability."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0


def _check(name: str, value: Any, low: float, high: float, expected: str) -> None:
    number: Any = value if isinstance(value, Real) else math.nan
    if not low <= number <= high:  # false for NaN
        raise InputError(f"{name} {value!r:.60}: expected {expected} {high:g}")
