"""tokenizer.json files that panic, or take minutes and gigabytes, where nothing bounds them."""

import base64
import json

import tiny_tokenizers

RUN = {"Regex": "(x+x+)+y"}


def _with(**parts: object) -> str:
    return json.dumps({**json.loads(tiny_tokenizers.byte_level().to_str()), **parts})


def doubling(character: str, times: int) -> str:
    """A normalizer that makes ``2 ** times`` characters of one."""
    step = {"type": "Replace", "pattern": {"String": character}, "content": 2 * character}
    return _with(normalizer={"type": "Sequence", "normalizers": [step] * times})


def replacing(*steps: tuple[str, str]) -> str:
    """A normalizer with these replacements, one after the other."""
    made = [{"type": "Replace", "pattern": {"String": a}, "content": b} for a, b in steps]
    return _with(normalizer={"type": "Sequence", "normalizers": made})


def normalizing(*steps: dict[str, object]) -> str:
    """These normalizers, one after the other."""
    return _with(normalizer={"type": "Sequence", "normalizers": list(steps)})


def inserting(before: str, times: int) -> str:
    """An expression that matches no text before a rare word, where one character is put."""
    step = {"type": "Replace", "pattern": {"Regex": f"(?={before})"}, "content": before[0]}
    return normalizing(*[step] * times)


def mapped(to: str) -> str:
    """SentencePiece's table with a text that one character may become; its trie leads nowhere."""
    table = (1024).to_bytes(4, "little") + bytes(1024) + to.encode() + b"\0"
    charsmap = base64.b64encode(table).decode()
    return normalizing({"type": "Precompiled", "precompiled_charsmap": charsmap})


def backtracking(expression: str = "(x+x+)+y") -> str:
    """A pre-tokenizer whose search gives up on a run of ``x``, which panics."""
    split = {
        "type": "Split",
        "pattern": {"Regex": expression},
        "behavior": "Isolated",
        "invert": False,
    }
    return _with(pre_tokenizer=split)


def adding(tokens: int) -> str:
    """A post-processor that puts many tokens before every text."""
    return _with(
        post_processor={
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<|end|>", "type_id": 0}}] * tokens,
            "pair": [],
            "special_tokens": {"<|end|>": {"id": "<|end|>", "ids": [0], "tokens": ["<|end|>"]}},
        }
    )


ATTACKS = {
    "a panic": backtracking(),
    "doubling": doubling("a", 26),
    "doubling another letter": doubling("q", 26),
    "doubling less": doubling("a", 12),
    "doubling a rare word": doubling("qzq", 26),
    "doubling in turns": replacing(*[("q", "zz"), ("z", "qq")] * 13),
    "one long replacement": replacing(("qzq", "x" * 100_000)),
    "many added tokens": adding(100_000),
    "inserting before a rare letter": inserting("ж", 26),
    "one long text for a rare letter": mapped("x" * 100_000),
    "bytes as characters, again and again": normalizing(*[{"type": "ByteLevel"}] * 26),
    "a long text before every piece": normalizing({"type": "Prepend", "prepend": "x" * 1000}),
}
