"""Whole texts of the pair that ships, for each class of processors that has kernels of its own.

Kernels of another version of ONNX Runtime, or for another class, round otherwise, and a text may
differ from there on where two tokens are nearly tied. So a reader compares the texts of its class,
if it has the same version; the target is batch-invariant, so that no draft changes a text.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from edgedec import GenerateOptions, Pipeline
from edgedec.decoding.sampling import SamplingParams
from tools.processor_class.classes import CLASSES, class_of, features
from tools.processor_class.masking import REPOSITORY, seen_as

BUNDLE = REPOSITORY / "models" / "demo" / "bundle"
_LONG = "".join(
    f"def step_{number}(value):\n    return value + {number}\n\n" for number in range(16)
)
PROMPTS = (
    "def format_date(value):",
    "import os\nimport sys\n\n\ndef main():\n",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
    '"""Reads a file and counts its lines."""\n',
    "for index in range(10):\n    print(",
    "# größe = 'straße' 你好 🙂\n",
    _LONG,
    "<|user|>\nWhat is a list?<|end|>\n<|assistant|>\n",
)
SAMPLED: tuple[dict[str, Any], ...] = (
    {"temperature": 0.8, "seed": 1},
    {"temperature": 1.0, "top_p": 0.9, "seed": -7},
    {"temperature": 1.2, "top_k": 40, "min_p": 0.02, "seed": 2**40},
    {"temperature": 0.7, "repetition_penalty": 1.15, "frequency_penalty": 0.2, "seed": 3},
)
_TOKENS = 48
_DRAFTERS = ("model", "lookup")


def make() -> dict[str, Any]:
    """Return ``texts.json``, made with the ONNX Runtime that is installed.

    Raises:
        MissingError: this processor has less than some class.

    """
    classes = {name: {"has": one.has, "lacks": one.lacks} for name, one in CLASSES.items()}
    cases = [{"class": name, **case} for name in CLASSES for case in json.loads(_printed_as(name))]
    return {"made_with": made_with(), "classes": classes, "cases": cases}


def made_here() -> list[dict[str, Any]]:
    """Return the cases as this processor's kernels have them."""
    cases = [
        {"prompt": prompt, "params": params, "max_new_tokens": _TOKENS, **generated}
        for (prompt, params), generated in zip(_asked(), _generated("none"), strict=True)
    ]
    for drafter in _DRAFTERS:
        for case, drafted in zip(cases, _generated(drafter), strict=True):
            if drafted["ids"] != case["ids"]:
                raise AssertionError(f"{drafter} gives another text after {case['prompt']!r}")
    return cases


def class_here() -> str | None:
    """Return the name of this processor's class, if the file has its texts."""
    found = class_of(features())
    return found and found.name


def made_with() -> dict[str, Any]:
    """Return what a text depends on besides bundle, prompt, options and class."""
    version = importlib.metadata.version("onnxruntime")
    return {"onnxruntime": version, "threads": 1, "batch_invariant": True}


def _printed_as(name: str) -> str:
    """Return what this module prints on a processor of a class."""
    environment = {**os.environ, **seen_as(CLASSES[name])}
    words = [sys.executable, "-m", "tools.vectors.texts"]
    done = subprocess.run(
        words, env=environment, cwd=REPOSITORY, stdout=subprocess.PIPE, check=True
    )
    return done.stdout.decode("utf-8")


def _asked() -> Iterator[tuple[str, dict[str, Any]]]:
    for number, prompt in enumerate(PROMPTS):
        yield prompt, {}
        yield prompt, SAMPLED[number % len(SAMPLED)]


def _generated(drafter: str) -> Iterator[dict[str, Any]]:
    """Yield the ids and the text of each case, as they are with a drafter."""
    with Pipeline.open(
        BUNDLE, drafter=drafter, batch_invariant=True, threads=1, format="onnx", plan="none"
    ) as pipeline:
        for prompt, params in _asked():
            pipeline.forget()
            options = GenerateOptions(max_new_tokens=_TOKENS, sampling=SamplingParams(**params))
            result = pipeline.generate(prompt, options)
            yield {"ids": result.token_ids, "text": result.text}


if __name__ == "__main__":
    print(json.dumps(made_here()))
