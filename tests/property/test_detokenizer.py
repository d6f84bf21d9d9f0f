"""Whatever the tokens are, the pieces joined are what the library decodes from all of them."""

import pytest
import tiny_tokenizers
from example_counts import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edgedec.text.tokenizer import Tokenizer

KINDS = sorted(tiny_tokenizers.KINDS)


def tokenizer(kind: str) -> Tokenizer:
    return Tokenizer(tiny_tokenizers.KINDS[kind](), {})


TOKENIZERS = {kind: tokenizer(kind) for kind in KINDS}


def joined(kind: str, tokens: list[int], prompt: list[int] | None = None) -> str:
    stream = TOKENIZERS[kind].stream(prompt or [])
    return "".join([*(stream.push(token) for token in tokens), stream.flush()])


def ids(kind: str) -> st.SearchStrategy[list[int]]:
    """Any tokens, with those that carry single bytes more often, and a few that are none."""
    own = TOKENIZERS[kind]
    few = [i for i in range(own.vocab_size) if len(own.written(i)) == 1 or "<0x" in own.written(i)]
    any_id = st.integers(0, own.vocab_size + 2)
    return st.lists(st.one_of(any_id, st.sampled_from(few)), max_size=30)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=examples(300))
def test_pieces_joined_are_the_decoded_whole(kind: str, data: st.DataObject) -> None:
    tokens = data.draw(ids(kind))
    assert joined(kind, tokens) == TOKENIZERS[kind].decode(tokens)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=examples(150))
def test_what_follows_a_prompt_continues_it(kind: str, data: st.DataObject) -> None:
    own = TOKENIZERS[kind]
    prompt = own.encode(data.draw(st.text("abc é", min_size=1)))
    if "<0x" in own.written(prompt[-1]):
        return  # a run of bytes that the tokens continue is judged as a whole
    tokens = data.draw(ids(kind))
    assert own.decode(prompt) + joined(kind, tokens, prompt) == own.decode(prompt + tokens)


@pytest.mark.parametrize("kind", ["byte-level", "llama", "gemma"])
@given(text=st.text())
@example("😀👩‍👩‍👧 naïve\u0301 \x00 ▁")
@settings(max_examples=examples(150))
def test_no_piece_holds_half_a_character(kind: str, text: str) -> None:
    own = TOKENIZERS[kind]
    tokens = own.encode(text.replace("\ufffd", ""))
    stream = own.stream()
    pieces = [*(stream.push(token) for token in tokens), stream.flush()]
    assert all("\ufffd" not in piece for piece in pieces)


def naive(kind: str, tokens: list[int]) -> str:
    """What one must not do: decode each token by itself."""
    own = TOKENIZERS[kind]
    return "".join(own.decode([token]) for token in tokens)


@pytest.mark.parametrize("kind", ["byte-level", "llama", "metaspace"])
def test_the_properties_catch_a_naive_stream(kind: str) -> None:
    tokens = TOKENIZERS[kind].encode("a 😀 b")
    assert naive(kind, tokens) != TOKENIZERS[kind].decode(tokens)
    assert joined(kind, tokens) == TOKENIZERS[kind].decode(tokens)
