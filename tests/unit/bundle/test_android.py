"""What of a bundle would not run on Android, and the operators of a graph."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_tokenizers
from kinds import in_full
from tiny_models import write_tiny_model
from tiny_variants import VARIANTS

from edgedec.bundle import Bundle, android
from edgedec.bundle.android import OPERATORS, fitness
from edgedec.bundle.onnx_wires import operators
from edgedec.bundle.protobuf import message
from edgedec.errors import BundleError
from edgedec.text.chat_pieces import CHAT_PIECES
from edgedec.text.portable import unknown_parts
from tools.vectors import files as vectors
from tools.vectors.small_tokenizers import KINDS

MICROSOFT = "com.microsoft"
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
PIECES = json.dumps({
    "version": 1, "bos": "", "generation": "", "default_system": None, "strip": [],
    "after_system": None, "think_end": None,
    "roles": {"user": {"open": "", "close": ""}, "assistant": {"open": "", "close": ""}},
})  # fmt: skip


def attribute(name: str, number: int) -> bytes:
    return message((1, name), (3, number))


def node(op: str, domain: str = "", *attributes: bytes) -> bytes:
    return message((4, op), (7, domain), *((5, one) for one in attributes))


def graph(*nodes: bytes) -> bytes:
    return message((7, message(*((1, one) for one in nodes))))


GOOD = graph(node("Gather"), node("MatMulNBits", MICROSOFT, attribute("bits", 4)))


def make(
    root: Path,
    target: bytes = GOOD,
    tokenizer: str | None = None,
    more: dict[str, bytes] | None = None,
    change: Callable[[dict[str, Any]], object] = lambda manifest: None,
) -> Bundle:
    """A bundle of a target and a draft, with graphs that name operators and compute nothing."""
    contents = {
        "target/model.onnx": target,
        "draft/model.onnx": GOOD,
        "tokenizer/tokenizer.json": (tokenizer or tiny_tokenizers.byte_level().to_str()).encode(),
        **(more or {}),
    }
    for name, data in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    manifest = {
        "schema_version": 2,
        "roles": {name: _role(name) for name in ("target", "draft")},
        "files": {
            name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
            for name, data in contents.items()
        },
    }
    change(manifest)
    (root / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    return Bundle.open(root)


def _role(name: str) -> dict[str, Any]:
    file = f"{name}/model.onnx"
    return {
        "architecture": "llama", "source": "tiny", "dims": {},
        "tokenizer": {"file": "tokenizer/tokenizer.json", "content_sha256": "0" * 64},
        "variants": {"onnx": {"file": file, "files": [file], "weights": "int4", "kv": "fp32"}},
    }  # fmt: skip


def test_the_demo_runs() -> None:
    found = fitness(Bundle.open("demo"))
    assert found.problems == ()
    assert found.needs == ("target: 8-bit weights need ONNX Runtime 1.23 or newer",)


def test_a_sound_bundle(tmp_path: Path) -> None:
    assert fitness(make(tmp_path)) == android.Fitness((), ())


# -- operators ----------------------------------------------------------


def test_operators_that_were_not_tried(tmp_path: Path) -> None:
    inner = message((4, "If"), (5, message((1, "then"), (6, message((1, node("Nested")))))))
    target = graph(node("Gather"), node("Conv"), node("Conv"), node("Attention", MICROSOFT), inner)
    found = fitness(make(tmp_path, target)).problems
    names = ("Conv", "If", "Nested", "com.microsoft::Attention")
    assert [line.split("operator ")[1].split()[0] for line in found] == list(names)
    assert all(line.startswith("target: ") and "\n" not in line for line in found)


def test_operators_of_newer_versions(tmp_path: Path) -> None:
    eight, cache = attribute("bits", 8), attribute("kv_cache_bit_width", 8)
    target = graph(
        node("MatMulNBits", MICROSOFT, eight),
        node("GroupQueryAttention", MICROSOFT, cache),
        node("QMoE", MICROSOFT, attribute("expert_weight_bits", 4)),
    )
    bundle = make(tmp_path, target)
    found = fitness(bundle)
    (line,) = found.problems
    assert line.startswith("target: quantised experts need ONNX Runtime 1.31, the app has 1.29.0:")
    assert len(found.needs) == 3
    assert len(fitness(bundle, "1.22.0").problems) == 3
    assert "8-bit weights need ONNX Runtime 1.23" in fitness(bundle, "1.22.0").problems[0]
    assert fitness(bundle, "1.31.1").problems == ()


def test_negative_attributes_are_no_bits(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    minus = attribute("axis", (1 << 64) - 1)
    file.write_bytes(graph(node("Split", "", minus), node("X", "ai.onnx", attribute("bits", 300))))
    assert operators(file) == {("Split", 0), ("X", 300)}


@pytest.mark.parametrize("data", [b"", b"no model", graph(b"\xff\xff"), b"\x3a\x7f"])
def test_damaged_graphs_are_one_line(data: bytes, tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(data)
    with pytest.raises(BundleError, match=r"model\.onnx"):
        operators(file)
    with pytest.raises(BundleError, match="cannot be read"):
        operators(tmp_path / "missing.onnx")


def test_graphs_in_graphs_are_bounded(tmp_path: Path) -> None:
    inner = node("Add")
    for _ in range(40):
        inner = message((4, "If"), (5, message((6, message((1, inner))))))
    file = tmp_path / "model.onnx"
    file.write_bytes(graph(inner))
    with pytest.raises(BundleError, match="damaged"):
        operators(file)


EXPORTS = [(name, "fp32") for name in sorted(VARIANTS)] + [
    *((name, weights) for name in ("qwen3_moe", "olmoe") for weights in ("int4", "fp16")),
    *(("padded", weights) for weights in ("int4", "int8", "fp16")),
]


@pytest.mark.parametrize(("variant", "weights"), in_full(EXPORTS, 6))
def test_whatever_is_exported_has_known_operators(
    variant: str, weights: str, tmp_path: Path
) -> None:
    write_tiny_model(tmp_path, weights, **VARIANTS[variant])
    found = {name for name, _ in operators(tmp_path / "model.onnx")}
    assert found
    assert found <= OPERATORS


def test_a_trimmed_draft_has_known_operators(tmp_path: Path) -> None:
    write_tiny_model(tmp_path, "int4", drafted=(0, 3, 4, 9, 17))
    found = {name for name, _ in operators(tmp_path / "model.onnx")}
    assert "ScatterElements" in found
    assert found <= OPERATORS


# -- files, formats, tokenizers, chat -----------------------------------


def test_files_of_two_gigabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(android, "MOST_FILE_BYTES", len(GOOD) + 1)
    larger = graph(
        node("Gather"), node("MatMulNBits", MICROSOFT, attribute("bits", 4)), node("Add")
    )
    (line,) = fitness(make(tmp_path, larger)).problems
    assert line.startswith(f"target/model.onnx: {len(larger)} bytes, expected fewer than")


def test_other_formats(tmp_path: Path) -> None:
    def change(manifest: dict[str, Any]) -> None:
        variants = manifest["roles"]["target"]["variants"]
        variants["gguf"] = variants.pop("onnx")

    (line,) = fitness(make(tmp_path, change=change)).problems
    assert line == "target: format gguf, expected onnx: export with --format onnx"


def test_a_draft_of_another_vocabulary(tmp_path: Path) -> None:
    def other_tokenizer(manifest: dict[str, Any]) -> None:
        manifest["roles"]["draft"]["tokenizer"]["content_sha256"] = "1" * 64

    def other_columns(manifest: dict[str, Any]) -> None:
        manifest["roles"]["draft"]["dims"]["vocab_size"] = 7

    (line,) = fitness(make(tmp_path / "a", change=other_tokenizer)).problems
    assert line.startswith("draft: another tokenizer")
    (line,) = fitness(make(tmp_path / "b", change=other_columns)).problems
    assert line.startswith("draft: 7 columns of logits")


def test_a_template_without_pieces(tmp_path: Path) -> None:
    template = {"tokenizer/chat_template.jinja": TEMPLATE.encode()}
    (line,) = fitness(make(tmp_path / "a", more=template)).problems
    assert line.startswith("chat: the template has no chat pieces")
    config = {"tokenizer/tokenizer_config.json": json.dumps({"chat_template": TEMPLATE}).encode()}
    assert fitness(make(tmp_path / "b", more=config)).problems == (line,)
    both = {**template, f"tokenizer/{CHAT_PIECES}": PIECES.encode()}
    assert fitness(make(tmp_path / "c", more=both)).problems == ()


def test_damaged_pieces(tmp_path: Path) -> None:
    damaged = {f"tokenizer/{CHAT_PIECES}": b"{}"}
    with pytest.raises(BundleError, match="version is missing"):
        fitness(make(tmp_path, more=damaged))


def unknown(**sections: Any) -> list[str]:
    return unknown_parts({**json.loads(tiny_tokenizers.byte_level().to_str()), **sections})


SPLIT = {"type": "Split", "pattern": {"Regex": r"\p{L}+"}, "behavior": "Isolated", "invert": False}


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"model": {"type": "Unigram"}}, "model Unigram, expected BPE"),
        ({"model": {"type": "BPE", "end_of_word_suffix": "</w>"}}, "model with end_of_word_suffix"),
        ({"normalizer": {"type": "NFKC"}}, "normalizer NFKC, expected NFC"),
        (
            {"normalizer": {"type": "Sequence", "normalizers": [
                {"type": "NFC"}, {"type": "Replace", "pattern": {"Regex": "a"}, "content": ""}]}},
            "normalizer Replace by an expression",
        ),
        ({"pre_tokenizer": {"type": "BertPreTokenizer"}}, "pre_tokenizer BertPreTokenizer"),
        ({"pre_tokenizer": SPLIT}, "expected GPT-2's, Llama 3's or Qwen's expression"),
        ({"pre_tokenizer": {**SPLIT, "pattern": {"Regex": r"\p{N}"}, "behavior": "Removed"}},
         "Split Removed, expected Isolated"),
        ({"pre_tokenizer": {**SPLIT, "pattern": {"String": " "}}}, "expected MergedWithPrevious"),
        ({"post_processor": {"type": "BertProcessing"}}, "post_processor BertProcessing"),
        ({"decoder": {"type": "WordPiece"}}, "decoder (WordPiece) is unknown"),
    ],
)  # fmt: skip
def test_kinds_of_tokenizers_that_are_refused(sections: dict[str, Any], words: str) -> None:
    (clause,) = unknown(**sections)
    assert words in clause


def test_a_tokenizer_that_is_refused_is_a_problem(tmp_path: Path) -> None:
    parsed = json.loads(tiny_tokenizers.byte_level().to_str())
    parsed["normalizer"] = {"type": "Lowercase"}
    (line,) = fitness(make(tmp_path, tokenizer=json.dumps(parsed))).problems
    assert line.startswith("tokenizer/tokenizer.json: normalizer Lowercase")


@pytest.mark.parametrize("kind", [*tiny_tokenizers.KINDS])
def test_the_kinds_of_exported_models_are_known(kind: str) -> None:
    assert unknown_parts(json.loads(tiny_tokenizers.KINDS[kind]().to_str())) == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_kinds_of_the_vectors_are_known(kind: str) -> None:
    text = (vectors.FOLDER / f"tokenizers/{kind}.json").read_text("utf-8")
    assert unknown_parts(json.loads(text)) == []
