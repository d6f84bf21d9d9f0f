"""Measures constrained decoding: validity, speed against plain constrained decoding, masks."""

from __future__ import annotations

import itertools
import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.bundles import Suite
from edgedec.compare.records import Recorder, Row
from edgedec.decoding.sampling import SamplingParams
from edgedec.grammar import spec
from edgedec.grammar.grammars import Grammars
from edgedec.pipeline import GenerateOptions, Pipeline
from edgedec.text.tokenizer import Tokenizer

SCHEMAS = 1000
_VOCABULARY = 32_000
_CORPUS_BYTES = 6 << 20
_MASKED, _NODES = 60, 60


def grammar(suite: Suite, recorder: Recorder) -> list[Row]:
    """Generate JSON of random schemas plainly and with drafts, in turn; time masks."""
    with (
        Pipeline.open(suite.bundles.shipped(), suite.plain()) as plain,
        Pipeline.open(suite.bundles.shipped(), suite.options()) as drafted,
    ):
        rows = [texts((plain, drafted), SCHEMAS, recorder)]
        own = Grammars(plain.tokenizer, plain.target.info.vocab_size, plain.target.info.eos_ids)
        rows.append(_masks(own, plain.tokenizer, recorder))
    tokenizer = trained_tokenizer(_VOCABULARY)
    rows.append(_masks(Grammars(tokenizer, tokenizer.vocab_size, (0,)), tokenizer, recorder))
    return rows


def texts(both: tuple[Pipeline, Pipeline], schemas: int, recorder: Recorder) -> Row:
    """Return how many texts are valid, and the speed-up over those that ended."""
    import jsonschema

    ended, valid, seconds, tokens = [0, 0], [0, 0], [0.0, 0.0], [0, 0]
    for seed in range(schemas):
        schema = random_schema(seed)
        sampling = SamplingParams(temperature=0.8 if seed % 2 else 0.0, seed=seed)
        options = GenerateOptions(400, sampling, json_schema=schema)
        for side in (0, 1) if seed % 4 < 2 else (1, 0):
            began = perf_counter()
            found = both[side].generate("value = ", options)
            took = perf_counter() - began
            whole = found.finish_reason == "eos"
            ok = whole and jsonschema.Draft202012Validator(schema).is_valid(json.loads(found.text))
            ended[side] += whole
            valid[side] += ok
            seconds[side] += took
            tokens[side] += len(found.events)
            recorder.add(
                kind="run",
                seed=seed,
                drafted=bool(side),
                finish=found.finish_reason,
                valid=ok,
                seconds=took,
                tokens=len(found.events),
                passes=found.metrics.target_passes,
                forced=found.metrics.forced_tokens,
            )
    row = {
        "schemas": schemas,
        "ended": tuple(ended),
        "valid": tuple(valid),
        "tokens_per_second": tuple(t / s for t, s in zip(tokens, seconds, strict=True)),
        "speedup": (seconds[0] / tokens[0]) / (seconds[1] / tokens[1]),
    }
    recorder.add(kind="summary", **row)
    return row


def _masks(grammars: Grammars, tokenizer: Tokenizer, recorder: Recorder) -> Row:
    """Time the mask of each node along random texts of random schemas, new to the grammar."""
    rng = np.random.default_rng(0)
    took: list[float] = []
    for seed in range(_MASKED):
        constraint = grammars.constraint(spec.json_schema(random_schema(seed)))
        for _ in range(_NODES):
            began = perf_counter()
            mask = constraint.allowed([])
            took.append(perf_counter() - began)
            assert mask is not None
            token = int(rng.choice(np.flatnonzero(mask)))
            if not tokenizer.written(token):  # the end
                break
            constraint.push([token])
    row = {
        "vocabulary": tokenizer.vocab_size,
        "masks": len(took),
        "median_us": 1e6 * median(took),
        "p99_us": 1e6 * float(np.percentile(took, 99)),
    }
    recorder.add(kind="masks", **row)
    return row


def trained_tokenizer(size: int) -> Tokenizer:
    """Return a byte-level tokenizer of ``size`` tokens, trained on Python's own library."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers

    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(_library_text(), trainer)
    return Tokenizer(made, {})


def _library_text() -> Iterator[str]:
    folder = Path(sysconfig.get_path("stdlib"))
    left = _CORPUS_BYTES
    for path in itertools.chain(sorted(folder.glob("*.py")), sorted(folder.glob("*/*.py"))):
        text = path.read_text("utf-8", "replace")
        left -= len(text)
        if left < 0:
            return
        yield text


# -- random JSON schemas whose texts are short --------------------------------------------------

_NAMES = ("name", "id", "age", "tags", "value", "items", "ok", "größe", "a b", "x-1")
_PATTERNS = ("^[a-z]{1,6}$", "^[A-Z][a-z]{0,4}-[0-9]{2}$", "^(yes|no|maybe)$", "^[0-9]{4}$")
_DEEPEST = 3


def random_schema(seed: int) -> dict[str, Any]:
    """Return an object's schema, determined by the seed."""
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
