"""Decodes one long text within a memory limit and prints what it took; see ``memory``."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from edgedec.bench.workloads import long_text
from edgedec.decoding.sampling import SamplingParams
from edgedec.errors import EdgedecError
from edgedec.hardware.resident import peak_bytes
from edgedec.loading.options import OpenOptions
from edgedec.pipeline import GenerateOptions, Pipeline


def main(task: dict[str, Any]) -> dict[str, Any]:
    """Decode as the task says.

    Args:
        task: ``path``, ``draft_model``, ``open`` (options), ``prompt_tokens``, ``new_tokens``,
            ``temperature``, and ``ballast``: bytes that the process takes for other things in the
            middle half of the text.

    """
    draft = task["draft_model"]
    options = OpenOptions(
        plan="none", draft_model=None if draft is None else Path(draft), **task["open"]
    )
    sampling = SamplingParams(temperature=task["temperature"], seed=1)
    asked = GenerateOptions(task["new_tokens"], sampling, ignore_eos=True)
    with Pipeline.open(task["path"], options) as pipeline:
        prompt = long_text(pipeline.tokenizer, task["prompt_tokens"])
        ballast, quarter = bytearray(), task["new_tokens"] // 4
        stream = pipeline.stream(prompt, asked)
        for number, _ in enumerate(stream):
            if number == quarter and task["ballast"]:
                ballast = bytearray(b"\1") * task["ballast"]
            elif number == 3 * quarter:
                ballast = bytearray()
        del ballast
    result = stream.result
    assert result is not None
    assert result.metrics.memory is not None
    return {
        "max_context": result.plan["max_context"],
        "tokens_per_second": result.metrics.tokens_per_second,
        "drafted": dict(result.metrics.sources),
        "text": hashlib.sha256(json.dumps(result.token_ids).encode()).hexdigest()[:16],
        "tokens": len(result.token_ids),
        "memory": result.metrics.memory.facts(),
        "peak_bytes": peak_bytes(),
    }


if __name__ == "__main__":
    try:
        print(json.dumps(main(json.loads(sys.argv[1]))))  # noqa: T201
    except EdgedecError as error:
        print(json.dumps({"refused": str(error)}))  # noqa: T201
