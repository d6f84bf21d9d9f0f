"""Peers of a few lines, which run in this interpreter: one that works, and broken ones."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from benchmarks.race._child import load
from benchmarks.race.protocol import Peer

_FILE = """
import json, os, sys, time
from pathlib import Path

NAME = {name!r}
TITLE = "A peer of a test"
ENVIRONMENT = NAME
REQUIREMENTS = {requirements!r}
WEIGHTS = ("int4",)
KINDS = {kinds!r}


def models(maker, weights):
    return {{"target": {target!r}}}


def build(request, tools):
    {build}


def perplexity(request, tools):
    return {{"perplexity": {perplexity}}}


def run(request, tools):
    with Path({runs!r}).open("a") as file:
        file.write(NAME + " " + request["kind"] + " " + request["prompt"] + "\\n")
    {before}
    settings = request["settings"]
    return {{
        "ids": [settings.get("token", 5)] * request["tokens"],
        "prompt_tokens": len(request["ids"]),
        "times": {{"prompt_s": 0.5, "decode_s": settings["seconds"], "decoded": request["tokens"]}},
    }}
"""

PLAIN = {"weights": "int4", "kind": "plain", "settings": {"seconds": 2.0}}
SLOW = {"weights": "int4", "kind": "draft", "settings": {"seconds": 1.5, "length": 1}}
FAST = {"weights": "int4", "kind": "draft", "settings": {"seconds": 1.0, "length": 4}}
OTHER = {"weights": "int4", "kind": "lookup", "settings": {"seconds": 1.25, "token": 6}}
WAYS = (PLAIN, SLOW, FAST, OTHER)


def peer(
    folder: Path,
    name: str = "fake",
    *,
    before: str = "pass",
    build: str = "pass",
    ways: tuple[dict[str, object], ...] = WAYS,
    requirements: tuple[str, ...] | None = None,
    perplexity: float = 7.0,
) -> Peer:
    """Write a peer's file and load it; what ran stands in ``runs.txt`` beside it."""
    target = folder / "weights.bin"
    target.write_bytes(bytes(1000))
    file = folder / f"{name.replace('-', '_')}.py"
    text = _FILE.format(
        name=name, requirements=requirements, target=str(target), build=build,
        kinds=[(way["kind"], way["settings"]) for way in ways],
        perplexity=perplexity, runs=str(folder / "runs.txt"), before=before,
    )  # fmt: skip
    file.write_text(text, "utf-8")
    return cast(Peer, load(file))


def ran(folder: Path) -> list[str]:
    """Return what ran, in order."""
    file = folder / "runs.txt"
    return file.read_text("utf-8").splitlines() if file.exists() else []


# What a broken peer does instead of decoding, what it is called and what is said of it.
BROKEN = {
    "raises": ("raise ValueError('no such\\nweights')", "crash", "ValueError: weights"),
    "aborts": ("os.abort()", "crash", "SIGABRT"),
    "hangs": ("time.sleep(60)", "hang", "no end within"),
    "says nothing": ("os._exit(0)", "garbage", "without an answer"),
    "says no JSON": (
        "Path(sys.argv[3]).write_text('%%%'); os._exit(0)", "garbage", "not a JSON object",
    ),
    "says no times": ("return {'ids': [1]}", "garbage", "no times"),
    "says no number": (
        "return {'times': {'prompt_s': 1, 'decode_s': float('nan'), 'decoded': 8}}",
        "garbage", "decode_s is nan",
    ),
    "stops early": (
        "return {'times': {'prompt_s': 1, 'decode_s': 1, 'decoded': 3}}",
        "garbage", "it timed 3 of 8 tokens",
    ),
    "writes nothing": (
        "return {'times': {'prompt_s': 1, 'decode_s': 1, 'decoded': 8}}",
        "garbage", "8 token ids or a text",
    ),
    "writes no tokens": (
        "return {'ids': [10**6] * 8, 'times': {'prompt_s': 1, 'decode_s': 1, 'decoded': 8}}",
        "garbage", "the vocabulary does not have",
    ),
}  # fmt: skip
