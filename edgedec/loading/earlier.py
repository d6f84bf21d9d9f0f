"""The earlier texts that drafts are copied from, and the corpus that they begin with."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgedec._support.files import read_regular
from edgedec.decoding import drafting
from edgedec.decoding.drafting._earlier import MOST, EarlierTexts, Texts
from edgedec.errors import InputError
from edgedec.loading.options import OpenOptions
from edgedec.text.tokenizer import Tokenizer

_log = logging.getLogger("edgedec")
_MOST_MB = 8
# Characters that are tokenised at once.
_PART = 1 << 16


def earlier_texts(drafter: str, tokenizer: Tokenizer, options: OpenOptions) -> EarlierTexts | None:
    """Return the earlier texts of a drafter, with ``corpus`` if it is given; None if it has none.

    Raises:
        InputError: the corpus cannot be read, or the drafter copies from no earlier texts.

    """
    infos = map(drafting.info, drafting.with_parts([drafter]))
    if not any(info.shared_bytes for info in infos):
        if options.corpus is not None:
            raise InputError(
                f"corpus: the drafter {drafter} copies from no earlier texts: leave it out, or give"
                " --spec suffix,lookup"
            )
        return None
    return EarlierTexts(None if options.corpus is None else _corpus(options.corpus, tokenizer))


def _corpus(file: Path, tokenizer: Tokenizer) -> Texts:
    found, count = Texts(), 0
    for text in _texts(file):
        for start in range(0, len(text), _PART):
            ids = tokenizer.encode(text[start : start + _PART], add_special_tokens=False)
            found.learn(ids)
            count += len(ids)
    if count > MOST:
        _log.warning(
            "%s has %d tokens: drafts are copied from about the last %d that differ",
            file,
            count,
            MOST,
        )
    return found


def _texts(file: Path) -> Iterator[str]:
    """Yield the texts of a corpus.

    Raises:
        InputError: it cannot be read, is too large or not UTF-8, or a line has no text.

    """
    try:
        data = read_regular(file, _MOST_MB << 20)
        text = "" if data is None else data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"corpus {file} cannot be read as UTF-8 text: {error}") from None
    if data is None:
        raise InputError(
            f"corpus {file} is larger than {_MOST_MB} MB, and about one is kept: give a part of it"
        )
    if file.suffix != ".jsonl":
        yield text
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield from _texts_of(line, f"corpus {file}:{number}")


def _texts_of(line: str, where: str) -> Iterator[str]:
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        messages = value.get("messages")
        value = messages if isinstance(messages, list) else [value.get("text")]
        value = [one.get("content") if isinstance(one, dict) else one for one in value]
    texts = value if isinstance(value, list) else [value]
    if not texts or not all(isinstance(one, str) for one in texts):
        raise InputError(
            f'{where}: expected a text, {{"text": ...}} or {{"messages": [...]}} with texts'
        )
    yield from texts
