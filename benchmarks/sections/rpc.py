"""Measures a target that is spread over two of llama.cpp's RPC servers, by the network's delay.

The servers are processes on this machine. Their delay is the kernel's (``tc netem``, in a network
namespace each; root) or, where it has none, that of a relay (``benchmarks.delay``). All share the
machine's cores, so the figures show what delay costs and what drafts win back, not what two
machines compute.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from benchmarks.bundles import GROWN, Suite
from edgedec.compare.drafters import PLAIN
from edgedec.compare.interleaved import compare
from edgedec.compare.records import Recorder, Row
from edgedec.errors import EdgedecError
from edgedec.pipeline import GenerateOptions, Pipeline, Prompt

_SERVER = "edgedec.runtimes.llamacpp.rpc_server"
_DELAYS_MS = (0.0, 1.0, 5.0, 20.0)
_SERVERS, _TOKENS = 2, 64
_PATIENCE_S = 60.0
HERE = "this machine"


@dataclass(frozen=True, slots=True)
class Plainly:
    """The same pipeline without drafts."""

    pipeline: Pipeline

    def generate(self, prompt: Prompt, options: GenerateOptions | None = None) -> Any:
        """Decode to the end."""
        return self.pipeline.generate(prompt, replace(options or GenerateOptions(), drafter="none"))


def rpc(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare drafts with plain decoding at added round trips of 0, 1, 5 and 20 ms."""
    rows = [_row(suite, recorder, HERE, None, 0.0)]
    for delay_ms in _DELAYS_MS:
        with servers(delay_ms) as (names, how):
            rows.append(_row(suite, recorder, how, names, delay_ms))
    return recorder.table(rows)


def _row(
    suite: Suite, recorder: Recorder, where: str, names: Sequence[str] | None, delay_ms: float
) -> Row:
    target = suite.bundles.gguf("target", "q4_0", GROWN)
    draft = suite.bundles.gguf("draft", "q8_0")
    asked = GenerateOptions(max_new_tokens=_TOKENS, ignore_eos=True)
    spread = {"rpc": ",".join(names)} if names else {}
    with Pipeline.open(target, suite.plain(), draft=draft, drafter="model", **spread) as pipeline:
        candidates: dict[str, Any] = {PLAIN: Plainly(pipeline), "drafted": pipeline}
        before = len(_seen)
        found = compare(candidates, suite.code(), asked, _noting(recorder, where, delay_ms))
        runs = _seen[before:]
    drafted = [run for run in runs if run["candidate"] == "drafted"]
    passes = sum(run["target_passes"] for run in drafted)
    return {
        "where": where,
        "round_trip_ms": delay_ms,
        "connect_ms": None if names is None else connect_ms(names[0]),
        "plain_tokens_per_second": 1 / median(found.tpot_s[PLAIN]),
        "drafted_tokens_per_second": 1 / median(found.tpot_s["drafted"]),
        "speedup": found.speedup("drafted"),
        "draft_length": sum(run["drafted_tokens"] for run in drafted) / passes,
        "block_efficiency": sum(run["tokens"] for run in drafted) / passes,
    }
