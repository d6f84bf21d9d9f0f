# SPDX-License-Identifier: Apache-2.0
"""Train an assistant for a target of Gemma 4's kind: a head that reads the target's cache.

    python -m benchmarks.training.assistant --target FOLDER --text FILE --out HEAD --tokens 1e6

It learns the target's distribution on a text, several steps ahead: each step reads the text's next
token and the state of the step before, and stays at the root's position with the keys and values
before it. The text should be the target's own (``edgedec run`` writes some). Needs torch,
transformers 5.24, tokenizers and safetensors. Interrupted, the same command goes on from --scratch.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks.training.demo.train import Schedule, Trainer

NEAR, WHOLE = "sliding_attention", "full_attention"
STEPS = 3
# Fields that an assistant's configuration has from its target's.
_LIKE = (
    "vocab_size", "num_attention_heads", "num_key_value_heads", "head_dim", "global_head_dim",
    "num_global_key_value_heads", "sliding_window", "rope_parameters", "rms_norm_eps",
    "hidden_activation", "max_position_embeddings", "eos_token_id", "per_layer_config",
)  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", type=Path, required=True, help="checkpoint's folder")
    parser.add_argument("--text", type=Path, required=True, help="text, best the target's own")
    parser.add_argument("--out", type=Path, default=Path("build/assistant"))
    parser.add_argument("--scratch", type=Path, default=Path("build/assistant-scratch"))
    parser.add_argument("--hidden", type=int, default=256, help="channels of the assistant (256)")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--tokens", type=float, default=1e6, help="to train on, with repeats (1e6)")
    parser.add_argument("--window", type=int, default=256, help="tokens of a window (256)")
    parser.add_argument("--rows", type=int, default=8, help="windows of a step (8)")
    parser.add_argument("--rate", type=float, default=2e-3, help="learning rate (2e-3)")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def described(target: Any, hidden: int, layers: int) -> dict[str, Any]:
    """Return the assistant's config.json: as Google's, whose last layer alone reads all tokens."""
    stated = target.get("text_config", target)
    text = {name: stated[name] for name in _LIKE if stated.get(name) is not None}
    own = {
        "model_type": "gemma4_text", "hidden_size": hidden, "intermediate_size": 8 * hidden,
        "num_hidden_layers": layers, "num_kv_shared_layers": layers,
        "layer_types": [NEAR] * (layers - 1) + [WHOLE], "hidden_size_per_layer_input": 0,
        "vocab_size_per_layer_input": 0, "attention_k_eq_v": False, "tie_word_embeddings": True,
        "final_logit_softcapping": None, "use_double_wide_mlp": False,
    }  # fmt: skip
    return {
        "model_type": "gemma4_assistant", "architectures": ["Gemma4AssistantForCausalLM"],
        "backbone_hidden_size": stated["hidden_size"], "use_ordered_embeddings": False,
        "tie_word_embeddings": True, "text_config": {**text, **own},
    }  # fmt: skip


class Lesson:
    """A target's outputs and cache for some windows, ``[rows, length]``, without a gradient."""

    def __init__(self, target: Any, tokens: Tensor) -> None:
        self.tokens, length = tokens, tokens.shape[1]
        with torch.no_grad():
            found = target.model(
                tokens, return_shared_kv_states=True, use_cache=False, output_hidden_states=True
            )
            self.states = found.last_hidden_state
            logits, cap = target.lm_head(self.states), target.config.final_logit_softcapping
            self.taught = cap * torch.tanh(logits / cap) if cap else logits
            self.embedded = target.model.embed_tokens(tokens)
        self.cache = {kind: found.shared_kv_states[kind] for kind in (NEAR, WHOLE)}
        # Roots are all tokens but the first, as far as there are tokens for every step.
        self.count = length - STEPS
        roots, seen = torch.arange(1, 1 + self.count)[:, None], torch.arange(length)[None]
        near = roots - seen < target.config.sliding_window
        self.positions = roots.T
        self.masks = {
            WHOLE: _bias(seen < roots)[None, None],
            NEAR: _bias((seen < roots) & near)[None, None],
        }

    def steps(self, assistant: Any) -> list[tuple[Tensor, Tensor]]:
        """Return each step's logits and the target's, ``[rows, roots, vocabulary]``."""
        state, found = self.states[:, : self.count], []
        for step in range(STEPS):
            at = slice(1 + step, 1 + step + self.count)
            both = torch.cat([self.embedded[:, at], state], dim=-1)
            out = assistant.model(
                inputs_embeds=assistant.pre_projection(both), attention_mask=self.masks,
                position_ids=self.positions, shared_kv_states=self.cache, use_cache=False,
                output_hidden_states=True,  # else it drops rows
            ).last_hidden_state  # fmt: skip
            state = assistant.post_projection(out)
            found.append((assistant.lm_head(out), self.taught[:, at]))
        return found


def _bias(seen: Tensor) -> Tensor:
    return torch.zeros(seen.shape).masked_fill(~seen, float("-inf"))


def loss_of(lesson: Lesson, assistant: Any) -> Tensor:
    """Return the mean divergence from the target's logits; later steps weigh less."""
    losses = [
        F.kl_div(logits.log_softmax(-1), taught.softmax(-1), reduction="none").sum(-1).mean()
        for logits, taught in lesson.steps(assistant)
    ]
    return sum((0.8**step * loss for step, loss in enumerate(losses)), torch.zeros(()))


@torch.no_grad()
def agreement(lesson: Lesson, assistant: Any) -> list[float]:
    """Return, for each depth, how often the first choice is the target's."""
    return [
        round(float((logits.argmax(-1) == taught.argmax(-1)).float().mean()), 3)
        for logits, taught in lesson.steps(assistant)
    ]


def save(assistant: Any, stated: dict[str, Any], out: Path) -> None:
    """Write the folder that ``edgedec export --head`` reads."""
    out.mkdir(parents=True, exist_ok=True)
    kept = {name: one for name, one in assistant.state_dict().items() if name != "lm_head.weight"}
    save_file({name: one.contiguous() for name, one in kept.items()}, out / "model.safetensors")
    (out / "config.json").write_text(json.dumps(stated, indent=2) + "\n", "utf-8")


@torch.no_grad()
def begin(assistant: Any, target: Any) -> None:
    """Give its embedding what fits of the target's: the directions in which tokens differ most."""
    known, own = target.get_input_embeddings().weight, assistant.get_input_embeddings().weight
    axes = torch.linalg.svd(known, full_matrices=False).Vh[: own.shape[1]]
    own[:, : len(axes)] = known @ axes.T


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    target = AutoModelForCausalLM.from_pretrained(
        options.target, attn_implementation="eager", dtype=torch.float32
    ).eval()
    given = json.loads((options.target / "config.json").read_text("utf-8"))
    stated = described(given, options.hidden, options.layers)
    config = AutoConfig.for_model(**stated)
    config._attn_implementation = config.get_text_config()._attn_implementation = "eager"
    assistant = AutoModelForCausalLM.from_config(config).train()
    begin(assistant, target)
    tokenizer = Tokenizer.from_file(str(options.target / "tokenizer.json"))
    ids = np.array(tokenizer.encode(options.text.read_text("utf-8")).ids)
    held, ids = ids[: 4 * options.window], ids[4 * options.window :]
    shown, long = Lesson(target, torch.from_numpy(held).reshape(4, -1)), options.window
    schedule = Schedule(
        int(options.tokens), options.rate, options.rate, tokens_per_step=options.rows * long,
        short=long, medium=long, long=long, checkpoint_s=60.0,
    )  # fmt: skip
    options.scratch.mkdir(parents=True, exist_ok=True)

    def draw(rng: np.random.Generator, rows: int, length: int) -> NDArray[np.int64]:
        starts = rng.integers(0, len(ids) - length, rows)
        return ids[starts[:, None] + np.arange(length)]

    def say() -> None:
        print(f"agreement by depth {agreement(shown, assistant)}", flush=True)
        save(assistant, stated, options.out)

    trainer = Trainer("assistant", assistant, schedule, options.scratch)
    trainer.fit(draw, lambda rows: loss_of(Lesson(target, rows), assistant), say)


if __name__ == "__main__":
    main()
