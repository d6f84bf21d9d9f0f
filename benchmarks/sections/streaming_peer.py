"""Races a streamed target with drafts against llama.cpp's speculation over mapped weights.

Both have the same pair, prompts and memory limit, in control groups of their own, and cold files.
llama.cpp maps its weights without repacking: repacked weights would be a copy in memory, for which
such a limit has no room.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.bundles import GROWN, Suite
from benchmarks.peers import llamacpp
from benchmarks.race import environment
from benchmarks.race.children import Failed, ask
from benchmarks.race.protocol import file_of
from benchmarks.sections.control_group import limited
from benchmarks.sections.streaming import MOST_PROMPTS, SHARES, TOKENS, Storage, cool
from edgedec.compare.records import Recorder, Row
from edgedec.errors import InputError, RuntimeUnavailable
from edgedec.hardware.device import available_cores
from edgedec.models.demo.heldout import heldout_prompts

# The kind that drafts like ours, at lengths for cheap and for expensive passes, and a draft model
# only.
_WAYS = (("draft+ngram", 4), ("draft+ngram", 8), ("draft+ngram", 16), ("draft", 8))
_LIMIT_S = 300.0


def streaming_peer(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare the grown target in memory for 60% and 35% of its packed weights."""
    peer = _Peer(suite)
    store = Storage.of(suite, recorder)
    rows: list[Row] = []
    for share in SHARES:
        limit, held = store.limit(share)
        ours = 1e3 * store.runs.run("streamed, drafts", limit, held, draft="hybrid")["tpot_s"]
        rows.append({"share": share, "way": "streamed, drafts", "ms_per_token": ours})
        for kind, length in _WAYS:
            row: Row = {"share": share, "way": f"llama.cpp, {kind} of {length}"}
            try:
                runs = peer.runs(kind, length, limit)
            except Failed as error:
                rows.append({**row, "ended": str(error)})
                continue
            for one in runs:
                recorder.add(kind="run", limit_bytes=limit, **row, **_facts(one))
            theirs = sum(map(_ms_per_token, runs)) / len(runs)
            rows.append({**row, "ms_per_token": theirs, "of_ours": theirs / ours})
    return recorder.table(rows, "row")


class _Peer:
    """llama.cpp's program, built by ``make peers``, and the pair in its format."""

    def __init__(self, suite: Suite) -> None:
        self._models = {
            "target": str(suite.bundles.gguf("target", "q4_0", GROWN)),
            "draft": str(suite.bundles.gguf("draft", "q8_0")),
        }
        try:
            self._environment = environment.make(llamacpp, suite.bundles.work)
        except Failed as error:
            raise RuntimeUnavailable(f"llama.cpp cannot be built: {error}") from None
        self._log = suite.bundles.work / "logs" / "streaming-peer.log"
        self._prompts = heldout_prompts(min(suite.prompts, MOST_PROMPTS))
        self._threads = suite.threads or available_cores()

    def runs(self, kind: str, length: int, limit: int) -> list[dict[str, Any]]:
        """Return the program's figures for each prompt."""
        return [self._run(prompt.text, kind, length, limit) for prompt in self._prompts]

    def _run(self, prompt: str, kind: str, length: int, limit: int) -> dict[str, Any]:
        cool([Path(file) for file in self._models.values()])
        request = {
            **self._environment.common, "task": "run", "models": self._models, "prompt": prompt,
            "kind": kind, "settings": {"length": length, "flash": "off", "repack": False},
            "tokens": TOKENS, "context": 1024, "threads": self._threads,
        }  # fmt: skip
        with limited(limit) as group:
            if group is None:
                raise InputError("no control group can be made: run as root")
            python = self._environment.python
            return ask(
                python, file_of(llamacpp), request, self._log, _LIMIT_S, within=group.entering
            )


def _facts(run: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in run.items() if key != "text"}


def _ms_per_token(run: dict[str, Any]) -> float:
    return 1e3 * float(run["times"]["decode_s"]) / int(run["times"]["decoded"])
