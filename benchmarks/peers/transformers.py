"""transformers: assisted generation with a draft model and prompt lookup, in bf16 and fp32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.race.protocol import Kinds, Maker, Models, Request, Tools

NAME = "transformers"
TITLE = "transformers 4.57.6"
ENVIRONMENT = NAME
REQUIREMENTS: tuple[str, ...] | None = (
    "torch==2.13.0", "transformers==4.57.6", "numpy==2.4.6",
)  # fmt: skip

_TYPES = {"bf16": "bfloat16", "fp32": "float32"}
WEIGHTS = tuple(_TYPES)
# "heuristic" changes the length after each round; the confidence ends a draft early.
KINDS: Kinds = (
    ("plain", {}),
    ("draft", {"schedule": "heuristic", "length": 5, "confidence": 0.4}),
    ("draft", {"schedule": "constant", "length": 20, "confidence": 0.4}),
    ("draft", {"schedule": "constant", "length": 4, "confidence": 0.0}),
    *(("lookup", {"length": length}) for length in (4, 10)),
)


def models(maker: Maker, weights: str) -> Models:
    """Return the checkpoints."""
    return {role: str(maker.checkpoint(role)) for role in ("target", "draft")}


def run(request: Request, tools: Tools) -> dict[str, Any]:
    """Decode through ``generate``."""
    import torch
    from transformers.generation.streamers import BaseStreamer

    class Streamer(BaseStreamer):  # type: ignore[misc]
        def __init__(self, count: int) -> None:
            self.prompt_came, self.left = False, count

        def put(self, value: Any) -> None:
            # The last round of a lookup writes more than was asked for.
            count = min(value.numel(), self.left) if self.prompt_came else 0
            self.prompt_came, self.left = True, self.left - count
            if count:
                tools.tokens(count)

        def end(self) -> None:
            """Need nothing."""

    model = _load(request, "target")
    options = _options(request)

    def generate(ids: list[int], count: int) -> list[int]:
        torch.manual_seed(request["seed"])
        prompt = torch.tensor([ids])
        found = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), streamer=Streamer(count),
            max_new_tokens=count, **_sampling(request), **options,
        )  # fmt: skip
        tokens: list[int] = found[0, len(ids) : len(ids) + count].tolist()
        return tokens

    generate(request["warm_ids"], 16)
    tools.start()
    ids = generate(request["ids"], request["tokens"])
    return {"ids": ids, "prompt_tokens": len(request["ids"]), "times": tools.times()}


def _sampling(request: Request) -> dict[str, Any]:
    if request["temperature"] == 0:
        return {"do_sample": False}
    # It keeps 50 tokens unless top_k is set; 0 keeps all.
    options = {name: request[name] for name in ("temperature", "top_p")}
    return {"do_sample": True, **options, "top_k": 0}


def _options(request: Request) -> dict[str, Any]:
    settings = request["settings"]
    if request["kind"] == "lookup":
        return {"prompt_lookup_num_tokens": settings["length"]}
    if request["kind"] != "draft":
        return {}
    draft = _load(request, "draft")
    draft.generation_config.num_assistant_tokens_schedule = settings["schedule"]
    draft.generation_config.num_assistant_tokens = settings["length"]
    draft.generation_config.assistant_confidence_threshold = settings["confidence"]
    return {"assistant_model": draft}


def _load(request: Request, role: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(request["threads"])
    dtype = getattr(torch, _TYPES[request["weights"]])
    model: Any = AutoModelForCausalLM.from_pretrained(request["models"][role], dtype=dtype)
    # A token that never comes: a least length, or no end of text, fails when a draft assists.
    model.generation_config.eos_token_id = model.config.vocab_size
    model.generation_config.pad_token_id = 0
    return model.eval()


def perplexity(request: Request, tools: Tools) -> dict[str, Any]:
    """Measure with whole windows."""
    import torch

    model = _load(request, "target")

    def logits(ids: list[int]) -> Any:
        with torch.inference_mode():
            return model(torch.tensor([ids])).logits[0].float().numpy()

    weight_bytes = sum(one.numel() * one.element_size() for one in model.parameters())
    found = tools.perplexity(request["ids"], logits)
    return {"perplexity": found, "weight_bytes": weight_bytes}
