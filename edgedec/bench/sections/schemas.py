"""Random JSON schemas whose texts are short, for measuring constrained decoding."""

from __future__ import annotations

from typing import Any

import numpy as np

_NAMES = ("name", "id", "age", "tags", "value", "items", "ok", "größe", "a b", "x-1")
_PATTERNS = ("^[a-z]{1,6}$", "^[A-Z][a-z]{0,4}-[0-9]{2}$", "^(yes|no|maybe)$", "^[0-9]{4}$")
_DEEPEST = 3


def random_schema(seed: int) -> dict[str, Any]:
    """Return an object's schema; equal seeds give equal ones."""
    return _object(np.random.default_rng(seed), 0)


def _object(rng: np.random.Generator, depth: int) -> dict[str, Any]:
    names = rng.choice(_NAMES, size=rng.integers(1, 5), replace=False).tolist()
    required = [name for name in names if rng.random() < 0.7]
    return {
        "type": "object",
        "properties": {name: _any(rng, depth + 1) for name in names},
        "required": required,
        "additionalProperties": False,
    }


def _any(rng: np.random.Generator, depth: int) -> dict[str, Any]:
    inner = (_object, _array, _either) if depth < _DEEPEST else ()
    kinds = (_text, _whole, _number, _constant, _plain, *inner)
    made: dict[str, Any] = kinds[rng.integers(len(kinds))](rng, depth)
    return made


def _text(rng: np.random.Generator, depth: int) -> dict[str, Any]:
    if rng.random() < 0.5:
        return {"type": "string", "pattern": str(rng.choice(_PATTERNS))}
    least = int(rng.integers(0, 3))
    return {"type": "string", "minLength": least, "maxLength": least + int(rng.integers(1, 9))}


def _whole(rng: np.random.Generator, depth: int) -> dict[str, Any]:
    low = int(rng.integers(-50, 50))
    return {"type": "integer", "minimum": low, "maximum": low + int(rng.integers(0, 2000))}


def _number(rng: np.random.Generator, depth: int) -> dict[str, Any]:
    return {"type": "number", "multipleOf": 0.25, "minimum": 0, "maximum": int(rng.integers(1, 99))}


def _constant(rng: np.random.Generator, depth: int) -> dict[str, Any]:
    words = ["red", "green", None, 3, True, {"k": [1, 2]}]
    count = int(rng.integers(1, len(words)))
    return {"enum": words[:count]} if count > 1 else {"const": words[int(rng.integers(6))]}


def _plain(rng: np.random.Generator, depth: int) -> dict[str, Any]:
    return {"type": ["boolean", "null"][int(rng.integers(2))]}


def _array(rng: np.random.Generator, depth: int) -> dict[str, Any]:
    least = int(rng.integers(0, 2))
    most = least + int(rng.integers(0, 3))
    return {"type": "array", "items": _any(rng, depth + 1), "minItems": least, "maxItems": most}


def _either(rng: np.random.Generator, depth: int) -> dict[str, Any]:
    return {"anyOf": [_any(rng, depth + 1), _any(rng, depth + 1)]}
