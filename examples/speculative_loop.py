"""Speculative sampling in one loop, over the ``Session`` protocol that every runtime fulfils.

python examples/speculative_loop.py demo "def fibonacci(n):" 0.7
"""

import sys
from collections.abc import Iterator

import numpy as np

from edgedec import Bundle
from edgedec.decoding.session import Session
from edgedec.decoding.tree import TokenTree
from edgedec.records.load import LoadOptions
from edgedec.runtimes import registry
from edgedec.text.tokenizer import Tokenizer


def probabilities(logits: np.ndarray, temperature: float) -> np.ndarray:
    """Return the distribution of each row; at temperature 0 its best token has probability 1."""
    if temperature == 0:
        return np.eye(logits.shape[1])[logits.argmax(axis=1)]
    scores = np.exp((logits - logits.max(axis=1, keepdims=True)).astype(np.float64) / temperature)
    return scores / scores.sum(axis=1, keepdims=True)


def speculate(
    target: Session, draft: Session, text: list[int], length: int, temperature: float, seed: int
) -> Iterator[tuple[int, list[int]]]:
    """Extend ``text`` without end; yield how many drafts each round accepts, and its tokens."""
    random = np.random.default_rng(seed)
    target.prefill(text[:-1])
    while True:
        # Draft: the last token is the root of a chain whose nodes the draft samples one by one.
        draft.prefill(text[draft.length : -1])
        tree, q = TokenTree(text[-1]), []
        for node in range(length):
            q.append(probabilities(draft.forward(tree, node).logits, temperature)[0])
            tree.add(int(random.choice(len(q[node]), p=q[node])), node)
        # Verify: one pass of the target scores all of them, and the token after the last.
        p = probabilities(target.forward(tree).logits, temperature)
        # Accept each with probability p/q; the first rejected token ends the round.
        accepted = 0
        while accepted < length:
            token = tree.tokens[accepted + 1]
            if random.random() * q[accepted][token] >= p[accepted][token]:
                break
            accepted += 1
        # The residual makes the text exactly as probable as the target's own.
        left = p[accepted] if accepted == length else np.maximum(p[accepted] - q[accepted], 0)
        last = int(random.choice(len(left), p=left / left.sum()))
        # Commit: both caches keep what is accepted; the draft has not computed its last token.
        target.commit(range(accepted + 1))
        draft.commit(range(min(accepted + 1, length)))
        text += [*tree.tokens[1 : accepted + 1], last]
        yield accepted, text[-1 - accepted :]


def main(bundle: str, prompt: str, temperature: float = 0.0, tokens: int = 64) -> None:
    """Print a continuation of the prompt, with the drafts that were accepted in brackets."""
    roles = Bundle.open(bundle).roles
    load, tokenizer = registry.adapter("onnx").load, Tokenizer.load(roles[0].tokenizer)
    target, draft = (load(role.variant("onnx").path, LoadOptions()) for role in roles)
    text = tokenizer.encode(prompt)
    room, end = len(text) + tokens + 8, len(text) + tokens
    rounds = speculate(target.open(room), draft.open(room), text, 4, temperature, seed=1)
    print(prompt, end="")
    for accepted, new in rounds:
        drafted = f"[{tokenizer.decode(new[:accepted])}]" if accepted else ""
        print(drafted + tokenizer.decode(new[accepted:]), end="", flush=True)
        if len(text) >= end or set(new) & set(target.info.eos_ids):
            break
    print()


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(float, sys.argv[3:4]))
