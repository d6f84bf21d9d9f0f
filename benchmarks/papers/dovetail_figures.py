"""Dovetail's figures (2412.18934), with the inputs of their simulation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from benchmarks.papers.dovetail import (
    ACCEPTED,
    ANSWER,
    BASE,
    DRAFT_LAYERS,
    ON_GPU,
    PROMPT,
    Machine,
    gpu_gigabytes,
)
from benchmarks.papers.reproduction import Claim
from edgedec.simulation import cards
from edgedec.simulation.cards import Card
from edgedec.simulation.figures import Figure

PAPER = "Dovetail (2412.18934)"
_CODE = "https://github.com/ddInference/Dovetail"
_ABSTRACT = "https://arxiv.org/abs/2412.18934"
_SERVER = Machine(cards.load("dovetail-server"), "fp32", nodes=16, passes=8)
_LAPTOP = Machine(cards.load("dovetail-laptop"), "int8", nodes=7, passes=5)
_SIX_MORE = "more with six"
_GPU = ("devices.gpu.bandwidth_share", "devices.gpu.launch_s")


def _guess(low: float, high: float, note: str) -> Figure:
    return Figure(low, high, "estimate", "this reproduction", "", note)


def _on(card: Card, *names: str) -> dict[str, Figure]:
    figures = card.figures()
    return {name: figures[name] for name in names}


_TEXTS = {
    PROMPT: _guess(
        250, 550, "220 to 350 tokens with the chat model's system prompt, at 65 to 90% of the peak"
    ),
    ANSWER: Figure(
        250, 512, "derived", "Dovetail's code: at most 512 new tokens", _CODE, "few end much before"
    ),
}
_FIVE_LENGTH = Figure(
    5.77,
    5.90,
    "measured",
    "Dovetail: accepted length with five extra blocks",
    _ABSTRACT,
    "its code divides tokens by the last round's index: one round too few, of 45 to 85 a text",
)
_LAYERS = Figure(
    5,
    6,
    "derived",
    "Dovetail's code: configurations of 5 and of 6 layers",
    _CODE,
    "extra blocks are counted beside a first one in its table, and not in its scripts",
)
_OFFLOADED = Figure(10, 10, "derived", "Dovetail's run_accl.sh: --ngl 10", _CODE)
_FIVE = {
    BASE: Figure(2.12, 2.12, "measured", "Dovetail: CPU-only, 7B on the server", _ABSTRACT),
    **_on(_SERVER.card, "devices.cpu.flops.fp32", "devices.cpu.flops_share", *_GPU),
    ACCEPTED: _FIVE_LENGTH,
    DRAFT_LAYERS: _LAYERS,
    **_TEXTS,
}
_MEMORY = {
    DRAFT_LAYERS: _LAYERS,
    "tokens in the draft's cache": Figure(
        500, 900, "derived", "Dovetail's code: at most 512 new tokens", _CODE, "and the prompt"
    ),
    "buffers, GB": _guess(0.02, 0.2, "activations and logits of a prompt; its code asks PyTorch"),
}


@cache
def _server(inputs: tuple[tuple[str, float], ...]) -> float:
    return _SERVER.speculative(dict(inputs))


def _speed(values: Mapping[str, float]) -> float:
    return _server(tuple(sorted(values.items())))


def _six_over_five(values: Mapping[str, float]) -> float:
    five = {name: value for name, value in values.items() if name != _SIX_MORE}
    six = {
        **five,
        ACCEPTED: five[ACCEPTED] + values[_SIX_MORE],
        DRAFT_LAYERS: five[DRAFT_LAYERS] + 1,
    }
    return _speed(six) / _speed(five)


def _offloaded_over_five(values: Mapping[str, float]) -> float:
    none = {name: value for name, value in values.items() if name != ON_GPU}
    return _speed(values) / _speed(none)


def _plain_claims() -> list[Claim]:
    parts = ("devices.cpu.bandwidth_share", "devices.cpu.launch_s")
    return [
        Claim(
            PAPER,
            "CPU-only tokens/s, 7B fp32 on the Xeon 4214R",
            2.12,
            {**_on(_SERVER.card, *parts, "devices.cpu.flops.fp32"), **_TEXTS},
            _SERVER.plain,
            "What PyTorch's one-row products reach of the memory's peak is an estimate, and how "
            "many of the six channels are in use is not known to us.",
        ),
        Claim(
            PAPER,
            "CPU-only tokens/s, 7B int8 on the i5-9300H",
            3.65,
            {**_on(_LAPTOP.card, *parts, "devices.cpu.flops.int8"), **_TEXTS},
            _LAPTOP.plain,
            "What int8 products with one row reach of the memory's peak is an estimate.",
        ),
    ]


def _speed_claims() -> list[Claim]:
    return [
        Claim(
            PAPER,
            "tokens/s, five extra blocks, 2080 SUPER + 4214R",
            5.86,
            _FIVE,
            _speed,
            "The cost of verifying 16 rows in fp32 on 12 cores decides it: the clock under vector "
            "code and what skinny products reach of the peak are known to a factor of two each.",
        ),
        Claim(
            PAPER,
            "speed-up, five extra blocks, 2080 SUPER + 4214R",
            2.77,
            _FIVE,
            lambda values: _speed(values) / values[BASE],
            "As above. The paper's baseline counts re-tokenised text, its own method generated "
            "tokens.",
        ),
        Claim(
            PAPER,
            "speed with 7 GB of GPU memory over that with 3 GB",
            8 / 5.86,
            {**_FIVE, ON_GPU: _OFFLOADED},
            _offloaded_over_five,
            "Ten of the target's 32 layers on the GPU take as much of the verification away, "
            "whatever it costs.",
        ),
        Claim(
            PAPER,
            "six extra blocks over five, speed ratio",
            2.75 / 2.77,
            {
                **_FIVE,
                _SIX_MORE: Figure(
                    0.08, 0.08, "derived", "Dovetail: accepted lengths 5.98 and 5.90", _ABSTRACT
                ),
            },
            _six_over_five,
            "One block more makes the draft's eight passes longer, and brings 0.08 tokens: about "
            "even, as the paper found. Both published speed-ups are rounded to three digits; a "
            "ratio near one is easily met.",
            rounding=2.75 / 2.77 * (0.005 / 2.75 + 0.005 / 2.77),
        ),
        _laptop_claim(),
    ]


def _laptop_claim() -> Claim:
    return Claim(
        PAPER,
        "tokens/s on the laptop, GTX 1050 + i5-9300H",
        6.35,
        {
            BASE: Figure(3.65, 3.65, "measured", "Dovetail: CPU-only, laptop", _ABSTRACT),
            **_on(_LAPTOP.card, "devices.cpu.flops.int8", "devices.cpu.flops_share", *_GPU),
            ACCEPTED: Figure(
                3.2,
                4.4,
                "derived",
                "Dovetail: accepted length of the server's deeper tree",
                _ABSTRACT,
                "7 nodes of 16 and five levels of eight, at the same chance a level",
            ),
            DRAFT_LAYERS: _LAYERS,
            **_TEXTS,
        },
        _LAPTOP.speculative,
        "The laptop's accepted length is not known to us, its processor has no int8 dot "
        "product, and the verification of 7 rows is known to a factor of three.",
    )


def _memory_claims() -> list[Claim]:
    return [
        Claim(
            PAPER,
            "GPU memory of the draft, GB",
            3.0,
            _MEMORY,
            gpu_gigabytes,
            "Weights, cache and buffers of the draft, its embedding and the target's head.",
        ),
        Claim(
            PAPER,
            "GPU memory with ten layers of the target, GB",
            7.0,
            {
                **_MEMORY,
                ON_GPU: _OFFLOADED,
                "tokens in the target's cache": Figure(
                    500,
                    4096,
                    "derived",
                    "Dovetail's code: a cache of all positions, or what is used of it",
                    _CODE,
                    "4096 positions are reserved at once where the offloaded layers' cache is too",
                ),
            },
            gpu_gigabytes,
            "As above, and ten of 32 layers in fp16.",
        ),
    ]


def claims() -> list[Claim]:
    """Return the figures that are compared with the paper."""
    return [*_plain_claims(), *_speed_claims(), *_memory_claims()]
