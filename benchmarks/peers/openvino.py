"""OpenVINO GenAI: a draft model, of a fixed length or by its confidence, and prompt lookup."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.race.protocol import Kinds, Maker, Models, Request, Tools

NAME = "openvino"
TITLE = "OpenVINO GenAI 2026.4.1"
ENVIRONMENT = NAME
REQUIREMENTS: tuple[str, ...] | None = (
    "openvino==2026.4.1", "openvino-genai==2026.4.1.0", "openvino-tokenizers==2026.4.1.0",
    "optimum-intel==2.2.0", "nncf==3.4.0", "torch==2.13.0", "transformers==5.5.4",
    "numpy==2.4.6", "gguf==0.19.0", "accelerate==1.15.0",
)  # fmt: skip

# How optimum is asked for them; the draft is small and keeps eight bits.
_WEIGHTS = {
    "int4-64": ("--weight-format", "int4", "--group-size", "64", "--ratio", "1.0", "--sym"),
    "int4-128": ("--weight-format", "int4", "--group-size", "128", "--ratio", "1.0", "--sym"),
    "int8": ("--weight-format", "int8"),
}
_DRAFT_WEIGHTS = "int8"
WEIGHTS = tuple(_WEIGHTS)
WEIGHTS_OF_FILE = ("int8",)
KINDS: Kinds = (
    ("plain", {}),
    *(("draft", {"length": length}) for length in (1, 2, 3, 4, 5, 6, 8)),
    *(("draft", {"confidence": threshold}) for threshold in (0.4, 0.7)),
    *(("lookup", {"length": length, "ngram": 3}) for length in (2, 4, 8)),
)

# Nearly all sampled runs with a draft end in an error of its scheduler, whatever the settings.
NOT_SAMPLED = {
    "draft": "in 2026.4.1 a draft model with do_sample ends in an error of its sequences"
    " ('content_length <= prompt_ids.size() + m_generated_ids.size()')"
}


def models(maker: Maker, weights: str) -> Models:
    """Return folders that optimum exported."""
    return maker.converted_pair(NAME, weights, _DRAFT_WEIGHTS)


def build(request: Request, tools: Tools) -> None:
    """Remove torchvision, which optimum brings: of another build than torch it breaks it."""
    command = ["uninstall", "--quiet", "--yes", "torchvision"]
    subprocess.run([*request["pip"], *command], check=True)


def convert(request: Request, tools: Tools) -> dict[str, Any]:
    """Export a checkpoint with optimum."""
    command = [sys.executable, "-m", "optimum.commands.optimum_cli", "export", "openvino"]
    options = ["--task", "text-generation-with-past", *_WEIGHTS[request["weights"]]]
    with tempfile.TemporaryDirectory() as scratch:
        source = tools.folder(request["checkpoint"], scratch)
        subprocess.run([*command, "--model", source, *options, request["out"]], check=True)
    return {}


def run(request: Request, tools: Tools) -> dict[str, Any]:
    """Decode through ``LLMPipeline``."""
    import numpy as np
    import openvino
    import openvino_genai as genai

    class Streamer(genai.StreamerBase):  # type: ignore[misc]  # its package has no types
        def write(self, token: int | list[int]) -> Any:
            tools.tokens(1 if isinstance(token, int) else len(token))
            return genai.StreamingStatus.RUNNING

        def end(self) -> None:
            """Need nothing."""

    pipeline = _open(request, genai)

    def generate(ids: list[int], count: int) -> Any:
        prompt = openvino.Tensor(np.array([ids], np.int64))
        mask = openvino.Tensor(np.ones((1, len(ids)), np.int64))
        asked = genai.TokenizedInputs(prompt, mask)
        return pipeline.generate(asked, _settings(request, genai, count), Streamer())

    generate(request["warm_ids"], 16)
    tools.start()
    found = generate(request["ids"], request["tokens"])
    return {
        "ids": [int(token) for token in found.tokens[0]],
        "prompt_tokens": len(request["ids"]),
        "times": tools.times(),
    }


def _open(request: Request, genai: Any) -> Any:
    more: dict[str, Any] = {"INFERENCE_NUM_THREADS": request["threads"]}
    if request["kind"] == "draft":
        more["draft_model"] = genai.draft_model(request["models"]["draft"], "CPU", **more)
    elif request["kind"] == "lookup":
        more["prompt_lookup"] = True
    return genai.LLMPipeline(request["models"]["target"], "CPU", **more)


def _settings(request: Request, genai: Any, count: int) -> Any:
    settings = request["settings"]
    found = genai.GenerationConfig()
    found.max_new_tokens, found.ignore_eos = count, True
    found.do_sample = request["temperature"] > 0
    if found.do_sample:
        # It keeps all tokens unless top_k is set.
        found.temperature, found.top_p = request["temperature"], request["top_p"]
        found.rng_seed = request["seed"]
    if "length" in settings:
        found.num_assistant_tokens = settings["length"]
    if "confidence" in settings:
        found.assistant_confidence_threshold = settings["confidence"]
    if "ngram" in settings:
        found.max_ngram_size = settings["ngram"]
    return found


def perplexity(request: Request, tools: Tools) -> dict[str, Any]:
    """Measure with the exported model itself."""
    return {"perplexity": tools.perplexity(request["ids"], _reader(request))}


def divergence(request: Request, tools: Tools) -> dict[str, Any]:
    """Measure the exported model's divergence from ``request["source"]``.

    With the setting ``accurate`` nothing but its weights is rounded; else activations, keys and
    values are, as they are by default.
    """
    return tools.divergence(request["ids"], request["source"], _reader(request))


def _reader(request: Request) -> Callable[[list[int]], Any]:
    """Return a function of a window's tokens that gives its logits; the state is emptied first."""
    import numpy as np
    import openvino

    core = openvino.Core()
    options: dict[str, Any] = {"INFERENCE_NUM_THREADS": request["threads"]}
    if request["settings"].get("accurate"):
        options |= {
            "INFERENCE_PRECISION_HINT": "f32",
            "KV_CACHE_PRECISION": "f32",
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
        }
    file = Path(request["models"]["target"], "openvino_model.xml")
    compiled = core.compile_model(file, "CPU", options)
    asked = compiled.create_infer_request()
    names = {name for port in compiled.inputs for name in port.get_names()}

    def logits(ids: list[int]) -> Any:
        asked.reset_state()
        inputs = {
            "input_ids": np.array([ids], np.int64),
            "attention_mask": np.ones((1, len(ids)), np.int64),
            "position_ids": np.arange(len(ids), dtype=np.int64)[None],
            "beam_idx": np.zeros(1, np.int32),
        }
        given = {name: value for name, value in inputs.items() if name in names}
        return asked.infer(given)["logits"][0]

    return logits
