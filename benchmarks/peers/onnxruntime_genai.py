"""onnxruntime-genai: a draft model and n-grams, of fixed lengths and adaptive."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.race.protocol import Kinds, Maker, Models, Request, Tools

NAME = "onnxruntime-genai"
TITLE = "onnxruntime-genai 0.18.0"
ENVIRONMENT = NAME
REQUIREMENTS: tuple[str, ...] | None = (
    "onnxruntime-genai==0.18.0", "onnxruntime==1.32.0", "onnx==1.23.2", "onnx-ir==1.1.0",
    "torch==2.13.0", "transformers==5.5.4", "numpy==2.4.6", "gguf==0.19.0",
    "accelerate==1.15.0",
)  # fmt: skip

_BLOCKS = {"int4-32": 32, "int4-128": 128}
_DRAFT_WEIGHTS = "int4-32"
_CHAINED = {"ngram_chained_lookup": True}
WEIGHTS = tuple(_BLOCKS)
WEIGHTS_OF_FILE = ("int4-32",)
KINDS: Kinds = (
    ("plain", {}),
    *(("draft", {"max_draft_tokens": length}) for length in (1, 2, 3, 4, 6, 8)),
    ("draft", {"min_adaptive_k": 2, "cooldown": True}),
    *(("ngram", {"ngram_size": 3, "max_draft_tokens": length}) for length in (2, 4, 8)),
    ("ngram", {"ngram_size": 3, "min_adaptive_k": 2, "cooldown": True, **_CHAINED}),
)


def models(maker: Maker, weights: str) -> Models:
    """Return folders that its model builder wrote."""
    return maker.converted_pair(NAME, weights, _DRAFT_WEIGHTS)


def convert(request: Request, tools: Tools) -> dict[str, Any]:
    """Export a checkpoint with the model builder."""
    block = _BLOCKS[request["weights"]]
    with tempfile.TemporaryDirectory() as cache:
        command = [
            sys.executable, "-m", "onnxruntime_genai.models.builder",
            "-i", tools.folder(request["checkpoint"], cache), "-o", request["out"],
            "-p", "int4", "-e", "cpu", "-c", cache,
            "--extra_options", "accuracy_level=4", f"block_size={block}",
        ]  # fmt: skip
        subprocess.run(command, check=True)
    return {}


def run(request: Request, tools: Tools) -> dict[str, Any]:
    """Decode through a ``Generator``."""
    import onnxruntime_genai as genai

    with tempfile.TemporaryDirectory() as folder:
        model = genai.Model(_configured(request, Path(folder)))
        _decode(genai, model, request, request["warm_ids"], 16, lambda: None)
        tools.start()
        ids = _decode(genai, model, request, request["ids"], request["tokens"], tools.tokens)
    return {"ids": ids, "prompt_tokens": len(request["ids"]), "times": tools.times()}


def _decode(
    genai: Any, model: Any, request: Request, prompt: list[int], count: int, on_token: Any
) -> list[int]:
    params = genai.GeneratorParams(model)
    length = len(prompt) + count
    # Without a least length the end of text would end it.
    params.set_search_options(max_length=length, min_length=length, **_search(request))
    if request["settings"]:
        params.set_speculative_options(**request["settings"])
    generator = genai.Generator(model, params)
    generator.append_tokens(prompt)
    ids: list[int] = []
    while len(ids) < count and not generator.is_done():
        generator.generate_next_token()
        on_token()
        ids.append(int(generator.get_next_tokens()[0]))
    return ids


def _search(request: Request) -> dict[str, Any]:
    """Return how it chooses tokens; with a draft it samples by rejection."""
    if request["temperature"] == 0:
        return {"do_sample": False}
    return {
        "do_sample": True, "temperature": request["temperature"], "top_p": request["top_p"],
        # Its configuration keeps 50 tokens; 0 keeps all.
        "top_k": 0, "random_seed": request["seed"],
    }  # fmt: skip


def _configured(request: Request, folder: Path) -> str:
    """Return a folder with a configuration for these threads, and the draft where one drafts.

    It leads to the models with links, since a file must be named below the folder.
    """
    config = _config(request, "target", folder)
    if request["kind"] == "draft":
        config["model"]["draft"] = _config(request, "draft", folder)["model"]["decoder"]
    (folder / "genai_config.json").write_text(json.dumps(config), "utf-8")
    for file in Path(request["models"]["target"]).glob("tokenizer*"):
        (folder / file.name).write_bytes(file.read_bytes())
    return str(folder)


def _config(request: Request, role: str, folder: Path) -> dict[str, Any]:
    model = Path(request["models"][role])
    (folder / role).symlink_to(model, target_is_directory=True)
    config: dict[str, Any] = json.loads((model / "genai_config.json").read_text("utf-8"))
    decoder = config["model"]["decoder"]
    decoder["filename"] = f"{role}/{decoder['filename']}"
    # It takes one thread unless it is told otherwise.
    decoder.setdefault("session_options", {})["intra_op_num_threads"] = request["threads"]
    return config


def perplexity(request: Request, tools: Tools) -> dict[str, Any]:
    """Measure with the rows of whole windows."""
    import onnxruntime_genai as genai

    with tempfile.TemporaryDirectory() as folder:
        plain = {**request, "kind": "plain"}
        model = genai.Model(_configured(plain, Path(folder)))

        def logits(ids: list[int]) -> Any:
            params = genai.GeneratorParams(model)
            params.set_search_options(max_length=len(ids) + 1)
            generator = genai.Generator(model, params)
            generator.append_tokens(ids)
            return generator.get_output("logits")[0]

        return {"perplexity": tools.perplexity(request["ids"], logits)}
