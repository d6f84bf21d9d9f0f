"""A model's vocabulary for llguidance: the bytes of each token, and the tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgedec._support.installation import needs
from edgedec.errors import ExtraMissing, InputError
from edgedec.text.spelling import Encoder

if TYPE_CHECKING:
    import llguidance

    from edgedec.text.tokenizer import Tokenizer


class Vocabulary:
    """The tokens of a model that write text, and those that end it.

    Args:
        vocab_size: columns of a logits row.

    Attributes:
        ll: the vocabulary as llguidance represents it.
        eos_ids: as given, without those beyond the last column.
        writes: the tokens that may be drawn, ``[vocab]`` bool: those with bytes, and those that end
            a text. Other special tokens are never text, even if a grammar names them.

    Raises:
        RuntimeUnavailable: llguidance is not installed.
        InputError: no token ends a text, so a grammar could not.

    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, eos_ids: Sequence[int]) -> None:
        loaded = library()
        self.eos_ids = tuple(token for token in eos_ids if token < vocab_size)
        if not self.eos_ids:
            raise InputError(
                "the model has no end-of-text token, which a grammar needs: decode without one"
            )
        spelled = tokenizer.token_bytes(vocab_size)
        for token in self.eos_ids:
            spelled[token] = None
        self._encoder = Encoder(tokenizer, spelled)
        self.writes = np.array([bool(data) for data in spelled])
        # The library takes a token that begins with this byte, which is in no UTF-8, for special.
        self.tokens = [data or b"\xff[%d]" % token for token, data in enumerate(spelled)]
        self.special_token_ids = np.flatnonzero(~self.writes).tolist()
        self.writes[list(self.eos_ids)] = True
        self.eos_token_id, self.bos_token_id = self.eos_ids[0], None
        wrapped = loaded.TokenizerWrapper(self)
        self.ll: llguidance.LLTokenizer = loaded.LLTokenizer(
            wrapped, n_vocab=vocab_size, eos_token=list(self.eos_ids)
        )

    def __call__(self, text: bytes | str) -> list[int]:
        """Return the tokens of a piece of text inside another."""
        data = text.encode() if isinstance(text, str) else text
        return self._encoder.encode(data, first=False)


def library() -> Any:
    """Import llguidance, or raise RuntimeUnavailable with the command that installs it."""
    try:
        import llguidance
    except ImportError:
        raise ExtraMissing(
            needs("a text of a JSON schema, expression or grammar", "grammar", "llguidance")
        ) from None
    return llguidance
