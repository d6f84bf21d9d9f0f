"""tokenizer.json files that panic, or take minutes and gigabytes, where nothing bounds them."""

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
}
