"""Finds a draft for a target among the models of the library: one with the same tokenizer."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from edgedec._support.model_path import DEMO, is_gguf
from edgedec.bundle import Bundle
from edgedec.library.records import Model
from edgedec.library.store import Library

# A draft with a larger share of the target's parameters rarely pays; among smaller ones, the
# largest predicts best.
LARGEST_SHARE = 0.25
_TOKENIZER = ("model", "pre", "tokens", "token_type", "merges", "add_bos_token")


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts that decide whether one model can draft for another.

    Attributes:
        tokenizer: a hash; equal ones are of the same tokenizer.
        parameters: numbers in the model.

    """

    tokenizer: str
    parameters: int


def of_gguf(path: Path) -> Facts:
    """Return the facts of a GGUF file, all parts together; BundleError if it is damaged."""
    from edgedec.gguf import GgufHeader
    from edgedec.gguf.parts import decodable_parts

    header = GgufHeader.read(path)
    parts = [header if part == path else GgufHeader.read(part) for part in decodable_parts(header)]
    raw = [header.metadata.get(f"tokenizer.ggml.{name}") for name in _TOKENIZER]
    digest = hashlib.sha256(json.dumps(raw, default=repr).encode()).hexdigest()
    return Facts(digest, sum(part.parameters for part in parts))


def find(target: str | Path, library: Library) -> Model | None:
    """Return a model that can draft for a target without a draft of its own, or None.

    It has the same tokenizer and at most a quarter of the parameters; of several the largest.

    Args:
        target: as ``Pipeline.open`` takes it.
        library: where to look.

    Raises:
        BundleError: the target is not a model, or damaged.

    """
    models = library.models()
    if str(target) == DEMO or not models:
        return None
    if is_gguf(target):
        facts = of_gguf(Path(target))
    else:
        bundle = Bundle.open(target)
        drafted = bundle.draft is not None or bundle.head is not None
        if drafted or "parameters" not in bundle.target.dims:
            return None
        facts = Facts(bundle.target.tokenizer_hash, bundle.target.dims["parameters"])
    fitting = [
        one
        for one in models
        if one.record.tokenizer == facts.tokenizer
        and one.record.parameters <= LARGEST_SHARE * facts.parameters
    ]
    return max(fitting, key=lambda one: one.record.parameters, default=None)
