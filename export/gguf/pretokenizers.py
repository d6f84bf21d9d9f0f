"""Finds llama.cpp's name for a byte-level tokenizer's pre-tokenizer.

llama.cpp identifies pre-tokenizers by name. A tokenizer is recognised by its behaviour: its splits
of a probe text are compared with those of each pre-tokenizer that llama.cpp has. Two names with the
same splits differ in whether a word that is a token is kept whole (``ignore_merges``).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from tokenizers import Regex, Tokenizer, pre_tokenizers

from edgedec.errors import ExportError
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

_CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"
_GPT2 = rf"{_CONTRACTIONS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+"
_ANY_CASE = rf"(?i:{_CONTRACTIONS})"
_TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_CASED = (
    r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
)


def _modern(digits: str) -> str:
    """Return the expression of Llama 3 and Qwen 2, which differ in how they cut numbers."""
    words = r"[^\r\n\p{L}\p{N}]?\p{L}+"
    return rf"{_ANY_CASE}|{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_TAIL}"


def _cased(ending: str, digits: str) -> str:
    """Return the expression of GPT-4o and Tekken, which cut before a capital within a word."""
    words = "|".join(rf"[^\r\n\p{{L}}\p{{N}}]?{form}{ending}" for form in _CASED)
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_TAIL}"


_DEEPSEEK_TAIL = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_TAIL}"
)

# Name for tokenizers that merge to the end, and for those that keep a word that is a token
# (None: llama.cpp has none) -> the expressions, one after the other.
_KNOWN: Mapping[tuple[str | None, str | None], Sequence[str]] = {
    ("gpt-2", None): (_GPT2,),
    ("qwen2", None): (_modern(r"\p{N}"),),
    ("dbrx", "llama-bpe"): (_modern(r"\p{N}{1,3}"),),
    ("smollm", None): (r"\p{N}", _GPT2),
    (None, "tekken"): (_cased("", r"\p{N}"),),
    ("gpt-4o", None): (_cased(rf"{_ANY_CASE}?", r"\p{N}{1,3}"),),
    ("deepseek-v3", None): (
        r"\p{N}{1,3}",
        r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        _DEEPSEEK_TAIL,
    ),
    ("falcon", None): (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]"),
    ("seed-coder", None): (
        rf"{_ANY_CASE}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_TAIL}",
    ),
    ("ufakzeka", None): (_modern(r"\p{N}").removeprefix(f"{_ANY_CASE}|"),),
}


def name_for(tokenizer: Tokenizer, keeps_whole: bool) -> str:
    """Return llama.cpp's name for this pre-tokenizer.

    Args:
        tokenizer: a byte-level one.
        keeps_whole: whether a word that is a token is kept whole, regardless of merges.

    Raises:
        ExportError: llama.cpp has none.

    """
    wanted = _cuts(tokenizer.pre_tokenizer)
    for names, cuts in _known_cuts():
        if cuts == wanted:
            name = names[keeps_whole]
            if name is not None:
                return name
    raise ExportError(
        "llama.cpp does not have this tokenizer's pre-tokenizer, so a GGUF file would tokenize"
        " text differently: export it to another format"
    )


@functools.cache
def _known_cuts() -> list[tuple[tuple[str | None, str | None], tuple[str, ...]]]:
    return [
        (
            names,
            _cuts(
                pre_tokenizers.Sequence(
                    [pre_tokenizers.Split(Regex(e), "isolated") for e in expressions]
                    + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
                )
            ),
        )
        for names, expressions in _KNOWN.items()
    ]


def _cuts(pre_tokenizer: pre_tokenizers.PreTokenizer | None) -> tuple[str, ...]:
    """Return the words of the probe; none without a pre-tokenizer."""
    if pre_tokenizer is None:
        return ()
    with one_line_errors("the pre-tokenizer fails at a text"):
        return tuple(word for word, _ in pre_tokenizer.pre_tokenize_str(PROBE))
