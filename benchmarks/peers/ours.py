"""edgedec itself: what ``auto`` chooses, and plain decoding without padding, its fastest form.

Sampled, ``auto`` also runs with the acceptance rule ``speculative``, which promises the target's
distribution and not a seed's text, as other runtimes do.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.race.protocol import Kinds, Maker, Models, Request, Tools

NAME = "edgedec"
TITLE = "edgedec"
ENVIRONMENT = NAME
REQUIREMENTS: tuple[str, ...] | None = None
# int4-128 is rounded plainly, as peers round: calibrated weights write another text, and a draft
# may guess more or less of it.
WEIGHTS = ("int4", "int4-128", "int4-openvino", "gguf-q4_0")
# What edgedec makes of a file, and the file itself.
WEIGHTS_OF_FILE = ("gguf-file", "auto", "int8")
KINDS: Kinds = (("plain", {}), ("auto", {}))
SAMPLED_KINDS: Kinds = (("auto", {"accept": "speculative"}),)
COUPLED: Kinds = (("auto", {}),)
_GGUF = "gguf-"
# The same bundle, the target on OpenVINO's kernels.
_OPENVINO = "-openvino"
_DRAFT_WEIGHTS = "q8_0"


def models(maker: Maker, weights: str) -> Models:
    """Return a bundle, or GGUF files."""
    if weights.startswith(_GGUF):
        target = str(maker.gguf("target", weights.removeprefix(_GGUF)))
        draft = {"draft": str(maker.gguf("draft", _DRAFT_WEIGHTS))} if maker.drafts else {}
        return {"open": target, "target": target, **draft}
    bundle = maker.bundle(weights.removesuffix(_OPENVINO))
    draft = {"draft": str(bundle / "draft")} if maker.drafts else {}
    return {"open": str(bundle), "target": str(bundle / "target"), **draft}


def run(request: Request, tools: Tools) -> dict[str, Any]:
    """Decode through a pipeline."""
    from edgedec.decoding.params import SamplingParams
    from edgedec.pipeline import GenerateOptions

    sampling = SamplingParams(
        temperature=request["temperature"], top_p=request["top_p"], seed=request["seed"]
    )
    with _open(request) as pipeline:
        pipeline.generate(request["warm_ids"], GenerateOptions(32, sampling, ignore_eos=True))
        tools.start()
        options = GenerateOptions(request["tokens"], sampling, ignore_eos=True)
        stream = pipeline.stream(request["ids"], options)
        for _ in stream:
            tools.tokens()
        result = stream.result
    if result is None:
        raise RuntimeError("the stream ended without a result")
    metrics = result.metrics
    return {
        "ids": result.token_ids,
        "prompt_tokens": result.prompt_tokens,
        "times": tools.times(),
        "drafted_tokens": metrics.drafted_tokens,
        "accepted_tokens": metrics.accepted_tokens,
        "target_passes": metrics.target_passes,
    }


def _open(request: Request) -> Any:
    from edgedec.loading.build import OpenOptions
    from edgedec.pipeline import Pipeline

    plain = request.get("kind", "plain") == "plain"
    opened, draft = request["models"]["open"], request["models"].get("draft")
    return Pipeline.open(
        opened,
        OpenOptions(
            plan="none",
            drafter="none" if plain else "auto",
            batch_invariant=False if plain else None,
            accept=request["settings"].get("accept"),
            draft=None if plain or draft is None or Path(opened).is_dir() else Path(draft),
            providers=("OpenVINO",) if request["weights"].endswith(_OPENVINO) else (),
            threads=request["threads"],
            max_context=request.get("context", 1024),
        ),
    )


def perplexity(request: Request, tools: Tools) -> dict[str, Any]:
    """Measure through a session."""
    from benchmarks.workloads import perplexity as measured

    with _open(request) as pipeline:
        return {"perplexity": measured(pipeline.target, request["ids"])}
