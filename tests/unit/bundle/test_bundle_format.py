"""The page on the bundle format: its numbers are recomputed, the schema is held to the reader."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_bundles
from tiny_models import tiny_checkpoint

from edgedec.bundle import Bundle
from edgedec.bundle.manifest import MANIFEST
from edgedec.decoding import noise
from edgedec.decoding.acceptance import GumbelCoupling
from edgedec.decoding.noise import LARGE_FROM, noise_of
from edgedec.decoding.randomness import Purpose, Streams
from edgedec.decoding.ranking import Scored
from edgedec.decoding.sampling import Sampler, SamplingParams, filters
from edgedec.decoding.session import Want
from edgedec.decoding.stopping import StopRule
from edgedec.decoding.tree import Draft, TokenTree
from edgedec.export import ExportOptions
from edgedec.runtimes.onnx.cache import KvCache
from edgedec.runtimes.onnx.padding import ELSEWHERE, ON_ARM
from edgedec.text.chat_pieces import ChatPieces
from edgedec.text.detokenize import byte_of_char
from tools.vectors import files

jsonschema = pytest.importorskip("jsonschema")

DOCS = Path(__file__).parents[3] / "docs"
LOGITS = np.array([1, 3, 2.5, 3], np.float32)
KEY = 15748941593151080762


@pytest.fixture(scope="module")
def page() -> str:
    return (DOCS / "bundle-format.md").read_text("utf-8")


# -- numbers of the page ------------------------------------------------


def keys() -> Iterator[str]:
    for seed, position, purpose, index in ((42, 17, 0, 0), (-3, 0, 2, 1)):
        streams = Streams(seed, coupled=False)
        key = streams._key(position, Purpose(purpose), index)
        uniform = streams.uniform(position, Purpose(purpose), index)
        yield f"| {seed}, {position}, {purpose}, {index} | {key} | {uniform!r} |"


def noises() -> Iterator[str]:
    (made,) = noise_of([KEY], 300)
    counters = noise._all_counters(300) + np.uint64(KEY)
    bits = noise._bits(counters.copy())
    for token in (0, 1, 2, 3):
        yield f"| {token} | {bits[token]} | {made.all()[token]!s} |"
    first = int(made.large_ids[0])
    yield f"| {first} (the first of large noise) | {bits[first]} | {made.all()[first]!s} |"
    yield f"at most {LARGE_FROM:.7f} below"


def drawn(**params: Any) -> int:
    sampler = Sampler(SamplingParams(seed=42, **params), 4, [0] * 17)
    tree = TokenTree.chain([0])
    scored = Scored(0, LOGITS[None], 4, Want.LOGITS)
    return sampler.rows(scored, tree, Purpose.TARGET).draw(0)


def draws() -> Iterator[str]:
    yield f"| temperature 0 | | {drawn()} |"
    for words, options in (
        ("temperature 0.8, seed 42, position 17", {}),
        ("the same, top-k 2", {"top_k": 2}),
        ("the same, top-k 1", {"top_k": 1}),
        ("the same, top-p 0.5", {"top_p": 0.5}),
        ("the same, top-p 0.38", {"top_p": 0.38}),
        ("the same, min-p 0.5", {"min_p": 0.5}),
    ):
        params = SamplingParams(temperature=0.8, **options)
        kept = filters.survivors(LOGITS * np.float32(1 / 0.8), params)
        shown = ", ".join(map(str, kept))
        yield f"| {words} | {shown} | {drawn(temperature=0.8, **options)} |"


def penalties() -> Iterator[str]:
    params = SamplingParams(
        repetition_penalty=2, presence_penalty=0.5, frequency_penalty=0.25, logit_bias={0: 1.5}
    )
    sampler = Sampler(params, 4, [1])
    sampler.push([2, 2])
    row = sampler.penalties.applied(LOGITS, [])
    yield "the logits become " + ", ".join(f"{logit:g}" for logit in row)


def caches() -> Iterator[str]:
    cache = KvCache((2, 4, 100, 64), np.float32)
    start = cache.rows[0].ctypes.data
    yield f"= {cache.rows[0, 2, 10:].ctypes.data - start}."
    cache.close()


def paddings() -> Iterator[str]:
    counts = (1, 2, 5, 16, 17, 33)
    names = ("none", "no lone row in attention (graphs with `attention_rows`)", "no lone row",
             "even", "multiple of 4")  # fmt: skip
    for name, padding in zip(names, ELSEWHERE.asked, strict=True):
        assert name.startswith(padding.name)
        yield f"| {name} | {', '.join(str(padding.rows(count, 5)) for count in counts)} |"
    notes = (" (graphs with `attention_rows`)", " (same)", "")
    for note, padding in zip(notes, ON_ARM.asked, strict=True):
        attention = ", ".join(str(padding.rows(1, past)) for past in range(8, 12))
        products = ", ".join(dict.fromkeys(str(len(padding.pad([1], p))) for p in range(8, 12)))
        yield f"| {padding.name}{note} | {attention} | {products} |"


def rounds() -> Iterator[str]:
    class Drawn:
        """Rows that draw the page's tokens."""

        def draw(self, node: int) -> int:
            return (4, 1, 3, 6)[node]

    verdict = GumbelCoupling().accept(Draft(TokenTree.chain([7, 4, 1, 8])), Drawn(), Streams(0))
    assert verdict.accepted == 2
    gained = [4, 1, verdict.next_token]
    length = len([5, 9, 7]) - 1
    yield f"gains {', '.join(map(str, gained))}, and `length` goes from {length} to {length + 3}"


def stops() -> Iterator[str]:
    class Letters:
        def push(self, token: int) -> str:
            return "abcde"[token]

        def flush(self) -> str:
            return ""

    rule = StopRule(max_new_tokens=9, stop_strings=("bcd", "cd"), stream=Letters())
    rule.cut([0, 1, 2, 3, 4])
    yield f"With the stop strings `bcd` and `cd`, the text `abcde` becomes\n`{rule.finish()}`."


def characters() -> Iterator[str]:
    chars = {byte: char for char, byte in byte_of_char().items()}
    yield f"A space is `{chars[0x20]}` (U+{ord(chars[0x20]):04X})"
    yield f"`é`, the bytes C3 A9, is `{''.join(chars[byte] for byte in 'é'.encode())}`"


EXAMPLES: tuple[Callable[[], Iterator[str]], ...] = (
    keys, noises, draws, penalties, caches, paddings, rounds, stops, characters,
)  # fmt: skip


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.__name__)
def test_the_numbers_of_the_page(example: Callable[[], Iterator[str]], page: str) -> None:
    lines = list(example())
    assert lines
    for line in lines:
        assert line in page
        changed = re.sub(r"\d(?=\D*$)", lambda found: str((int(found[0]) + 1) % 10), line, count=1)
        assert changed == line or changed not in page  # another last number would be seen


def test_the_conversation_of_the_page(page: str) -> None:
    pieces, messages, text = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    assert ChatPieces.parse(pieces, "page").render(json.loads(messages)) == json.loads(text)


# -- the schema ---------------------------------------------------------


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = json.loads((DOCS / "bundle-manifest.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


# Refusals that are not the manifest's structure, or that no schema can express.
BEYOND = (
    "not among the files", "one of its own files", "was altered", "the manifest says",
    "is missing", "cannot be read", "is behind a link",
)  # fmt: skip
BEYOND_NAMES = {"schema a fraction", "file '\\u202ea'"}


def test_real_manifests_follow_the_schema(validator: Any, tmp_path: Path) -> None:
    target = tiny_checkpoint(tmp_path / "big")
    draft = tiny_checkpoint(tmp_path / "small", seed=1, num_hidden_layers=1)
    pair = tiny_bundles.kept(ExportOptions(target, tmp_path / "bundle", draft, weights="int8"))
    for bundle in (Bundle.open("demo"), Bundle.open(pair)):
        validator.validate(json.loads((bundle.path / MANIFEST).read_text("utf-8")))


def cases() -> list[Any]:
    return [pytest.param(case, id=case["name"][:40]) for case in files.read("manifests.json")]


@pytest.mark.parametrize("case", cases())
def test_the_schema_and_the_reader_agree(case: dict[str, Any], validator: Any) -> None:
    try:
        manifest = json.loads(case["manifest"] * case.get("times", 1))
    except (ValueError, RecursionError):
        return  # no JSON
    words = case["refused"] or ""
    of_a_field = re.fullmatch(r"\w+ is missing", words)
    beyond = any(part in words for part in BEYOND) and not of_a_field
    expressible = case["name"] not in BEYOND_NAMES and not beyond
    if expressible:
        assert validator.is_valid(manifest) == (case["refused"] is None)


REQUIRED = (
    ("schema_version",), ("roles",), ("files",), ("roles", "target"),
    *(("roles", "target", name) for name in
      ("architecture", "source", "dims", "tokenizer", "variants")),
    ("roles", "target", "variants", "onnx", "kv"), ("files", "target/model.onnx", "sha256"),
)  # fmt: skip


@pytest.mark.parametrize("path", REQUIRED, ids="/".join)
def test_a_schema_with_less_would_be_noticed(path: tuple[str, ...], validator: Any) -> None:
    manifest = json.loads(files.read("manifests.json")[0]["manifest"])
    assert validator.is_valid(manifest)
    changed = copy.deepcopy(manifest)
    inner = changed
    for name in path[:-1]:
        inner = inner[name]
    del inner[path[-1]]
    assert not validator.is_valid(changed)
