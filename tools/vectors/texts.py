"""Whole texts of the pair that ships, with what else their tokens depend on.

Kernels of another version of ONNX Runtime, or for another processor, round otherwise, and a text
may differ from there on where two tokens are nearly tied. So these are only for a reader that has
the same of both; the target is batch-invariant, so that no draft changes a text.
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgedec import GenerateOptions, Pipeline
from edgedec.decoding.sampling import SamplingParams
from edgedec.hardware.machine import cpu_fields, cpu_name

BUNDLE = Path(__file__).resolve().parents[2] / "models" / "demo" / "bundle"
# What ONNX Runtime's kernels of products ask for.
FEATURES = (
    "avx", "fma", "avx2", "avx_vnni", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni",
    "avx512_bf16", "amx_int8", "amx_bf16", "asimd", "asimddp", "i8mm", "bf16", "sve",
)  # fmt: skip
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
    """Return ``texts.json``, made with the ONNX Runtime that is installed."""
    cases = [
        {"prompt": prompt, "params": params, "max_new_tokens": _TOKENS, **generated}
        for (prompt, params), generated in zip(_asked(), _generated("none"), strict=True)
    ]
    for drafter in _DRAFTERS:
        for case, drafted in zip(cases, _generated(drafter), strict=True):
            if drafted["ids"] != case["ids"]:
                raise AssertionError(f"{drafter} gives another text after {case['prompt']!r}")
    return {"made_with": made_with(), "cases": cases}


def made_with() -> dict[str, Any]:
    """Return what a text depends on besides bundle, prompt and options."""
    fields = cpu_fields()
    flags = set((fields.get("flags") or fields.get("features") or "").split())
    return {
        "onnxruntime": importlib.metadata.version("onnxruntime"),
        "machine": platform.machine(),
        "processor": cpu_name(),
        "features": [name for name in FEATURES if name in flags],
        "threads": 1,
        "batch_invariant": True,
    }


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
