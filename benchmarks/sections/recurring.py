"""Measures drafts from earlier texts: in a session like an agent's, and on texts that never repeat.

An agent sends its instructions, its tools and a few files again and again, and has written some of
what it asks for before. Its session is written here by a seeded script. On texts without anything
in common, looking for them in the earlier ones must cost nothing that shows.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import ModuleType

from benchmarks.bundles import GROWN, Suite
from benchmarks.workloads import random_prompts
from edgedec._support import amounts, atomic, json_lines, locks
from edgedec.compare.drafters import PLAIN, opened
from edgedec.compare.interleaved import compare
from edgedec.compare.records import Recorder, Row
from edgedec.decoding import drafting
from edgedec.decoding.sampling import SamplingParams
from edgedec.generation.result import Generation
from edgedec.pipeline import GenerateOptions, Pipeline, Prompt

_TOKENS = 96
_REQUESTS, _SEED = 3, 0  # of each prompt that the suite has
_FORGETFUL = f"{drafting.AUTO}, nothing kept"
_DRAFTERS = (drafting.AUTO, "suffix", "lookup")
_FILES: tuple[ModuleType, ...] = (amounts, atomic, json_lines, locks)
_LINES = 24
_TOOLS = """\
# You edit Python files. Tools:
#   read_file(path): the text of a file
#   write_file(path, text): replaces a file
#   run_tests(path): the failures of its tests
"""
_ASKS = (
    "add a function to it",
    "write its next function",
    "its tests fail: write it anew from here",
    "go on where it ends",
)


@dataclass(frozen=True, slots=True)
class _Client:
    """A pipeline whose texts have one owner, or none."""

    pipeline: Pipeline
    owner: str | None

    def generate(self, prompt: Prompt, options: GenerateOptions | None = None) -> Generation:
        options = replace(options or GenerateOptions(), owner=self.owner)
        return self.pipeline.generate(prompt, options)


def session(requests: int, seed: int = _SEED) -> list[tuple[str, Prompt]]:
    """Return an agent's requests: its tools, a part of one of a few files, and what it asks."""
    draw = random.Random(seed)
    found: list[tuple[str, Prompt]] = []
    for number in range(requests):
        module, ask = draw.choice(_FILES), draw.choice(_ASKS)
        lines = inspect.getsource(module).splitlines()
        end = draw.choice((_LINES // 2, _LINES))
        name = module.__name__.rpartition(".")[2]
        head = f"{_TOOLS}# read_file({name}.py); {ask}\n\n"
        found.append((f"request {number}: {name}", head + "\n".join(lines[:end]) + "\n"))
    return found


def recurring(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare drafts from earlier texts with those from the text alone, and with plain decoding."""
    bundle = suite.bundles.bundle("int4", target=GROWN)
    unlike: list[tuple[str, Prompt]] = [
        (f"random {number}", tokens)
        for number, tokens in enumerate(random_prompts(suite.prompts, 4096))
    ]
    texts = {
        "a session": (session(_REQUESTS * suite.prompts), SamplingParams()),
        "a session, T 0.7": (
            session(_REQUESTS * suite.prompts),
            SamplingParams(temperature=0.7, top_p=0.95, seed=0),
        ),
        "never again": (unlike, SamplingParams(temperature=1.6, seed=0)),
    }
    rows: list[Row] = []
    for name, (prompts, sampling) in texts.items():
        options = GenerateOptions(_TOKENS, sampling)
        recorder.add(kind="case", texts=name)  # of the runs that follow
        with _clients(suite, bundle) as clients:
            found = compare(clients, prompts, options, recorder)
        rows += [{"texts": name, **row} for row in found.rows()]
    return recorder.table(rows, "recurring")


@contextmanager
def _clients(suite: Suite, bundle: object) -> Iterator[dict[str, _Client]]:
    """Open plain decoding and every drafter; each has read nothing yet but a warm-up."""
    ways = {PLAIN: suite.plain(), _FORGETFUL: suite.options()}
    ways |= {name: suite.options(drafter=name) for name in _DRAFTERS}
    with opened(str(bundle), ways) as pipelines:
        yield {
            name: _Client(pipeline, None if name == _FORGETFUL else "")
            for name, pipeline in pipelines.items()
        }
