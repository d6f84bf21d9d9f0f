# ruff: noqa: RUF001
"""Texts that tokenizers are tried on: all planes of Unicode, marks, white space, digits."""

from __future__ import annotations

import random
import unicodedata

_SPACES = (
    "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2003\u200a\u2028\u2029\u202f\u205f\u3000\u200b\ufeff"
)
TEXTS = (
    "",
    " ",
    "a",
    "Hello, world!",
    "def add(left, right):\n    return left + right\n",
    # Contractions, in both cases and after letters of other scripts.
    "I'm don't we'll they've it's he'd you're",
    "I'M DON'T WE'LL THEY'VE IT'S HE'D YOU'RE",
    "O'Reilly 'quoted' ''s 'S'T 'lll 'ſ é's 世'd 7's _'m",
    # Digits, alone and by threes, of several scripts.
    "1 12 123 1234 12345 1234567 3.14159 1,000,000 0x1F 2e10",
    "٣٤٥ १२३ ৪৫৬ ⅷ ½ ² ① 〇 𝟘𝟙𝟚𝟛 12a34b5",
    "a1b2c3 a12 12a v2.0.1",
    # White space of all kinds, alone, in runs, before words and at the ends.
    _SPACES,
    "x".join(_SPACES),
    "  two  three   four    five     six      ",
    "\n\n\n", " \n \n ", "a \n b", "a\r\nb\r\n\r\nc", "\n  x", "x  \n", "\t\tx\t y \t", "x   ",
    "   x",
    "line one\n\n    indented\n\tTabbed\n\n\n",
    "a\xa0b \xa0 c\u3000d \u2003 e",
    # Punctuation runs, with line ends behind.
    "...!!!???", "(){}[];:,.<>/?|\\~`", "a.b,c;d:e", "==\n!=\r\n//\n\n", "$100 + 20% = €5 ± ½",
    "foo_bar __init__ camelCase snake-case x->y a::b",
    # Scripts, marks that combine, precomposed and not.
    "naïve café Größe ÅÆØ ŁódŹ", "nai\u0308ve cafe\u0301 A\u030a o\u0323\u0302 \u1e9b\u0323",
    "\u0301\u0302 begins with marks", "q\u0307\u0323 q\u0323\u0307 e\u0301\u0301\u0301",
    "한국어 \u1112\u1161\u11ab\u1100\u1173\u11af 가각힣",
    "\u212b \u2126 \u00c5 \u03a9 \ufb01 \uf900",
    "Ελληνικά привет Ёлка мир ԱՐԵՎ", "مرحبا بالعالم ١٢٣ שָׁלוֹם", "नमस्ते दुनिया বাংলা தமிழ் తెలుగు",
    "สวัสดีชาวโลก ລາວ ខ្មែរ မြန်မာ", "你好，世界。今天是2024年。",
    "こんにちは カタカナ ﾊﾝｶｸ 漢字々〆",
    "ᚠᛇᚻ ᎣᏏᏲ ꯃꯩꯇꯩ ⴰⵣⵓⵍ ߒߞߏ",
    # Emoji: modifiers, families, flags, keycaps, tags.
    "🙂🙂 👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 1️⃣ ❤️ ❤",
    "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    # A letter, number, sign or nothing of each plane.
    "\U00010348 \U00010400\U00010428 \U0001d49c \U0001f680 \U00012000",
    "\U00020000\U0002a6d6 \U0002f800 \U00030000 \U000e0100 \U000f0000 \U0010fffd",
    "\ufffd \ufffe \uffff \U0001fffe \U0010ffff \ue000 \ufdd0",
    # Controls and what is not seen.
    "\x00\x01\x02 \x1b[0m \x7f\x80\x9f", "a\u200db\u200cc\u2060d\xade\u200ef\u202eg\u2066h",
    # Letters of Unicode 14, 15 and 16, which older tables do not know.
    "x\U0001e290y \U0001e4d0\U0001e4d1 \U0002ebf0 \U00010d4a \U00010d40\U00010d41 \U00016a70",
    # Runs.
    "a" * 70, "ab" * 40, "0" * 41, "!" * 50, " " * 65, "é" * 33, "世" * 21, "\n" * 33, "🙂" * 17,
    "zebra zebras azebra zebra! unmergeable 世界时间 123 1234",
    # Added tokens of one tokenizer or another, whole, in words, beside white space, cut short.
    "<|endoftext|>", "a<|endoftext|>b", " <|endoftext|> x<|endoftext|><|endoftext|>",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>",
    "<s>x</s> <unk> <0x41> <0xE4><0xB8><0x96> <0x4G>", "<start_of_turn>user\nHi\n\n\nthere ▁▁▁ ▁a",
    "<tool><tool>s<tool >tools <too", "a<|user|>  b <|user|>\n\nc<|user|>", "<|user|>",
    "a  <mask>  b\n<mask>\nc  <both>  d<both>e", "<|endoftext|", "|endoftext|>",
    "<|<|endoftext|>|>",
    "    four    spaces", "<|system|>\nBe brief.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\n",
)  # fmt: skip
# Characters for texts that are drawn: letters, digits, marks, spaces and signs of many scripts.
_DRAWN = (
    "abcdefgXYZ'.,!?-_0123456789    \n\n\t\r éüñßÅçæøłœąſſİıǅ\u0301\u0308\u0327\u0323"
    "αβγΩдЖяאבגدرسहिन्दीกขคぁアー世界时间한글가\u1100\u1161🙂👍🏽\u200d\u2028\u3000\xa0"
    "½²Ⅷ٣१€$£+=<>|«»„“”…—\U0001d49c\U00020000\x00\ufffd"
)


def drawn(seed: int, count: int) -> list[str]:
    """Return texts of random characters and pieces of the texts above."""
    rng = random.Random(seed)
    texts = []
    for _ in range(count):
        parts = []
        for _ in range(rng.randint(1, 9)):
            if rng.random() < 0.35:
                whole = rng.choice(TEXTS)
                start = rng.randrange(len(whole) + 1)
                parts.append(whole[start : start + rng.randint(1, 8)])
            else:
                parts.append("".join(rng.choices(_DRAWN, k=rng.randint(1, 7))))
        texts.append("".join(parts))
    return texts


def planes() -> set[int]:
    """Return the planes that the texts have characters of."""
    return {ord(character) >> 16 for text in TEXTS for character in text}


def categories() -> set[str]:
    """Return the general categories that the texts have characters of."""
    return {unicodedata.category(character) for text in TEXTS for character in text}
