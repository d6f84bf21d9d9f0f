"""llama-cpp-python: prompt lookup, the one drafter of its own; with the library of llama.cpp."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.race.protocol import Kinds, Maker, Models, Request, Tools

NAME = "llama-cpp-python"
TITLE = "llama-cpp-python 0.3.36"
ENVIRONMENT = "llama.cpp"
REQUIREMENTS: tuple[str, ...] | None = ()
WEIGHTS = ("q4_0",)
WEIGHTS_OF_FILE = ("file",)
KINDS: Kinds = (
    ("plain", {}),
    *(("lookup", {"length": length}) for length in (2, 4, 10)),
)


def models(maker: Maker, weights: str) -> Models:
    """Return a GGUF file."""
    return {"target": str(maker.gguf("target", weights))}


def run(request: Request, tools: Tools) -> dict[str, Any]:
    """Decode through ``Llama.generate``."""
    model = _load(request, request["context"])
    list(_generate(model, request, request["warm_ids"], 16))
    tools.start()
    ids = []
    for token in _generate(model, request, request["ids"], request["tokens"]):
        tools.tokens()
        ids.append(token)
    return {"ids": ids, "prompt_tokens": len(request["ids"]), "times": tools.times()}


def _generate(model: Any, request: Request, prompt: list[int], count: int) -> Any:
    # It accepts a drafted token if the one it samples there is equal.
    model.set_seed(request["seed"])
    tokens = model.generate(
        prompt, temp=request["temperature"], top_p=request["top_p"], top_k=0, min_p=0.0,
        repeat_penalty=1.0,
    )  # fmt: skip
    for _, token in zip(range(count), tokens, strict=False):
        yield token


def perplexity(request: Request, tools: Tools) -> dict[str, Any]:
    """Measure through the rows it keeps of every token."""
    model = _load(request, 512, logits_all=True)

    def logits(ids: list[int]) -> Any:
        model.reset()
        model.eval(ids)
        return model.scores[: len(ids)]

    return {"perplexity": tools.perplexity(request["ids"], logits)}


def _load(request: Request, context: int, **more: Any) -> Any:
    if request["folder"]:
        os.environ["LLAMA_CPP_LIB_PATH"] = str(Path(request["folder"], "llama.cpp", "bin"))
    import llama_cpp
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    length = request["settings"].get("length")
    draft = LlamaPromptLookupDecoding(num_pred_tokens=length) if length else None
    return llama_cpp.Llama(
        request["models"]["target"], n_ctx=context, n_batch=512, verbose=False, draft_model=draft,
        n_threads=request["threads"], n_threads_batch=request["threads"], **more,
    )  # fmt: skip
