"""One line of figures about a generation, and how notebooks show it."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from edgedec.decoding.drafting import PLAIN
from edgedec.decoding.metrics import Metrics

# Shorter texts do not tell how much faster than plain decoding they were, nor does a machine on
# which a thread waits for a core for more than this share of the time.
_ENOUGH, _BUSY = 64, 0.15


def line(metrics: Metrics, setup: Mapping[str, Any], finish_reason: str) -> str:
    """Return the figures, such as ``128 tokens in 0.4 s, 1.4x plain decoding (length)``."""
    tokens = "1 token" if metrics.emitted == 1 else f"{metrics.emitted} tokens"
    parts = [f"{tokens} in {_duration(metrics.ttft_s + metrics.decode_s)}"]
    busy = metrics.waited_share >= _BUSY
    drafted = metrics.drafted_tokens and setup.get("drafter") != PLAIN
    if drafted and metrics.emitted >= _ENOUGH and not busy and metrics.speedup_estimate is not None:
        parts.append(f"{metrics.speedup_estimate:.1f}x plain decoding")
    parts += ["busy machine"] if busy else []
    return f"{', '.join(parts)} ({finish_reason})"


def as_html(text: str, figures: str) -> str:
    """Return a text and its figures as HTML, in which nothing of them is markup."""
    shown = f'<pre style="white-space: pre-wrap">{html.escape(text)}</pre>'
    return f"{shown}<small>{html.escape(figures)}</small>"


def _duration(seconds: float) -> str:
    """Format a duration with a digit that means something."""
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{seconds * 1000:.0f} ms"
