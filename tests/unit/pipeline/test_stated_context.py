"""The context that is stated under a memory limit can be used to its last token."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from kinds import in_full

CHILD = """
import sys
from edgedec.decoding.sampling import SamplingParams
from edgedec.errors import MemoryBudgetError
from edgedec.pipeline import GenerateOptions, Pipeline
options = {"plan": "none", "memory": int(sys.argv[1]) * 10**6, "draft": sys.argv[2], "threads": 1}
try:
    with Pipeline.open("demo", **options) as pipeline:
        context = pipeline.plan["max_context"]
        text = "".join(f"def name_{n}(path):\\n    return open(path)\\n\\n" for n in range(500))
        tokens = pipeline.tokenizer.encode(text)[: context - 7]
        assert len(tokens) == context - 7
        for sampling in (SamplingParams(), SamplingParams(temperature=0.9, seed=1)):
            found = pipeline.generate(tokens, GenerateOptions(8, sampling, ignore_eos=True))
            assert len(found.events) == 8
        print("context", context)
except MemoryBudgetError as error:
    print(error)
"""


def opened(megabytes: int, draft: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(megabytes), draft],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("draft", in_full(["hybrid", "none"]))
def test_the_stated_context_is_held(draft: str) -> None:
    needed = re.search(r"give --memory (\d+)MB", opened(10, draft))
    assert needed is not None
    found = re.fullmatch(r"context (\d+)\n", opened(int(needed[1]) + 4, draft))
    assert found is not None, "it was stated and then refused"
    assert 64 < int(found[1]) < 8000
