"""Special tokens as text: those that a stop string names, and those whose names are shown.

Special tokens have no text. A stop string with one's name, alone or as a part, is searched for
with a character in place of the token, which no text contains and which is never shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from edgedec.text.tokenizer import Tokenizer

# Unicode's noncharacters.
_STAND_INS = tuple(map(chr, range(0xFDD0, 0xFDF0)))


class SpecialText(NamedTuple):
    """What a text's stream needs.

    Attributes:
        stops: strings that end the text, with tokens and as they were given.
        hidden: characters that stand for tokens in ``stops``, and are not part of the text.

    """

    stops: tuple[str, ...]
    shown: dict[int, str]
    hidden: str


def special_text(
    tokenizer: Tokenizer, stops: Sequence[str], shown: Sequence[str] = ()
) -> SpecialText:
    """Return what ends a text, and which special tokens have one.

    Args:
        shown: names of special tokens that are shown.

    """
    special = tokenizer.special_names
    texts = {name: name for name in shown if name in special}
    named = [name for name in special if any(name in stop for stop in stops)]
    named.sort(key=lambda name: (-len(name), name))  # a name may contain another
    texts |= zip(named, _STAND_INS, strict=False)
    found = dict.fromkeys(stops)
    for stop in stops:
        for name in named[: len(_STAND_INS)]:
            stop = stop.replace(name, texts[name])
        found[stop] = None
    ids = {name: tokenizer.token_id(name) for name in texts}
    by_id = {id: texts[name] for name, id in ids.items() if id is not None}
    return SpecialText(tuple(found), by_id, "".join(_STAND_INS[: len(named)]))
