"""Recognises which target of ``published`` a user means: by a name, or by a model's sizes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path

from edgedec._support.fields import one_line
from edgedec._support.model_path import DEMO, exists, hub_name, is_gguf, ready
from edgedec.errors import InputError
from edgedec.library.published import TARGETS, Target
from edgedec.library.store import Library

# Ends of names that say how a model was trained or stored.
_TRAINED = ("instruct", "it", "chat")
_STORED = re.compile(r"[-_.:](gguf|onnx|int4|int8|fp16|bf16|f16|f32|i?q\d\w*)$", re.IGNORECASE)


def recognise(word: str, library: Library) -> list[Target]:
    """Return the listed targets that a word may mean; several if a model's sizes do not decide.

    Nothing is fetched or converted.

    Args:
        word: a name on a hub, a model of the library, a checkpoint's folder, a bundle or a GGUF
            file.
        library: where names are looked up.

    Raises:
        InputError: none is listed; the message says what to do.
        BundleError, CheckpointError: it is a file or folder that cannot be read.

    """
    if not word:
        raise InputError("the target is empty: give a model's name, folder or bundle")
    if word == DEMO:
        raise InputError(f"{DEMO} comes with a draft and needs none of these: give another model")
    word = hub_name(word)
    if not exists(word) and (found := _named([word])):
        return found
    path = _path(word, library)
    found = [] if path is None else _of_path(path)
    if not found:
        raise InputError(_unknown(word))
    return found


def _path(word: str, library: Library) -> Path | None:
    """Return where a word's model is on this disk."""
    if exists(word):
        there = ready(word)
        return Path(word if there is None else there)
    found = library.matching(word)
    return found[0].path if found else None


def _of_path(path: Path) -> list[Target]:
    if is_gguf(path):
        return _of_gguf(path)
    if (path / "manifest.json").exists():
        from edgedec.bundle import Bundle

        role = Bundle.open(path).target
        return _fitting(
            [role.source, path.name],
            (role.architecture, role.dims.get("layers"), role.dims.get("hidden")),
        )
    from edgedec.export.checkpoint import read_json

    config = read_json(path / "config.json")
    text = config.get("text_config")
    own = {**config, **(text if isinstance(text, dict) else {})}
    kind = config.get("model_type")
    sizes = kind, own.get("num_hidden_layers"), own.get("hidden_size")
    return _fitting([str(config.get("_name_or_path", "")), path.resolve().name], sizes)


def _of_gguf(path: Path) -> list[Target]:
    from edgedec.gguf import GgufHeader

    header = GgufHeader.read(path)
    kind = header.architecture
    sizes = (
        kind,
        header.metadata.get(f"{kind}.block_count"),
        header.metadata.get(f"{kind}.embedding_length"),
    )
    return _fitting([header.name, path.stem], sizes)


def _fitting(names: Iterable[str], sizes: tuple[object, object, object]) -> list[Target]:
    """Return the targets of these sizes: those that a name chooses, or else all of them."""
    kind = str(sizes[0]).removesuffix("_text")
    wanted = (kind, *sizes[1:])
    same = [one for one in TARGETS if (one.architecture, one.layers, one.hidden) == wanted]
    named = [one for one in _named(names) if one in same]
    return named or same


def _named(words: Iterable[str]) -> list[Target]:
    """Return the targets of these names, written in any of the usual ways."""
    for plain in (_plain, _untrained):
        wanted = {plain(word) for word in words} - {""}
        if found := [one for one in TARGETS if plain(one.name) in wanted]:
            return found
    return []


def _plain(word: str) -> str:
    """Return a name's letters and digits, without organisation, quantisation and spelling."""
    name = word.rstrip("/").rsplit("/", 1)[-1].partition("@")[0]
    while (shorter := _STORED.sub("", name)) != name:
        name = shorter
    return re.sub(r"[^a-z0-9]", "", name.lower()).removeprefix("meta")


def _untrained(word: str) -> str:
    name = _plain(word)
    for end in _TRAINED:
        name = name.removesuffix(end)
    return name


def _unknown(word: str) -> str:
    near = difflib.get_close_matches(word, [one.name for one in TARGETS], 1)
    meant = f" (did you mean {near[0]}?)" if near else ""
    return (
        f"no published draft is listed for {one_line(word)}{meant}: take the smallest model of its"
        " family as --draft, or none, and compare with `edgedec bench`; `edgedec heads` lists all"
    )
