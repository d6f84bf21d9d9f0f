# SPDX-License-Identifier: Apache-2.0
"""What a target computes over its chats, once: its streams before the tapped layers, and the last.

A pass of the target costs more than a step of a head. So the states are kept in files, a few chats
each, and an interrupted run goes on with the next file.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from benchmarks.training.demo.network import Decoder, Dimensions
from benchmarks.training.demo.train import autocast

CHATS_A_FILE = 32
PAD = 0


@dataclass(frozen=True)
class Chat:
    """A prompt and its answer; ``prompt`` counts the tokens that the target did not write."""

    tokens: list[int]
    prompt: int
    kind: str


def read_chats(file: Path, longest: int = 640) -> list[Chat]:
    """The chats of a file of ``answers``, each cut to ``longest`` tokens."""
    lines = file.read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines if line.endswith("}")]  # the last may be half
    return [Chat(row["ids"][:longest], row["n"], row["kind"]) for row in rows]


def text_chats(file: Path, tokenizer: Tokenizer, longest: int = 256) -> list[Chat]:
    """Texts that the target did not write, as chats without an answer."""
    ids = [tokenizer.encode(text).ids[:longest] for text in json.loads(file.read_text("utf-8"))]
    return [Chat(one, len(one), "text") for one in ids if len(one) > 8]


def dimensions(folder: Path) -> Dimensions:
    """The sizes of a checkpoint of Llama's kind with one embedding for both ends."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    if config["model_type"] != "llama" or not config["tie_word_embeddings"]:
        raise SystemExit(f"error: {folder}: expected a llama with tied embeddings")
    return Dimensions(
        hidden=config["hidden_size"],
        ffn=config["intermediate_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"],
        vocab=config["vocab_size"],
        rope_theta=config["rope_theta"],
        norm_epsilon=config["rms_norm_eps"],
        max_positions=config["max_position_embeddings"],
    )


def load_target(folder: Path) -> Decoder:
    """The checkpoint in a folder, in float32 and without gradients."""
    model = Decoder(dimensions(folder))
    weights = load_file(folder / "model.safetensors")
    weights.pop("lm_head.weight", None)  # some write the tied matrix twice
    model.load_state_dict({name: weight.float() for name, weight in weights.items()})
    return model.requires_grad_(False)


def middle_taps(layers: int) -> tuple[int, int, int]:
    """The layers whose inputs a head reads, as its authors take them."""
    return 2, layers // 2, layers - 3


def padded(chats: list[Chat]) -> Tensor:
    """The chats' tokens as rows of equal length, [chats, longest]."""
    rows = [torch.tensor(chat.tokens) for chat in chats]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


@torch.inference_mode()
def streams(target: Decoder, tokens: Tensor, taps: tuple[int, ...]) -> Tensor:
    """The streams before ``taps`` and, last, after the final norm, [rows, length, taps + 1, H]."""
    cos, sin = target.cos[: tokens.shape[1]], target.sin[: tokens.shape[1]]
    with autocast(tokens.device):
        x, found = target.model.embed_tokens(tokens), []
        for number, layer in enumerate(target.model.layers):
            if number in taps:
                found.append(x)
            x = layer(x, cos, sin, None)
        found.append(target.model.norm(x))
    return torch.stack([one.float() for one in found], dim=2)


def keep_states(target: Decoder, chats: list[Chat], taps: tuple[int, ...], folder: Path) -> int:
    """Write the states of all chats, float16, and return how many files hold them.

    A file is as large as its chats need, without what fills their rows. The last few chats are
    left out where they fill no file, so that more chats can follow later.
    """
    folder.mkdir(parents=True, exist_ok=True)
    whole = len(chats) // CHATS_A_FILE
    for number in range(whole):
        file = folder / f"{number:05}.npy"
        if file.exists():
            continue
        mine = chats[number * CHATS_A_FILE : (number + 1) * CHATS_A_FILE]
        # Chats of like length share a pass; causal attention does not see what fills a row.
        order = sorted(range(len(mine)), key=lambda chat: len(mine[chat].tokens))
        found: dict[int, Tensor] = {}
        for start in range(0, len(order), 8):
            part = order[start : start + 8]
            rows = streams(target, padded([mine[chat] for chat in part]), taps)
            for chat, row in zip(part, rows, strict=True):
                found[chat] = row[: len(mine[chat].tokens)]
        joined = torch.cat([found[chat] for chat in range(len(mine))])
        fresh = file.with_suffix(".new.npy")
        np.save(fresh, joined.clamp(-65000, 65000).half().numpy())
        os.replace(fresh, file)
        print(f"states of {(number + 1) * CHATS_A_FILE} of {len(chats)} chats", flush=True)
    return whole
