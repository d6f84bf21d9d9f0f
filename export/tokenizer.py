"""Compares tokenizers by content, not by size or by how their files are written."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from edgedec.errors import BundleError, CheckpointError
from edgedec.export import links
from edgedec.export.checkpoint import read_json
from edgedec.text import tokenizer_files
from edgedec.text.tokenizer import Tokenizer

# What turns text into ids and back. Left out: truncation and padding, which are not part of a
# text, and the post-processor: it adds tokens to the prompt, which the target's file decides.
_PARTS = ("model", "added_tokens", "normalizer", "pre_tokenizer", "decoder")
_FILE = "tokenizer.json"
_COPIED = (_FILE, tokenizer_files.CONFIG, tokenizer_files.TEMPLATE)
FILES = (*_COPIED, *tokenizer_files.OTHERS)


def check(folder: Path) -> None:
    """Raise CheckpointError if a folder has no tokenizer."""
    if (folder / _FILE).exists():
        return
    made = ""
    if (folder / "tokenizer.model").exists():
        made = (
            ", or make it of tokenizer.model with the package transformers:"
            f" AutoTokenizer.from_pretrained({str(folder)!r}).save_pretrained({str(folder)!r})"
        )
    raise CheckpointError(f"{folder} has no {_FILE}: get it from where the model came from{made}")


def write(source: Path, folder: Path) -> None:
    """Write a checkpoint's tokenizer into a new folder, finished.

    Files are copied as they are unless other ones add to them.

    Raises:
        CheckpointError: a file leads outside.
        BundleError: one is not as expected.

    """
    folder.mkdir()
    tokenizer = Tokenizer.load(source)
    if tokenizer.completed or any(os.path.lexists(source / one) for one in tokenizer_files.OTHERS):
        (folder / _FILE).write_text(tokenizer.backend.to_str(), "utf-8", newline="\n")
        config = json.dumps(tokenizer.config, indent=1, ensure_ascii=False)
        (folder / tokenizer_files.CONFIG).write_text(config + "\n", "utf-8", newline="\n")
        return
    for name in _COPIED:
        if os.path.lexists(source / name):
            with links.open_own(source, name) as stream, (folder / name).open("xb") as copy:
                shutil.copyfileobj(stream, copy)


class TokenizerContent:
    """The content of a checkpoint's tokenizer.

    Attributes:
        vocab_size: one more than its largest id.
        model: its ``model``, merges as pairs.
        raw: its ``tokenizer.json``, with what other files add to it.

    Raises:
        CheckpointError: there is no tokenizer.json, or it cannot be used.

    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        check(folder)
        try:
            tokenizer = Tokenizer.load(folder)
        except BundleError as error:
            raise CheckpointError(str(error)) from None
        self.vocab_size = tokenizer.vocab_size
        text = tokenizer.backend.to_str() if tokenizer.completed else None
        raw = read_json(folder / _FILE) if text is None else json.loads(text)
        self.raw: dict[str, Any] = raw
        self.model = _plain_model(raw.get("model"))
        self._parts = {part: raw.get(part) for part in _PARTS} | {"model": self.model}

    @property
    def sha256(self) -> str:
        """Hash that does not depend on how the file is written."""
        text = json.dumps(self._parts, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def tokens(self) -> dict[int, str]:
        """Return every token by id, added ones included."""
        vocab = self.model.get("vocab", {})
        pairs = (
            vocab.items()
            if isinstance(vocab, dict)
            else ((entry[0], id) for id, entry in enumerate(vocab))
        )
        tokens = {id: text for text, id in pairs}
        tokens.update((t["id"], t["content"]) for t in self._parts["added_tokens"] or [])
        return tokens

    def difference(self, other: TokenizerContent) -> str:
        """Return how another tokenizer differs: the first ids, or the part; "" if it does not."""
        if self.sha256 == other.sha256:
            return ""
        mine, theirs = self.tokens(), other.tokens()
        differing = sorted(
            id for id in mine.keys() | theirs.keys() if mine.get(id) != theirs.get(id)
        )
        if differing:
            shown = ", ".join(
                f"{id} ({mine.get(id)!r} and {theirs.get(id)!r})" for id in differing[:3]
            )
            return f"{len(differing)} ids, first {shown}"
        part = next(part for part in _PARTS if self._parts[part] != other._parts[part])
        return f"the same tokens but another {part.replace('_', '-')}{self._merges(other)}"

    def _merges(self, other: TokenizerContent) -> str:
        mine = self.model.get("merges") or []
        theirs = other.model.get("merges") or []
        for rank, (one, two) in enumerate(zip(mine, theirs, strict=False)):
            if one != two:
                return f" (merge {rank}: {one} and {two})"
        return f" ({len(mine)} and {len(theirs)} merges)" if len(mine) != len(theirs) else ""


def _plain_model(model: Any) -> dict[str, Any]:
    """Return the model with merges as pairs; files have pairs, or texts with a space."""
    plain = dict(model) if isinstance(model, dict) else {}
    merges = plain.get("merges")
    if isinstance(merges, list):
        plain["merges"] = [m.split(" ", 1) if isinstance(m, str) else list(m) for m in merges]
    return {key: value for key, value in plain.items() if value not in (None, False, "")}
