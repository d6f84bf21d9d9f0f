"""Finds llama.cpp's name for a byte-level tokenizer's pre-tokenizer.

llama.cpp identifies pre-tokenizers by name. A tokenizer is recognised by its behaviour: its splits
of a probe text are compared with those of each pre-tokenizer that llama.cpp has. Two names with the
same splits differ in whether a word that is a token is kept whole (``ignore_merges``).
"""

from __future__ import annotations

import functools

from tokenizers import Regex, Tokenizer, pre_tokenizers

from edgedec.errors import ExportError
from edgedec.gguf.presplit import PRESPLITS
from edgedec.text.tokenizer_check import one_line_errors

# Words, contractions in both cases, digits in runs of many lengths, white space of every kind
# at every place, punctuation, scripts with and without case, combining marks, symbols.
PROBE = "\n".join(
    (
        "Hello world, it's I'M you'Re we'LL THEY'D x'y 'tis don't'S ''s o'table RO'MEO",
        "1 12 123 1234 12345 123456 1234567 3.14159 1,000,000 0x1F ٣٤٥ ²³ Ⅷ 1a2b3",
        "  two   three    four\t\ttabs \t mixed\r\nwindows\r\n\r\n  \n\n \n next",
        "def f(a_b, *args): return {'k': [1, 2]} # a!=b && c||d ... ?!?! ---- == <|x|> //n /\n/",
        "camelCase HTTPServer ABCdef aB éÉa Ünïcôde naïve café ßẞ ǅ ŉ",
        "日本語テキスト 漢字かな混じり、句読点。한국어 문장 中文 ไทย हिन्दी العربية עברית ελληνικά",
        "emoji \U0001f600\U0001f44d\U0001f3fd\U0001f468\u200d\U0001f469 ∑∫√ €$£ №™ “quotes”",
        "dashes \u2013 \u2014 \u2026 a\u0301e\u0308 \u00a0nbsp\u2003em",
        "$x^2$ `code` ~tilde~ @at #hash %d a+b-c*d <a href='b'> [x](y) \\n \\\\ it's_ _it's",
        "trailing   ",
        "   leading and   \n   more   \n\n\n   end \n ",
    )
)

_CASED = (
    r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
)


def _cased(ending: str, digits: str) -> str:
    """Return the expression of GPT-4o and Tekken, which cut before a capital within a word."""
    words = "|".join(rf"[^\r\n\p{{L}}\p{{N}}]?{form}{ending}" for form in _CASED)
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"


# Tokenizers cut as published are recognised by these expressions instead of llama.cpp's, which
# approximate them where letters outside ASCII have upper and lower case.
_PUBLISHED = {
    "tekken": (_cased("", r"\p{N}"),),
    "gpt-4o": (_cased(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r"\p{N}{1,3}"),),
}
# Names that are written to files, one for each pre-tokenizer.
_NAMES = ("gpt-2", "qwen2", "dbrx", "llama-bpe", "smollm", "tekken", "gpt-4o", "deepseek-v3",
          "falcon", "seed-coder", "ufakzeka")  # fmt: skip


def name_for(tokenizer: Tokenizer, keeps_whole: bool) -> str:
    """Return llama.cpp's name for this pre-tokenizer.

    Args:
        tokenizer: a byte-level one.
        keeps_whole: whether a word that is a token is kept whole, regardless of merges.

    Raises:
        ExportError: llama.cpp has none.

    """
    wanted = _cuts(tokenizer.pre_tokenizer)
    for name in _NAMES:
        if PRESPLITS[name].whole_words == keeps_whole and _known_cuts(name) == wanted:
            return name
    raise ExportError(
        "llama.cpp does not have this tokenizer's pre-tokenizer, so a GGUF file would tokenize"
        " text differently: export it to another format"
    )


@functools.cache
def _known_cuts(name: str) -> tuple[str, ...]:
    expressions = _PUBLISHED.get(name, PRESPLITS[name].patterns)
    splits = [pre_tokenizers.Split(Regex(e), "isolated") for e in expressions]
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return _cuts(pre_tokenizers.Sequence([*splits, letters]))


def _cuts(pre_tokenizer: pre_tokenizers.PreTokenizer | None) -> tuple[str, ...]:
    """Return the words of the probe; none without a pre-tokenizer."""
    if pre_tokenizer is None:
        return ()
    with one_line_errors("the pre-tokenizer fails at a text"):
        return tuple(word for word, _ in pre_tokenizer.pre_tokenize_str(PROBE))
