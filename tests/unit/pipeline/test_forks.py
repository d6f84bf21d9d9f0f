"""A process that is forked from one with open models: one line, or it works; it never waits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_bundles
from tiny_gguf import write_tiny_gguf
from tiny_models import tiny_checkpoint
from waiting import LIMIT_S

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
FORKED = """
import gc, os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of forks while threads run
from edgedec import Pipeline
from edgedec.errors import EdgedecError
from edgedec.generation.queue import Queue

if "blind" in sys.argv:
    Queue.after_fork = lambda self: None
ids = [1, 2, 3]
pipeline = Pipeline.open(sys.argv[1], threads=2)
text = pipeline.generate(ids, max_new_tokens=4).token_ids
stream = pipeline.stream(ids, max_new_tokens=8)
next(stream)

def tries(call):
    try:
        print(call(), flush=True)
    except EdgedecError as error:
        print(type(error).__name__, error, flush=True)

child = os.fork()
if not child:
    if "blind" in sys.argv:
        tries(lambda: "computed")
        tries(lambda: pipeline._queue.check_open())
        os._exit(0)
    tries(lambda: list(stream))
    tries(lambda: pipeline.generate(ids))
    tries(lambda: pipeline.save("nothing"))
    tries(lambda: pipeline.count_tokens(ids))
    pipeline.close()
    del pipeline, stream
    gc.collect()
    if "again" in sys.argv:
        def again():
            with Pipeline.open(sys.argv[1], threads=2) as own:
                return own.generate(ids, max_new_tokens=4).token_ids == text
        tries(again)
    sys.exit(0)
print("child", os.waitpid(child, 0)[1])
for _ in stream:
    pass
assert pipeline.generate(ids, max_new_tokens=4).token_ids == text
pipeline.close()
"""
REFUSED = "StateError the pipeline was opened before this process was forked, "


def run(model: object, *words: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", FORKED, str(model), *words],
        capture_output=True, text=True, check=True, timeout=LIMIT_S,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    return done.stdout.splitlines()


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    checkpoints = (tiny_checkpoint(tmp_path / name, num_hidden_layers=2) for name in "ab")
    return tiny_bundles.exact(*checkpoints)


def test_a_fork_refuses_the_models_that_were_open_and_opens_its_own(pair: Path) -> None:
    *refused, counted, opened, ended = run(pair, "again")
    assert len(refused) == 3
    assert all(line.startswith(REFUSED) for line in refused)
    assert (counted, opened, ended) == ("3", "True", "child 0")


def test_a_twin_that_does_not_look_refuses_nothing(pair: Path) -> None:
    assert run(pair, "blind") == ["computed", "None", "child 0"]


def test_llama_cpp_is_not_asked_in_a_fork(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    *refused, _, opened, ended = run(write_tiny_gguf(tmp_path / "a.gguf"), "again")
    assert all(line.startswith(REFUSED) for line in refused)
    assert opened.startswith("RuntimeUnavailable llama.cpp cannot compute in a process that was")
    assert ended == "child 0"
