"""The tokens that end a text, of those that a model's files name.

transformers stops at the ``eos_token_id`` of ``generation_config.json``, or else of
``config.json``. Published folders often name the end of a turn in one file and the end of a
document in another, so all of them count, and what the chat template writes after an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from edgedec.errors import EdgedecError
from edgedec.text.tokenizer import Tokenizer
from edgedec.text.tokenizer_files import token_text

_ANSWER = "ZqAnswer"
_TALK = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": _ANSWER}]


def stated(config: Mapping[str, Any]) -> list[Any]:
    """Return the ``eos_token_id`` of a configuration as a list; its text model's if it has none."""
    value = config.get("eos_token_id")
    inner = config.get("text_config")
    if value is None and isinstance(inner, Mapping):
        value = inner.get("eos_token_id")
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def more_ends(
    tokenizer: Tokenizer, files: Iterable[Mapping[str, Any]], others: Iterable[Any]
) -> list[int]:
    """Return the ends that a tokenizer and its chat template name, and others.

    Only added tokens: a configuration that nobody reads may name any word of the vocabulary, such
    as its class's default.

    Args:
        files: those that may name an end which another one hides from the tokenizer.

    """
    added = tokenizer.backend.get_added_tokens_decoder()
    named = [token_text(file.get("eos_token")) for file in files]
    ids = [tokenizer.token_id(text) for text in named if text is not None]
    found = [tokenizer.eos_id, *ids, *others, _template_end(tokenizer)]
    return [id for id in dict.fromkeys(found) if type(id) is int and id in added]


def _template_end(tokenizer: Tokenizer) -> int | None:
    """Return the token that the chat template writes after an answer, or None."""
    try:
        template = tokenizer.chat_template
        if template is None:
            return None
        text = template.render(_TALK, add_generation_prompt=False)
    except EdgedecError:  # said where a conversation is rendered
        return None
    before, answer, after = text.rpartition(_ANSWER)
    names = [token.content for token in tokenizer.backend.get_added_tokens_decoder().values()]
    closing = [name for name in names if name and after.lstrip().startswith(name)]
    if not answer or not closing:
        return None
    end = max(closing, key=len)
    # A template may begin a turn whatever it is asked for.
    openings = {name: before.rfind(name) for name in names if name in before}
    if openings and max(openings, key=lambda name: (openings[name], len(name))) == end:
        return None
    return tokenizer.token_id(end)
