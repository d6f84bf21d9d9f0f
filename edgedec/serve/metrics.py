"""The server's figures, as Prometheus reads them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from edgedec.generation.result import Generation
from edgedec.hardware.resident import resident_bytes
from edgedec.serve.turns import Ticket

CONTENT_TYPE = CONTENT_TYPE_LATEST
_TTFT_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_TPOT_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)


class ServerMetrics:
    """Counts requests and texts.

    Args:
        granted: returns the bytes that the process may hold; None without a limit.

    """

    def __init__(self, granted: Callable[[], int] | None) -> None:
        self.registry = CollectorRegistry()
        self._lock = threading.Lock()
        self._drafted = self._accepted = self._emitted = self._passes = 0
        registry = self.registry

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"edgedec_{name}", text, labels, registry=registry)

        self._requests = counter("requests", "Requests answered.", "route", "status")
        self._texts = counter("texts", "Texts decoded.", "finish_reason")
        self._prompt = counter("prompt_tokens", "Tokens of prompts.")
        self._reused = counter("reused_tokens", "Tokens of prompts that were not read again.")
        self._generated = counter("generated_tokens", "Tokens of texts.")
        self._drafts = counter("drafted_tokens", "Tokens that were drafted.")
        self._accepts = counter("accepted_tokens", "Drafted tokens that were accepted.")
        self._target_passes = counter("target_passes", "Passes of the target.")
        self._gauge(
            "acceptance_rate", "Accepted / drafted tokens of all texts.", self._acceptance_rate
        )
        self._gauge(
            "block_efficiency", "Tokens / target passes of all texts.", self._block_efficiency
        )
        self._gauge("memory_bytes", "Bytes that the process holds.", resident_bytes)
        if granted is not None:
            self._gauge("memory_granted_bytes", "Bytes that it may hold.", granted)
        self._ttft = Histogram(
            "edgedec_ttft_seconds", "A request's arrival to its first token.", buckets=_TTFT_S,
            registry=registry,
        )  # fmt: skip
        self._tpot = Histogram(
            "edgedec_tpot_seconds", "Seconds per token after the first round.", buckets=_TPOT_S,
            registry=registry,
        )  # fmt: skip

    def watch(
        self, running: Callable[[], int], waiting: Callable[[], int], loaded: Callable[[], int]
    ) -> None:
        """Report the numbers of requests that take turns and that wait, and of loaded models."""
        self._gauge("loaded_models", "Models that are loaded.", loaded)
        self._gauge("running_requests", "Requests that take turns.", running)
        self._gauge("waiting_requests", "Requests that wait for a place.", waiting)

    def answered(self, route: str, status: int) -> None:
        """Count a request."""
        self._requests.labels(route, str(status)).inc()

    def finished(self, ticket: Ticket, result: Generation) -> None:
        """Count a finished text; called in the decoding thread."""
        metrics = result.metrics
        self._texts.labels(result.finish_reason).inc()
        self._prompt.inc(result.prompt_tokens)
        self._reused.inc(metrics.reused_tokens)
        self._generated.inc(metrics.emitted)
        self._drafts.inc(metrics.drafted_tokens)
        self._accepts.inc(metrics.accepted_tokens)
        self._target_passes.inc(metrics.target_passes)
        with self._lock:
            self._drafted += metrics.drafted_tokens
            self._accepted += metrics.accepted_tokens
            self._emitted += metrics.emitted
            self._passes += metrics.target_passes
        if ticket.first_at is not None and ticket.last_at is not None:
            if ticket.choice == 0:
                self._ttft.observe(ticket.first_at - ticket.began)
            later = metrics.emitted - metrics.first_round
            if later:
                self._tpot.observe((ticket.last_at - ticket.first_at) / later)

    def page(self) -> bytes:
        """Return all figures as text."""
        return generate_latest(self.registry)

    def _gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        Gauge(f"edgedec_{name}", text, registry=self.registry).set_function(value)

    def _acceptance_rate(self) -> float:
        return self._accepted / self._drafted if self._drafted else 0.0

    def _block_efficiency(self) -> float:
        return self._emitted / self._passes if self._passes else 0.0
