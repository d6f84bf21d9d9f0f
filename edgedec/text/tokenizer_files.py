"""Reads the files that describe a tokenizer beside ``tokenizer.json``, as transformers merges them.

Recent folders have ``tokenizer_config.json`` and a template in a file of its own. Older ones name
special tokens in ``special_tokens_map.json`` and more tokens in ``added_tokens.json``, which count
where the configuration has no ``added_tokens_decoder``; those saved with a processor keep the
template in ``chat_template.json``. Source: transformers 4.57, ``PreTrainedTokenizerBase``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgedec.errors import BundleError

if TYPE_CHECKING:
    import tokenizers

MODEL = "config.json"
TOKENIZER, CONFIG, TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"
SPECIAL_MAP, ADDED, OLD_TEMPLATE = (
    "special_tokens_map.json", "added_tokens.json", "chat_template.json",
)  # fmt: skip
# Templates by name, each in a file of its own.
NAMED = {name: f"additional_chat_templates/{name}.jinja" for name in ("tool_use", "rag")}
# Those that a finished tokenizer does without.
OTHERS = (SPECIAL_MAP, ADDED, OLD_TEMPLATE, *NAMED.values())
MAX_CONFIG_BYTES = 8 << 20
# The library takes minutes for more; models have thousands at most.
MAX_ADDED = 1 << 16
# Classes whose flags decide whether BOS and EOS surround a text, and BOS without a flag.
_FLAGGED = {"Llama": True, "CodeLlama": True, "Gemma": True, "Cohere": True, "GPTNeoX": False}
# Classes (None is no class) that leave the space in front to tokenizer.json; the others follow
# add_prefix_space, which is false where it is not stated.
_AS_WRITTEN = frozenset({"None", "TokenizersBackend", "Llama", "CodeLlama"})
_SPECIAL = (
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token",
)  # fmt: skip
Text = Callable[[str, int], "str | None"]


def read_config(text: Text, file: Path) -> dict[str, Any]:
    """Return ``tokenizer_config.json`` with what the other files add to it.

    Args:
        text: returns a file's text by its name and size limit; None if there is no such file.
        file: ``tokenizer.json``'s name in messages.

    Raises:
        BundleError: one of them is not as expected.

    """

    def read(name: str) -> dict[str, Any]:
        found = text(name, MAX_CONFIG_BYTES)
        return {} if found is None else _object(found, file.with_name(name))

    config = read(CONFIG)
    if "added_tokens_decoder" not in config:
        config |= read(SPECIAL_MAP)
        if added := read(ADDED):
            config["added_tokens_decoder"] = _listed(added, config, file.with_name(ADDED))
    named = {name: text(place, MAX_CONFIG_BYTES) for name, place in NAMED.items()}
    named = {"default": text(TEMPLATE, MAX_CONFIG_BYTES), **named}
    found = {name: source for name, source in named.items() if source is not None}
    if "default" not in found and not config.get("chat_template"):
        old = read(OLD_TEMPLATE).get("chat_template")
        config["chat_template"] = old
    if found:
        config["chat_template"] = (
            found["default"]
            if list(found) == ["default"]
            else [{"name": name, "template": source} for name, source in found.items()]
        )
    return config


def model_rows(text: Text) -> int:
    """Return how many tokens the model beside has rows for; 0 if there is none."""
    try:
        model = json.loads(text(MODEL, MAX_CONFIG_BYTES) or "{}")
        inner = model.get("text_config")
        found = model.get("vocab_size", inner.get("vocab_size") if isinstance(inner, dict) else 0)
    except (ValueError, RecursionError, AttributeError):  # said where the model is read
        return 0
    return found if type(found) is int else 0


def templates(config: Mapping[str, Any]) -> dict[str, str]:
    """Return a configuration's chat templates by name; a single one is ``default``."""
    source = config.get("chat_template")
    if isinstance(source, list):
        source = {one.get("name"): one.get("template") for one in source if isinstance(one, dict)}
    found = source if isinstance(source, dict) else {"default": source}
    return {name: text for name, text in found.items() if isinstance(text, str)}


def token_text(entry: Any) -> str | None:
    """Return a token as a configuration names it: text, or an object that contains it."""
    text = entry.get("content") if isinstance(entry, dict) else entry
    return text if isinstance(text, str) else None


def special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens of a configuration by name, as templates read them."""
    found = {name: token_text(config.get(name)) for name in _SPECIAL}
    return {name: text for name, text in found.items() if text is not None}


def _special(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the special tokens' entries by text, in the order in which transformers adds them."""
    entries = [config.get(name) for name in _SPECIAL]
    for name in ("additional_special_tokens", "extra_special_tokens"):
        more = config.get(name)
        more = [*more.values()] if isinstance(more, dict) else more
        entries += more if isinstance(more, list) else []
    named = ((token_text(entry), entry) for entry in entries)
    return {text: entry for text, entry in named if text}


def complete(
    backend: tokenizers.Tokenizer, config: Mapping[str, Any], file: Path, rows: int
) -> bool:
    """Add a configuration's tokens and flags to a tokenizer; return whether that changed it.

    Args:
        config: see ``read_config``.
        file: ``tokenizer.json``'s name in messages.
        rows: of the model; a token that is named and has no id gets one of those that are left.

    Raises:
        BundleError: a token is not as expected, or the tokenizer would give it another id.

    """
    changed = _add_tokens(backend, config, file, rows)
    kind = str(config.get("tokenizer_class")).removesuffix("Fast").removesuffix("Tokenizer")
    changed |= kind not in _AS_WRITTEN and _put_space(backend, config)
    flags = config.get("add_bos_token", _FLAGGED.get(kind)), config.get("add_eos_token", False)
    return (kind in _FLAGGED and _surround(backend, config, flags)) or changed


def _add_tokens(
    backend: tokenizers.Tokenizer, config: Mapping[str, Any], file: Path, rows: int
) -> bool:
    from tokenizers import AddedToken

    listed = config.get("added_tokens_decoder") or {}
    where = file.with_name(CONFIG)
    if not isinstance(listed, dict) or len(listed) > MAX_ADDED:
        raise BundleError(f"{where}: added_tokens_decoder: expected at most {MAX_ADDED} tokens")
    special = _special(config)
    known = {token.content: token for token in backend.get_added_tokens_decoder().values()}
    wanted: dict[str, Any] = {}
    for id, entry in sorted(listed.items(), key=lambda one: _number(one[0], where)):
        text = token_text(entry) if isinstance(entry, dict) else None
        if text is None:
            raise BundleError(f"{where}: added_tokens_decoder[{id}]: expected a token")
        was = text in known and known[text].special  # the library keeps one that is special
        alone = entry.get("special") is True or text in special or was
        normal = entry.get("normalized", not alone) is True
        wanted[text] = AddedToken(text, special=alone, normalized=normal, **_flags(entry))
    _name_special(backend, special, wanted, known.keys(), rows)
    adding = [token for text, token in wanted.items() if repr(known.get(text)) != repr(token)]
    if adding:
        backend.add_tokens(adding)
    for id, entry in listed.items():
        text = token_text(entry)
        if text and backend.token_to_id(text) != int(id):
            raise BundleError(
                f"{where}: token {text!r:.60} has the id {int(id)} there and"
                f" {backend.token_to_id(text)} with {TOKENIZER}: get both from one place"
            )
    return bool(adding)


def _name_special(
    backend: tokenizers.Tokenizer,
    special: Mapping[str, Any],
    wanted: dict[str, Any],
    known: Collection[str],
    rows: int,
) -> None:
    """Add special tokens to ``wanted``: words of the vocabulary, and new ones while rows are left.

    transformers adds the others as well, with ids that its model has no rows for.
    """
    from tokenizers import AddedToken

    new = [text for text in wanted if backend.token_to_id(text) is None]
    free = rows - backend.get_vocab_size() - len(new)
    for text, entry in special.items():
        if text in wanted or text in known:
            continue
        is_new = backend.token_to_id(text) is None
        if not is_new or free > 0:
            free -= is_new
            wanted[text] = AddedToken(text, special=True, normalized=False, **_flags(entry))


def _flags(entry: Any) -> dict[str, bool]:
    named = entry if isinstance(entry, dict) else {}
    return {name: named.get(name) is True for name in ("single_word", "lstrip", "rstrip")}


def _surround(
    backend: tokenizers.Tokenizer, config: Mapping[str, Any], flags: tuple[Any, Any]
) -> bool:
    """Have BOS and EOS added as the flags say; return whether that changed anything."""
    from tokenizers.processors import TemplateProcessing

    names = [token_text(config.get(name)) if flag else None
             for name, flag in zip(("bos_token", "eos_token"), flags, strict=True)]  # fmt: skip
    ids = {name: backend.token_to_id(name) for name in names if name is not None}
    if None in ids.values() or (flags[0] and names[0] is None):
        return False
    front, back = ([] if name is None else [ids[name]] for name in names)
    plain = backend.encode("a", add_special_tokens=False).ids
    if backend.encode("a").ids == [*front, *plain, *back]:
        return False
    single = [name for name in (names[0], "$A", names[1]) if name is not None]
    backend.post_processor = TemplateProcessing(
        single=single, pair=[*single, "$B"], special_tokens=list(ids.items())
    )
    return True


def _put_space(backend: tokenizers.Tokenizer, config: Mapping[str, Any]) -> bool:
    """Have a space put before a text of bytes as the flag says; return whether that is new."""
    from tokenizers.pre_tokenizers import ByteLevel

    wanted, cut = config.get("add_prefix_space") is True, backend.pre_tokenizer
    if not isinstance(cut, ByteLevel) or cut.add_prefix_space == wanted:
        return False
    cut.add_prefix_space = wanted
    backend.pre_tokenizer = cut
    return True


def _listed(added: Mapping[str, Any], config: Mapping[str, Any], where: Path) -> dict[str, Any]:
    """Return ``added_tokens.json`` as ``added_tokens_decoder`` has it."""
    special = _special(config)
    return {
        str(_number(id, where)): {
            "content": text, "special": text in special, "normalized": text not in special,
        }
        for text, id in added.items()
    }  # fmt: skip


def _number(id: Any, where: Path) -> int:
    try:
        return int(id)
    except (TypeError, ValueError):
        raise BundleError(f"{where}: {id!r:.60}: expected a token's id") from None


def _object(text: str, file: Path) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise BundleError(f"{file}: expected a JSON object: the file is damaged")
    return parsed
