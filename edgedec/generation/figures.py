"""One line of figures about a generation, and how notebooks show it."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgedec.decoding.drafting import PLAIN

if TYPE_CHECKING:
    from edgedec.decoding.metrics import Metrics

# Shorter texts do not tell how much faster than plain decoding they were, nor does a machine on
# which a thread waits for a core for more than this share of the time, which slows passes.
ENOUGH, _BUSY = 64, 0.15


def line(metrics: Metrics, setup: Mapping[str, Any], finish_reason: str) -> str:
    """Return the figures, such as ``128 tokens in 0.4 s, 1.4x plain decoding (length)``."""
    parts = [*gained(metrics, setup), *(["busy machine"] if is_busy(metrics) else [])]
    return f"{', '.join(parts)} ({finish_reason})"


def gained(metrics: Metrics, setup: Mapping[str, Any]) -> list[str]:
    """Return the clauses on time and on what drafts gained.

    The counts do not depend on what else the machine does, so they are always given; the factor is
    an estimate from times.
    """
    parts = [took(metrics)]
    if (faster := speedup(metrics, setup)) is not None:
        parts.append(f"{faster:.1f}x plain decoding")
    if metrics.drafted_tokens and setup.get("drafter") != PLAIN:
        parts.append(f"{metrics.block_efficiency:.1f} tokens a pass")
        parts.append(f"{metrics.accepted_tokens} of {metrics.drafted_tokens} drafts kept")
    return [*parts, *(["nothing drafted"] if drafted_nothing(metrics, setup) else [])]


def took(metrics: Metrics) -> str:
    """Return how many tokens there are, and the time they took."""
    tokens = "1 token" if metrics.emitted == 1 else f"{metrics.emitted} tokens"
    return f"{tokens} in {_duration(metrics.ttft_s + metrics.decode_s)}"


def speedup(metrics: Metrics, setup: Mapping[str, Any]) -> float | None:
    """Return how much faster than plain decoding a text was; None if that cannot be told."""
    drafted = metrics.drafted_tokens and setup.get("drafter") != PLAIN
    if not drafted or metrics.emitted < ENOUGH or is_busy(metrics):
        return None
    return metrics.speedup_estimate


def drafted_nothing(metrics: Metrics, setup: Mapping[str, Any]) -> bool:
    """Return whether a drafter had drafts to make and made none; one token needs none."""
    return metrics.emitted > 1 and not metrics.drafted_tokens and setup.get("drafter") != PLAIN


def is_busy(metrics: Metrics) -> bool:
    """Return whether other programs kept the text waiting."""
    return metrics.waited_share >= _BUSY


def as_html(text: str, figures: str) -> str:
    """Return a text and its figures as HTML, in which nothing of them is markup."""
    shown = f'<pre style="white-space: pre-wrap">{html.escape(text)}</pre>'
    return f"{shown}<small>{html.escape(figures)}</small>"


def _duration(seconds: float) -> str:
    """Format a duration with a digit that means something."""
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{seconds * 1000:.0f} ms"
