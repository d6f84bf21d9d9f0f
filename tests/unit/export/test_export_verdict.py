"""A word for the parity of an export, from its figures."""

import math

import pytest

from edgedec.export.divergence import FLOORS, ParityFigures
from edgedec.export.parity import GOOD, USABLE, verdict


def figures(kl_nats: float, top1: float, ratio: float) -> dict[str, float]:
    return {"tokens": 383, "kl_nats": kl_nats, "top1": top1, "perplexity_source": 50.0,
            "perplexity": 50.0 * ratio, "fp32_layer_error": 0.0}  # fmt: skip


@pytest.mark.parametrize(
    ("kl_nats", "top1", "ratio", "word"),
    [
        # Exports of the pair that ships: int8 and fp16, int4, int4 in blocks of 256.
        (0.0, 1.0, 1.0, "good"),
        (0.0004, 0.979, 1.002, "good"),
        (0.0396, 0.8303, 1.0076, "usable"),
        (0.0534, 0.8355, 1.065, "usable"),
        (0.0811, 0.7624, 1.0092, "usable"),
        # One figure alone decides.
        (GOOD.kl_nats + 1e-6, 1.0, 1.0, "usable"),
        (0.0, GOOD.top1 - 1e-6, 1.0, "usable"),
        (0.0, 1.0, GOOD.perplexity_ratio + 1e-6, "usable"),
        (USABLE.kl_nats + 1e-6, 1.0, 1.0, "poor"),
        (0.0, USABLE.top1 - 1e-6, 1.0, "poor"),
        (0.0, 1.0, USABLE.perplexity_ratio + 1e-6, "poor"),
        (0.0, 1.0, 0.5, "good"),  # a lucky text
    ],
)
def test_the_word_goes_by_the_worst_figure(kl_nats, top1, ratio, word):
    assert verdict(figures(kl_nats, top1, ratio)).split()[0] == word


def test_it_says_what_keeps_it_from_being_better():
    assert verdict(figures(0.05, 0.83, 1.01)) == (
        "usable (KL 0.05 nats, over 0.02; the best token is the source's at 83.0%, under 90%)"
    )
    assert verdict(figures(0.0, 1.0, 1.3)).startswith(
        "poor (perplexity 1.30 times the source's, over 1.1): "
    )


def test_figures_that_are_missing_have_no_word():
    assert verdict({}) == ""
    assert verdict({**figures(0.0, 1.0, 1.0), "perplexity_source": 0.0}) == ""
    assert verdict(figures(math.nan, 1.0, 1.0)) == ""


def test_what_a_format_lets_pass_may_be_poor_and_never_more_than_good():
    """The floor of 4 bits, where an export fails, lies below what is called usable."""
    floor = FLOORS["int4"]
    worst = ParityFigures(383, floor.kl_nats, floor.top1, 50.0, 50.0 * floor.perplexity_ratio, 0.0)
    worst.check("target", "int4")
    assert verdict(figures(floor.kl_nats, floor.top1, floor.perplexity_ratio)).startswith("poor")
    exact = FLOORS["fp16"]
    assert verdict(figures(exact.kl_nats, exact.top1, exact.perplexity_ratio)) == "good"
