"""Says which parts of a ``tokenizer.json`` the Android reader does not know.

The reader has byte pair encoding of bytes and of characters, the split patterns of the large
families, and little else; what it does not know it refuses by name. This lists the same, and a test
compares it with the reader's source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from edgedec._support.fields import one_line
from edgedec.errors import BundleError
from edgedec.text.detokenize import Scheme

MAX_BYTES = 48 << 20
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_SHORT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)", r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]")
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
EACH_NUMBER = r"\p{N}"
_DIGITS = (r"\p{N}{1,3}", EACH_NUMBER)
SPLITS = frozenset({
    _GPT2, rf"{_GPT2}|\s+", EACH_NUMBER,
    *(rf"{short}|{_WORD}|{digits}|{_REST}" for short in _SHORT for digits in _DIGITS),
})  # fmt: skip
Check = Callable[[dict[str, Any]], Iterator[str]]


def unknown_parts(parsed: dict[str, Any]) -> list[str]:
    """Return a clause for each part of a parsed file that the reader refuses."""
    found = list(_model(parsed.get("model") or {}))
    for name, inner, check in (
        ("normalizer", "normalizers", _normalizer),
        ("pre_tokenizer", "pretokenizers", _pre_tokenizer),
        ("post_processor", "processors", _post_processor),
    ):
        for part in flat(parsed.get(name), inner):
            found += [f"{name} {one_line(clause)}" for clause in check(part)]
    try:
        scheme = Scheme.read(parsed.get("decoder"))
        if scheme.byte_level and scheme.strip[1]:
            found.append("decoder Strip after ByteLevel, expected ByteLevel alone")
    except BundleError as error:
        found.append(str(error))
    return found


def flat(section: Any, inner: str) -> Iterator[dict[str, Any]]:
    """Yield the parts of a section of a parsed file; ``inner`` names those of a sequence."""
    if not isinstance(section, dict):
        return
    if section.get("type") == "Sequence":
        for part in section.get(inner) or ():
            yield from flat(part, inner)
    else:
        yield section


def _model(model: dict[str, Any]) -> Iterator[str]:
    kind = model.get("type", "BPE")
    if kind != "BPE":
        yield f"model {one_line(str(kind))}, expected BPE"
    for name in ("continuing_subword_prefix", "end_of_word_suffix", "dropout"):
        if model.get(name):
            yield f"model with {name}, expected none"


def _normalizer(part: dict[str, Any]) -> Iterator[str]:
    kind = str(part.get("type"))
    if kind not in ("NFC", "Prepend", "Replace"):
        yield f"{kind}, expected NFC, Prepend or Replace"
    elif kind == "Replace" and "String" not in part["pattern"]:
        yield "Replace by an expression, expected a text"


def _pre_tokenizer(part: dict[str, Any]) -> Iterator[str]:
    kind = str(part.get("type"))
    if kind not in ("ByteLevel", "Digits", "Metaspace", "Split"):
        yield f"{kind}, expected ByteLevel, Digits, Metaspace or Split"
    elif kind == "Split":
        yield from _split(part, part["pattern"], part.get("behavior"), bool(part.get("invert")))


def _split(part: dict[str, Any], pattern: Any, behavior: Any, invert: bool) -> Iterator[str]:
    expression = pattern.get("Regex")
    if expression is None:
        if invert or behavior not in ("MergedWithPrevious", "MergedWithNext"):
            yield f"Split {behavior}, expected MergedWithPrevious or MergedWithNext"
        return
    if expression not in SPLITS:
        yield f"Split by {expression[:60]!r}, expected GPT-2's, Llama 3's or Qwen's expression"
    elif not (
        (behavior == "Isolated" and not invert)
        or (behavior == "Removed" and invert and expression != EACH_NUMBER)
    ):
        yield f"Split {behavior}, expected Isolated"


def _post_processor(part: dict[str, Any]) -> Iterator[str]:
    kind = str(part.get("type"))
    if kind not in ("ByteLevel", "TemplateProcessing"):
        yield f"{kind}, expected ByteLevel or TemplateProcessing"
