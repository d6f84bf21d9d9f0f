"""Whoever drops an overlapped engine, or ends the program, leaves no thread behind."""

import gc
import subprocess
import sys
import weakref

import pytest
from running_threads import threads

from edgedec import GenerateOptions, Pipeline

OPEN = {"drafter": "model", "schedule": "overlapped", "draft_length": 3, "threads": 1}

ENDS = {"end": "", "exception": "raise ValueError('on purpose')", "exit": "raise SystemExit(3)"}
SCRIPT = """
from edgedec import GenerateOptions, Pipeline
pipeline = Pipeline.open("demo", plan="none", max_context=128, **{open})
stream = pipeline.stream("def f(", GenerateOptions(max_new_tokens=90))
next(stream)
{end}
"""


@pytest.mark.parametrize(("end", "code"), [("end", 0), ("exception", 1), ("exit", 3)])
def test_a_program_may_end_in_the_middle_of_a_text(end: str, code: int) -> None:
    script = SCRIPT.format(open=OPEN, end=ENDS[end])
    # Without the finalizer three of four such programs aborted.
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=100
    )
    assert ran.returncode == code, ran.stderr
    assert "terminate called" not in ran.stderr


def test_a_pipeline_that_is_dropped_ends_its_thread() -> None:
    gc.collect()
    before = threads()
    pipeline = Pipeline.open("demo", **OPEN)
    pipeline.generate("def f(", GenerateOptions(max_new_tokens=4))
    assert len(threads() - before) == 1
    gone = weakref.ref(pipeline.engine)
    del pipeline
    gc.collect()
    assert gone() is None, "the draft's thread must not keep its engine"
    assert threads() <= before
