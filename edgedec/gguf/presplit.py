"""Pre-tokenizers by ``tokenizer.ggml.pre``: they split a text before byte pairs are merged.

llama.cpp knows these cuts by name. Each is a list of patterns, applied one after the other to the
pieces that the one before left; a pattern's matches and the text between them become separate
pieces. The patterns are written for Oniguruma, which `tokenizers` uses, and agree with llama.cpp's
own matching (``llama-vocab.cpp``, ``unicode.cpp``): they also share its deviations from the
original tokenizer, as with upper and lower case outside ASCII.
"""

from __future__ import annotations

from typing import NamedTuple

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_SHORTENED = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_SHORTENED}|{_WORD}|\p{{N}}{{1,3}}|{_SIGNS}|{_SPACES}"
_QWEN2 = rf"{_SHORTENED}|{_WORD}|\p{{N}}|{_SIGNS}|{_SPACES}"
_QWEN35 = (
    rf"{_SHORTENED}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
# llama.cpp distinguishes upper from lower case in ASCII only: other letters count as both.
_UPPER, _LOWER = r"[\p{L}&&[^a-z]]", r"[\p{L}&&[^A-Z]]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"
_CASED_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_TEKKEN = rf"{_LEAD}{_UPPER}*{_LOWER}+|{_LEAD}{_UPPER}+{_LOWER}*|\p{{N}}|{_CASED_SIGNS}|{_SPACES}"
_GPT4O = (
    rf"{_LEAD}{_UPPER}*{_LOWER}+(?:{_SHORTENED})?|{_LEAD}{_UPPER}+{_LOWER}*(?:{_SHORTENED})?"
    rf"|\p{{N}}{{1,3}}|{_CASED_SIGNS}|{_SPACES}"
)
_ASCII_SIGN = r"[!-/:-@\[-`{-~]"
_DEEPSEEK3 = (
    rf"{_ASCII_SIGN}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
)
# Han, then also kana; and what the first DeepSeek tokenizers treated as CJK.
_CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_WIDE = r"[[\u0800-\u9fa5\uac00-\ud7ff]&&[^\s]]+"
# Digits in groups of three from the right, the first together with what precedes it.
# The last alternative cuts nothing else: without it, text without digits takes quadratic time.
_GROUPS = r"[^\p{N}]*\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))|[^\p{N}]+"
_MARKED = rf"{_LEAD}[\p{{L}}\p{{M}}]+(?:{_SHORTENED})?"
_AYA = rf"{_MARKED}|\p{{N}}{{1,3}}|{_CASED_SIGNS}|{_SPACES}"
_YOUTU = rf"{_MARKED}|\p{{N}}|{_CASED_SIGNS}|{_SPACES}"
_YOUTU_WIDE = (
    "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c"
    "\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u30ff]+"
)
_AFMOE_WIDE = (
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0eff"
    "\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
_JAIS2_SPACES = "|".join(
    [rf"\s{{{count}}}(?!\S)" for count in (512, 256, 128, 64, 32, 16, 8, 4, "1,2")]
)
_JAIS2 = rf"{_SHORTENED}|{_WORD}|\p{{N}}{{1,3}}|{_SIGNS}|\s*[\r\n]+|{_JAIS2_SPACES}|\s"
_SEED = rf"{_SHORTENED}|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}"
_MINICPM5 = rf"{_SHORTENED}|{_WORD}|\p{{N}}+|{_SIGNS}|{_SPACES}"
_UFAKZEKA = rf"{_WORD}|\p{{N}}|{_SIGNS}|{_SPACES}"
# Words joined by single spaces are one word.
_EXAONE_MOE = (
    rf"{_SHORTENED}|{_LEAD}(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_SPARK = (
    rf"{_ASCII_SIGN}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+"
    r"| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"
)
# The cased letters that DeepSeek's first tokenizer lists: all but those of a few scripts.
_CASED = (
    r"[[\p{Lu}\p{Ll}\p{Lt}]&&[^"
    "\u0560-\u0588\u10c7\u10cd\u10d0-\u10ff\u1c80-\u1c8f\u2d00-\u2d2d\ua790-\ua7ff\uab30-\uab6f"
    "\U00010570-\U000105bf\U00010d50-\U00010d8f\U00016e40-\U00016eff\U0001d400-\U0001d7ff"
    "\U0001df00-\U0001df2f]]"
)
_WIDE_SIGNS = "[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3001-\u3002]"
# Bloom's: words end at spaces and the full stops and commas of many scripts.
_BLOOM = r" ?[^(\s|.,!?" + "\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c" + ")]+"


class Presplit(NamedTuple):
    """The pre-tokenizer of one family.

    Attributes:
        patterns: see the module's docstring.
        whole_words: a word that is a token stays one, whatever the merges would give.
        add_bos: used if the metadata does not say.
        has_bos: whether a BOS may be assumed if the metadata names none.

    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    add_bos: bool = False
    has_bos: bool = True


_DIGITS_GPT2 = Presplit((r"\p{N}", _GPT2))
_PLAIN_GPT2 = Presplit((_GPT2,))
_PLAIN_QWEN2 = Presplit((_QWEN2,))
_PLAIN_GPT4O = Presplit((_GPT4O,))
_PLAIN_DEEPSEEK3 = Presplit((r"\p{N}{1,3}", _CJK, _DEEPSEEK3))

_FAMILIES: dict[str, Presplit] = {
    "default": Presplit((r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano": Presplit(
        (_LLAMA3,), whole_words=True, add_bos=True
    ),
    "dbrx smaug-bpe": Presplit((_LLAMA3,)),
    "chatglm-bpe": Presplit((_LLAMA3,), has_bos=False),
    "glm4 glm5": Presplit((_LLAMA3,), whole_words=True, has_bos=False),
    "gpt-2 phi-2 mpt olmo jais trillion granite-docling gigachat a.x-4.0 mellum exaone4 "
    "modern-bert jina-es jina-de jina-v2-es jina-v2-de": _PLAIN_GPT2,
    "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2": _DIGITS_GPT2,
    "falcon": Presplit((r"[\p{P}$+<=>^~|`]+", _GPT2, r"[0-9][0-9][0-9]")),
    "qwen2 deepseek-r1-qwen kormo f2llmv2 stablelm2 megrez hunyuan solar-open grok-2 "
    # Written differently, with the same effect.
    "bailingmoe bailingmoe2 llada-moe": _PLAIN_QWEN2,
    "qwen35": Presplit((_QWEN35,)),
    "tekken": Presplit((_TEKKEN,), whole_words=True, add_bos=True),
    "gpt-4o llama4 kanana2 talkie minimax-m2": _PLAIN_GPT4O,
    "deepseek-coder": Presplit((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _WIDE, r"\p{N}")),
    "deepseek-llm": Presplit(
        (r"[\r\n]", rf"\s?{_CASED}+", rf"\s?{_WIDE_SIGNS}+", r"\s+\z", _WIDE, r"\p{N}+")
    ),
    "deepseek-v3 hunyuan-dense joyai-llm hy_v4": _PLAIN_DEEPSEEK3,
    "spark2_5": Presplit((r"\p{N}{1,3}", _CJK, _SPARK, r"\p{N}")),
    "jais-2": Presplit((_JAIS2,)),
    "seed-coder": Presplit((_SEED,)),
    "minicpm5": Presplit((r"\p{N}{1,3}", _MINICPM5), whole_words=True),
    "ufakzeka": Presplit((_UFAKZEKA,)),
    "laguna": Presplit((r"[^\n]+|\n+", _QWEN2)),
    "exaone-moe": Presplit((_EXAONE_MOE,)),
    "youtu": Presplit((_YOUTU_WIDE, _YOUTU), whole_words=True),
    "tiny_aya cohere2moe": Presplit((_GROUPS, _AYA)),
    "afmoe": Presplit((_GROUPS, _AFMOE_WIDE, _DEEPSEEK3)),
    "poro-chat bloom gpt3-finnish": Presplit((_BLOOM,)),
    "viking": Presplit((_BLOOM, r"\p{N}")),
}

PRESPLITS = {name: cut for names, cut in _FAMILIES.items() for name in names.split()}
