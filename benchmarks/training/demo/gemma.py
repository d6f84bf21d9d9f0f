# SPDX-License-Identifier: Apache-2.0
"""Train a small target of Gemma 4's kind on the demo pair's text, and let it write some of its own.

    python -m benchmarks.training.demo.gemma --start models/demo --out build/gemma --tokens 2.6e5
    python -m benchmarks.training.assistant --target build/gemma --text build/gemma/own.txt

As E2B: its last layers read the cache of earlier ones, and each layer has a table of tokens of its
own. It begins with the layers of the demo's draft. Needs torch, transformers 5.24, tokenizers
and safetensors. Interrupt it at any time: the same command resumes from the checkpoints in
--scratch, and --out has what was trained so far.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, Gemma4TextConfig, Gemma4TextModel

from benchmarks.training.demo.corpus import VOCAB_SIZE, read_documents, read_packages
from benchmarks.training.demo.drafts import windows
from benchmarks.training.demo.network import DRAFT, Decoder
from benchmarks.training.demo.run import Data, checkpoint, describe, prepare, write_folder
from benchmarks.training.demo.train import Schedule, Trainer, cross_entropy, held_out_loss

NEAR, WHOLE = "sliding_attention", "full_attention"
SHORT = 256  # tokens of most windows
OWN_ROWS, OWN_PROMPT, OWN_LENGTH = 64, 33, 385  # of a batch of own text
TEMPERATURES = (0.0, 0.7, 1.0)  # of own text, in turn


@dataclass(frozen=True)
class GemmaDimensions:
    vocab_size: int = VOCAB_SIZE
    hidden_size: int = 256
    intermediate_size: int = 512
    num_hidden_layers: int = 5
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    global_head_dim: int = 128
    layer_types: tuple[str, ...] = (NEAR, NEAR, WHOLE, NEAR, WHOLE)
    num_kv_shared_layers: int = 2
    use_double_wide_mlp: bool = True
    sliding_window: int = 128
    hidden_size_per_layer_input: int = 32
    vocab_size_per_layer_input: int = VOCAB_SIZE
    final_logit_softcapping: float = 30.0
    max_position_embeddings: int = 8192

    def hf_config(self) -> dict[str, object]:
        """config.json of the equivalent transformers Gemma4ForCausalLM."""
        ids = {"bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0}
        return asdict(self) | ids | {
            "architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text",
            "layer_types": list(self.layer_types), "tie_word_embeddings": True,
            "rope_parameters": {
                NEAR: {"rope_type": "default", "rope_theta": DRAFT.rope_theta},
                WHOLE: {
                    "rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6,
                },
            },
            "dtype": "float16",
        }  # fmt: skip


class Gemma(nn.Module):
    """Token ids [rows, length] -> logits [rows, length, vocab]."""

    def __init__(self, dims: GemmaDimensions, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.dims = dims
        stated = {name: one for name, one in dims.hf_config().items() if name != "dtype"}
        self.model = Gemma4TextModel(Gemma4TextConfig(**stated))

    def forward(self, tokens: Tensor) -> Tensor:
        states = self.model(tokens, use_cache=False).last_hidden_state
        cap = self.dims.final_logit_softcapping
        return cap * torch.tanh(states @ self.model.embed_tokens.weight.T / cap)


@torch.no_grad()
def convert(draft: Decoder, model: Gemma, tokens: Tensor) -> None:
    """Let the first layers compute about what a Llama decoder's do, and the others nothing yet.

    Norms that a Llama lacks give what they norm the size that it had on average over ``tokens``.
    """
    sizes: dict[str, Tensor] = {}

    def measure(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        return lambda _module, _given, out: sizes.update({name: out.square().mean().sqrt()})

    for name, module in draft.named_modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(measure(name))
    draft(tokens)
    given, own = draft.state_dict(), dict(model.named_parameters())
    for name, weight in own.items():
        if ".post_" in name:
            weight.zero_()
    for name in ("model.embed_tokens.weight", "model.norm.weight"):
        own[name].copy_(given[name])
    for at in (f"model.layers.{layer}" for layer in range(draft.dims.layers)):
        for part in (
            "self_attn.q",
            "self_attn.k",
            "self_attn.v",
            "self_attn.o",
            "mlp.up",
            "mlp.down",
        ):
            own[f"{at}.{part}_proj.weight"].copy_(given[f"{at}.{part}_proj.weight"])
        gate = f"{at}.mlp.gate_proj.weight"
        own[gate].copy_(given[gate] / 1.702)  # of which GELU is about what SiLU is of the whole
        own[f"{at}.input_layernorm.weight"].copy_(given[f"{at}.input_layernorm.weight"])
        second = given[f"{at}.post_attention_layernorm.weight"]
        own[f"{at}.pre_feedforward_layernorm.weight"].copy_(second)
        for part in "qk":
            size = sizes[f"{at}.self_attn.{part}_proj"] * draft.dims.head_dim**-0.25
            own[f"{at}.self_attn.{part}_norm.weight"].fill_(size)
        stream = model.dims.hidden_size**0.5  # the factor of the embedding
        attended, fed = sizes[f"{at}.self_attn.o_proj"], sizes[f"{at}.mlp.down_proj"]
        own[f"{at}.post_attention_layernorm.weight"].fill_(stream * attended)
        own[f"{at}.post_feedforward_layernorm.weight"].fill_(stream * fed)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--start", type=Path, default=Path("models/demo"))
    parser.add_argument("--out", type=Path, default=Path("build/gemma"))
    parser.add_argument("--scratch", type=Path, default=Path("build/gemma-scratch"))
    parser.add_argument("--tokens", type=float, default=2.6e5)
    parser.add_argument("--tokens-per-step", type=int, default=2048)
    parser.add_argument(
        "--own-tokens", type=float, default=7e4, help="of text that it writes (7e4)"
    )
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


@torch.no_grad()
def write_own(folder: Path, data: Data, tokens: int) -> None:
    """Write own.txt: what the target makes of beginnings in the corpus, at three temperatures."""
    target: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    rng, texts = np.random.default_rng(8), []
    torch.manual_seed(8)
    for batch in range(-(-tokens // (OWN_ROWS * OWN_LENGTH))):
        prompts = torch.from_numpy(data.crops.draw(rng, OWN_ROWS, OWN_PROMPT))
        heat = TEMPERATURES[batch % len(TEMPERATURES)]
        drawn = {"do_sample": True, "temperature": heat, "top_k": 0} if heat else {}
        rows = target.generate(
            prompts, attention_mask=torch.ones_like(prompts), max_length=OWN_LENGTH,
            min_length=OWN_LENGTH, **drawn,
        )  # fmt: skip
        texts += data.tokenizer.decode_batch(rows.tolist(), skip_special_tokens=False)
        print(f"own text: {len(texts) * OWN_LENGTH} tokens", flush=True)
    (folder / "own.txt").write_text("\n".join(texts), "utf-8")


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    encoded = (options.scratch / "tokens.npz").exists()  # reading it all takes minutes
    documents = [] if encoded else read_documents()
    held_out = [document for document in documents if document.is_held_out]
    packages = [] if encoded else read_packages(held_out)
    tokenizer = options.start / "target" / "tokenizer.json"
    data = prepare(documents, packages, options.scratch, VOCAB_SIZE, tokenizer)
    model = Gemma(GemmaDimensions(), seed=9)
    draft = Decoder(DRAFT)
    draft.load_state_dict(load_file(options.start / "draft" / "model.safetensors"))
    convert(draft, model, windows(data.corpus.held_out, "cpu")[:4])
    schedule = Schedule(
        int(options.tokens), tokens_per_step=options.tokens_per_step,
        muon_rate=2e-3, adam_rate=2e-3, medium=SHORT, long=4 * SHORT, long_every=16,
        checkpoint_s=240.0,
    ).going_on()  # fmt: skip
    trainer = Trainer("gemma", model, schedule, options.scratch, seed=9)

    def say() -> None:  # of little text, since a busy machine trains seldom
        print(f"held-out loss {held_out_loss(model, data.corpus.held_out[:4097]):.3f}", flush=True)
        write_folder(model, options.out, data.tokenizer_file)

    trainer.fit(data.crops.draw, partial(cross_entropy, model), say)
    checkpoint(trainer, data)
    (options.out / "training.json").write_text(json.dumps(describe(trainer), indent=2) + "\n")
    write_own(options.out, data, int(options.own_tokens))


if __name__ == "__main__":
    main()
