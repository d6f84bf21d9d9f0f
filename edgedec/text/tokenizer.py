"""A bundle's tokenizer and incremental detokeniser.

The files are untrusted: sizes are limited, and any fault is a one-line BundleError.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from edgedec._support.files import read_regular
from edgedec.errors import BundleError, InputError
from edgedec.text import tokenizer_check, tokenizer_files
from edgedec.text.detokenize import Scheme, TextStream, byte_spelled
from edgedec.text.equivalent import simplify
from edgedec.text.tokenizer_check import one_line_errors
from edgedec.text.tokenizer_files import CONFIG, MAX_CONFIG_BYTES, TEMPLATE, TOKENIZER, token_text

if TYPE_CHECKING:
    import tokenizers

    from edgedec.text.chat import ChatTemplate

__all__ = ["CONFIG", "MAX_CONFIG_BYTES", "TEMPLATE", "TOKENIZER", "ChatTokens", "Tokenizer"]
MAX_TOKENIZER_BYTES = 128 << 20
Read = Callable[[str, int], "bytes | None"]


class ChatTokens(list[int]):
    """Token ids of a conversation, ready for the assistant's turn."""


class Tokenizer:
    """A Hugging Face ``tokenizer.json`` with its configuration and chat template.

    Attributes:
        vocab_size: one more than the largest token id. A model may have more rows.
        special_ids: tokens that are never part of the text.
        special_names: spellings that ``encode`` turns into one of them.
        bos_token, eos_token: as ``tokenizer_config.json`` names them, or None.
        config: ``tokenizer_config.json`` with what other files add to it.
        completed: whether ``backend`` has more than ``tokenizer.json``.

    """

    completed = False

    def __init__(self, backend: tokenizers.Tokenizer, config: dict[str, Any]) -> None:
        # A file may ask for truncation or padding, which do not belong in a prompt.
        backend.no_truncation()
        backend.no_padding()
        self.backend = backend
        self.config = config
        decoder = backend.decoder
        self.scheme = Scheme.read(None if decoder is None else json.loads(decoder.__getstate__()))
        self.vocab_size: int = 1 + max(backend.get_vocab(with_added_tokens=True).values())
        added = backend.get_added_tokens_decoder()
        special = {i: t for i, t in added.items() if t.special}
        self._literal = self._literally({i: t.content for i, t in added.items() if not t.special})
        self.special_ids = frozenset(special)
        self.special_names = frozenset(token.content for token in special.values())
        self.bos_token = token_text(config.get("bos_token"))
        self.eos_token = token_text(config.get("eos_token"))
        self._written = _Written(self)

    def _literally(self, added: Mapping[int, str]) -> dict[int, str]:
        """Return the spelling of added tokens that the library does not show as they are.

        It takes letters of a byte-level vocabulary's alphabet for bytes, and since 0.23 writes a
        normalised token as the normalizer leaves it: in small letters, or with a mark in front.
        """
        spelled = byte_spelled if self.scheme.byte_level else str
        return {
            id: spelled(text)
            for id, text in added.items()
            if self.backend.id_to_token(id) != text
            or (
                self.scheme.byte_level
                and self.scheme.bytes_of(text) != text.encode("utf-8", "replace")
            )
        }

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Read a folder with ``tokenizer.json``, or that file itself.

        ``tokenizer_config.json`` and the other files of a checkpoint are read if they are next to
        it (``tokenizer_files``).

        Raises:
            BundleError: missing, too large, not a tokenizer, or with an unsupported decoder.

        """
        path = Path(path)
        file = path / TOKENIZER if path.is_dir() else path

        def read(name: str, limit: int) -> bytes | None:
            beside = file if name == TOKENIZER else file.parent / name
            return _read(beside, limit) if beside == file or os.path.lexists(beside) else None

        return cls.read(read, file)

    @classmethod
    def read(cls, read: Read, file: Path) -> Tokenizer:
        """Read the files that belong to a tokenizer.

        A new tokenizer is tried in a child process first.

        Args:
            read: returns a file's bytes by its name and size limit, or None if there is no such
                file.
            file: ``tokenizer.json``'s name in messages.

        Raises:
            BundleError: as ``load``.

        """

        def text(name: str, limit: int) -> str | None:
            data = read(name, limit)
            return None if data is None else _decoded(data, file.parent / name)

        tokenizer = text(TOKENIZER, MAX_TOKENIZER_BYTES)
        if tokenizer is None:
            raise BundleError(f"{file}: expected this file: export or copy the bundle again")
        backend = tokenizer_check.load(tokenizer, file)
        config = tokenizer_files.read_config(text, file)
        with one_line_errors(f"{file}: its tokens cannot be added"):
            completed = tokenizer_files.complete(
                backend, config, file, tokenizer_files.model_rows(text)
            )
            completed |= simplify(backend)
        found = cls(backend, config)
        found.completed = completed
        return found

    @property
    def bos_id(self) -> int | None:
        """Id of ``bos_token``."""
        return None if self.bos_token is None else self.token_id(self.bos_token)

    @property
    def eos_id(self) -> int | None:
        """Id of ``eos_token``."""
        return None if self.eos_token is None else self.token_id(self.eos_token)

    @functools.cached_property
    def chat_template(self) -> ChatTemplate | None:
        """The template of the files, or None; BundleError if it cannot be used."""
        named = tokenizer_files.templates(self.config)
        if "default" not in named:
            return None
        from edgedec.text.chat import ChatTemplate

        return ChatTemplate(
            named["default"],
            bos_token=self.bos_token or "",
            eos_token=self.eos_token or "",
            named=named,
            tokens=tokenizer_files.special_tokens(self.config),
        )

    def encode(
        self, text: str, *, add_special_tokens: bool = True, aside: bool = False
    ) -> list[int]:
        """Return the token ids of ``text``.

        Args:
            text: any text; the names of special tokens in it become those tokens.
            add_special_tokens: let the file's post-processor add its own, as BOS in front.
                False for a rendered chat template, which writes them itself.
            aside: let other threads run Python code meanwhile. The library keeps them waiting
                unless it is given a list of texts.

        Raises:
            InputError: the text has a lone surrogate, as left by invalid UTF-8.
            BundleError: the tokenizer fails at this text.

        """
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InputError(
                f"the text is not valid UTF-8 at character {error.start}: give it as UTF-8"
            ) from None
        with one_line_errors("the tokenizer cannot encode this text"):
            if aside:
                (found,) = self.backend.encode_batch_fast(
                    [text], add_special_tokens=add_special_tokens
                )
            else:
                found = self.backend.encode(text, add_special_tokens=add_special_tokens)
            ids: list[int] = found.ids
        return ids

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
        *,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool | None = None,
    ) -> ChatTokens:
        """Return the token ids of a conversation, ready for the assistant's turn.

        Args:
            messages: see ``ChatTemplate.render``.
            tools, variables: likewise.
            add_generation_prompt: end with the beginning of the assistant's turn; None does so
                unless the last message is continued.
            continue_final_message: end within the last message, which the model goes on with; None
                does so if it is the assistant's text.

        Raises:
            InputError: there is no template, or it refuses the messages or leaves one out.

        """
        text = self.render(
            messages, tools, variables, add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
        )  # fmt: skip
        return ChatTokens(self.encode(text, add_special_tokens=False))

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
        *,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool | None = None,
    ) -> str:
        """Return the text of a conversation; see ``encode_chat``."""
        template = self.chat_template
        if template is None:
            raise InputError("this bundle has no chat template: give a plain prompt instead")
        from edgedec.text.chat import ending

        ends = ending(messages, add_generation_prompt, continue_final_message)
        text = template.render(messages, tools=tools, variables=variables, **ends)
        template.left_out(messages, tools)
        return text

    @functools.cached_property
    def longest_token(self) -> int | None:
        """The most characters that one token can stand for; None if that is unbounded."""
        from edgedec.text.coverage import longest_token

        pieces = self.token_bytes(self.vocab_size)
        return longest_token(self.backend, pieces, byte_level=self.scheme.byte_level)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ``ids``; special tokens and ids that are not tokens are skipped."""
        ids = list(ids)
        if not self._literal.keys().isdisjoint(ids):  # the library takes them for bytes
            stream = self.stream()
            return "".join(map(stream.push, ids)) + stream.flush()
        with one_line_errors("the tokenizer cannot decode these tokens"):
            text: str = self.backend.decode(ids, skip_special_tokens=True)
        return text

    def stream(
        self, prompt: Sequence[int] = (), shown: Mapping[int, str] = MappingProxyType({})
    ) -> TextStream:
        """Return a new incremental detokeniser for the text after ``prompt``.

        After a prompt with any text the first word keeps the space that the beginning of a
        text would lose.

        Args:
            prompt: tokens before the text.
            shown: texts of special tokens, which otherwise have none.

        """
        continued = any(self.written(token) for token in prompt)
        return TextStream(self._written.__getitem__, self.scheme.joiner(continued=continued), shown)

    def token_id(self, token: str) -> int | None:
        """Return the id of a token as the vocabulary writes it."""
        found: int | None = self.backend.token_to_id(token)
        return found

    def written(self, token: int) -> str:
        """Return a token as the vocabulary writes it; empty if decoding skips it.

        An added token of a byte-level vocabulary, which is its own text, is spelled as one.
        """
        return self._written[token]

    def bytes_of(self, token: int) -> bytes:
        """Return the bytes that a token adds to a text; a special token's are its name's."""
        written = self.written(token)
        if not written:
            return (self.backend.id_to_token(token) or "").encode()
        return self.scheme.bytes_of(written)

    def token_bytes(self, count: int) -> list[bytes | None]:
        """Return the bytes that each of the first ``count`` ids adds to a text.

        None for those that are not text: special tokens, also where only
        ``tokenizer_config.json`` names them, and ids without a token. Bytes may not be valid
        UTF-8 by themselves.
        """
        hidden = self.special_ids | {self.bos_id, self.eos_id}
        found: list[bytes | None] = [None] * count
        for token in range(min(count, self.vocab_size)):
            written = None if token in hidden else self.written(token)
            if written:
                found[token] = self.scheme.bytes_of(written)
        return found


class _Written(dict[int, str]):
    """See ``Tokenizer.written``; each token is looked up once."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer._literal)
        self._special_ids, self._backend = tokenizer.special_ids, tokenizer.backend

    def __missing__(self, token: int) -> str:
        found = "" if token in self._special_ids else self._backend.id_to_token(token) or ""
        self[token] = found
        return found


def _read(file: Path, limit: int) -> bytes:
    try:
        data = read_regular(file, limit)
    except OSError as error:
        raise BundleError(f"{file}: cannot be read: {error.strerror}") from None
    if data is None:
        raise BundleError(f"{file}: expected at most {limit >> 20} MiB")
    return data


def _decoded(data: bytes, file: Path) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BundleError(f"{file}: not UTF-8 at byte {error.start}: the file is damaged") from None
