"""Writes the tables of two guides: published drafts, and what heads may gain.

``help_pages.py`` puts them between the comments that name them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgedec.library.published import HEAD, TARGETS, Draft, Target, drafts_for

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "docs" / "measurements" / "kernels.jsonl"
# Of the measured passes: behind 128 tokens for ONNX Runtime, and the dearest for OpenVINO.
KERNELS = {
    "ONNX Runtime": {"way": "onnxruntime", "context": 128, "order": "in turn"},
    "OpenVINO": {"way": "openvino", "context": 1000, "order": "as many again"},
}
_MODEL = "target-0.5b"
_DRAFTED = 32_000  # tokens of a head's vocabulary


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a target that its head shares, from its configuration."""

    heads: int
    kv_heads: int
    width: int
    ffn: int
    vocabulary: int

    def head(self, hidden: int) -> int:
        """Return the parameters that a step of an EAGLE-3 head reads: a layer and its LM head."""
        attention = hidden * self.width * (2 * (self.heads + 2 * self.kv_heads) + self.heads)
        return attention + 3 * hidden * self.ffn + _DRAFTED * hidden

    def fusion(self, hidden: int) -> int:
        """Return the parameters that three states of the target pass through, once a pass."""
        return 3 * hidden * hidden

    def target(self, hidden: int, layers: int) -> int:
        """Return the parameters that a pass of the target reads: its layers and its LM head."""
        attention = 2 * hidden * self.width * (self.heads + self.kv_heads)
        return layers * (attention + 3 * hidden * self.ffn) + self.vocabulary * hidden


SHAPES = {
    "Qwen/Qwen3-1.7B": Shape(16, 8, 128, 6144, 151936),
    "Qwen/Qwen3-4B": Shape(32, 8, 128, 9728, 151936),
    "Qwen/Qwen3-4B-Instruct-2507": Shape(32, 8, 128, 9728, 151936),
    "Qwen/Qwen3-8B": Shape(32, 8, 128, 12288, 151936),
    "Qwen/Qwen3-14B": Shape(40, 8, 128, 17408, 151936),
    "Qwen/Qwen3-32B": Shape(64, 8, 128, 25600, 151936),
    "meta-llama/Llama-3.1-8B-Instruct": Shape(32, 8, 128, 14336, 128256),
}


@dataclass(frozen=True, slots=True)
class Published:
    """Tokens per pass of the target that somebody measured with a head, on a GPU.

    Attributes:
        target: its name.
        head: whose head it is.
        source: a key of ``SOURCES``.
        tokens: by task, and there by the number of drafted tokens; the target's own included.

    """

    target: str
    head: str
    source: str
    tokens: Mapping[str, Mapping[int, float]]


SOURCES = {
    "AngelSlim": "github.com/Tencent/AngelSlim, README: vLLM 0.11.2, two drafted tokens",
    "vLLM": "github.com/vllm-project/vllm, tests/v1/spec_decode/test_acceptance_length.py: greedy",
    "SpecBundle": "docs.sglang.io/SpecForge/SpecBundle, chains of 3, 5 and 7",
    "speculators#563": "github.com/vllm-project/speculators/issues/563: a head with Llama's layer,"
    " trained on 508,000 samples; temperature 0.6",
}


def _by_length(*tokens: float, lengths: Sequence[int] = range(1, 6)) -> dict[int, float]:
    return dict(zip(lengths, tokens, strict=True))


def _pairs(code: float, chat: float, maths: float) -> dict[str, dict[int, float]]:
    return {"code": {2: code}, "chat": {2: chat}, "mathematics": {2: maths}}


_LONG = (3, 5, 7)
MEASURED = (
    Published("Qwen/Qwen3-1.7B", "AngelSlim", "AngelSlim", _pairs(2.20, 2.17, 2.13)),
    Published("Qwen/Qwen3-4B", "AngelSlim", "AngelSlim", _pairs(2.08, 2.07, 2.07)),
    Published("Qwen/Qwen3-8B", "AngelSlim", "AngelSlim", _pairs(1.97, 1.97, 2.00)),
    Published("Qwen/Qwen3-8B", "made as RedHatAI's", "speculators#563", {
        "code": _by_length(1.79, 2.35, 2.71, 2.88, 3.00),
        "summaries": _by_length(1.67, 2.05, 2.25, 2.33, 2.37),
        "mathematics": _by_length(1.81, 2.42, 2.87, 3.12, 3.30),
    }),
    Published("meta-llama/Llama-3.1-8B-Instruct", "RedHatAI", "vLLM", {"chat": {3: 2.60}}),
    Published("meta-llama/Llama-3.1-8B-Instruct", "lmsys (SpecForge)", "SpecBundle", {
        "code": _by_length(3.34, 4.32, 4.91, lengths=_LONG),
        "chat": _by_length(2.90, 3.52, 3.86, lengths=_LONG),
        "mathematics": _by_length(2.55, 2.85, 2.97, lengths=_LONG),
        "questions on finance": _by_length(1.91, 2.04, 2.10, lengths=_LONG),
    }),
)  # fmt: skip


def row_costs(kernels: str) -> dict[int, float]:
    """Return what a pass over n rows costs relative to one over one row, as recorded."""
    wanted = {"kind": "costs", "model": _MODEL, "weights": "int4", **KERNELS[kernels]}
    for line in RECORDS.read_text("utf-8").splitlines():
        record = json.loads(line)
        if wanted.items() <= record.items():
            times = {
                int(found[1]): seconds
                for name, seconds in record.items()
                if (found := re.fullmatch(r"T\((\d+)\)_s", name))
            }
            return {rows: seconds / times[1] for rows, seconds in times.items()}
    raise LookupError(f"{RECORDS.name} has no passes of {kernels}")


def cost(costs: Mapping[int, float], rows: float) -> float:
    """Return the cost of a pass over so many rows, between the measured ones in proportion."""
    low = max(one for one in costs if one <= rows)
    high = min(one for one in costs if one >= rows)
    part = (rows - low) / (high - low) if high > low else 0.0
    return costs[low] + part * (costs[high] - costs[low])


def speed_up(tokens: float, length: int, share: float, costs: Mapping[int, float]) -> float:
    """Return tokens per second relative to plain decoding, with a head that drafts a chain.

    The target verifies length + 1 rows. The first step of the head reads the accepted tokens again
    with the target's states, as many rows as the pass gave tokens; the others read one row.

    Args:
        tokens: per pass of the target.
        length: drafted tokens.
        share: what a step of the head costs relative to a pass of the target over one row.
        costs: of passes by rows.

    """
    return tokens / (cost(costs, length + 1) + share * (length - 1 + cost(costs, tokens)))


def share(target: Target) -> float:
    """Return the share of the target's parameters that a step of its head reads."""
    shape = SHAPES[target.name]
    return shape.head(target.hidden) / shape.target(target.hidden, target.layers)


def drafts_table() -> str:
    """Return which draft there is for which model."""
    rows = [
        [f"`{target.name}`" if first else "", f"`{draft.name}`", draft.kind, draft.size,
         draft.licence or "see its page", _more(draft)]
        for target in TARGETS
        for first, draft in _firsts(drafts_for([target]))
    ]  # fmt: skip
    return _table(["model", "draft", "kind", "parameters", "licence", "what it needs"], rows)


def _firsts(drafts: Sequence[Draft]) -> list[tuple[bool, Draft]]:
    return [(index == 0, draft) for index, draft in enumerate(drafts)]


def _more(draft: Draft) -> str:
    where = {HEAD: "`--head`; "}.get(draft.kind, "" if "MTP" in draft.kind else "`--draft`; ")
    need = draft.needs.split("; ")
    said = [need[0], *(need[1:] if "MTP" in draft.kind else []), *filter(None, [draft.note])]
    if draft.unread:
        return f"not used yet: {draft.unread}"
    return where + "; ".join(said)


def gains_table() -> str:
    """Return what the published tokens per pass come to with measured passes."""
    targets = {one.name: one for one in TARGETS}
    rows = []
    for one in MEASURED:
        target = targets[one.target]
        for task, tokens in one.tokens.items():
            cells = [_best(tokens, share(target), row_costs(kernels)) for kernels in KERNELS]
            name = one.target.split("/")[1]
            rows.append([name, one.head, task, _listed(tokens), *cells, one.source])
    head = ["target", "head", "text", "tokens a pass (drafted)", *KERNELS, "published by"]
    return _table([f"calculated: {head[0]}", *head[1:]], rows)


def _listed(tokens: Mapping[int, float]) -> str:
    return ", ".join(f"{each:.2f} ({length})" for length, each in tokens.items())


def _best(tokens: Mapping[int, float], share: float, costs: Mapping[int, float]) -> str:
    found = {length: speed_up(each, length, share, costs) for length, each in tokens.items()}
    length = max(found, key=found.__getitem__)
    return f"{found[length]:.2f}x ({length})"


def sources() -> str:
    """Return where the published figures are from."""
    return "\n".join(f"- {name}: {what}." for name, what in SOURCES.items())


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in lines)


# What is written into which page of docs/.
PARTS = {
    "guides/published-heads.md": {"drafts": drafts_table, "gains": gains_table, "sources": sources},
}


def page(name: str, parts: Mapping[str, Callable[[], str]] | None = None) -> str:
    """Return a page with its tables made anew: those of ``PARTS``, or others."""
    text = (ROOT / "docs" / name).read_text("utf-8")
    for part, made in (PARTS[name] if parts is None else parts).items():
        start, end = f"<!-- {part}: written by make help-pages -->\n", f"\n<!-- end of {part} -->"
        before, _, rest = text.partition(start)
        _, found, after = rest.partition(end)
        if not found:
            raise LookupError(f"{name} has no place for {part}")
        text = f"{before}{start}\n{made()}\n{end}{after}"
    return text
