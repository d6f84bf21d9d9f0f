"""How much of a text a token can stand for, and tokenising while other threads run."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest
import tiny_tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from edgedec.text.tokenizer import Tokenizer

KINDS = {"bytes": tiny_tokenizers.byte_level, "pieces": tiny_tokenizers.llama}
TEXTS = st.text() | st.lists(st.sampled_from([" ", "    ", "hello", "<think> 思", "é", "\n"])).map(
    "".join
)


def copied(kind: str) -> Backend:
    return Backend.from_str(KINDS[kind]().to_str())


@pytest.mark.parametrize("kind", KINDS)
@given(text=TEXTS)
def test_no_text_has_fewer_tokens_than_its_length_says(kind: str, text: str) -> None:
    tokenizer = Tokenizer(KINDS[kind](), {})
    assert tokenizer.longest_token is not None
    assert len(text) <= tokenizer.longest_token * len(tokenizer.encode(text))


def test_the_longest_added_token_counts() -> None:
    backend, name = copied("bytes"), "<" + "x" * 90 + ">"
    backend.add_special_tokens([name])
    tokenizer = Tokenizer(backend, {})
    assert len(tokenizer.encode(name)) == 1
    assert tokenizer.longest_token == len(name)


def changed() -> Iterator[tuple[str, Backend]]:
    for name, normalizer in {
        "strip": normalizers.Strip(),
        "nfkc": normalizers.NFKC(),
        "shorter": normalizers.Replace("ab", "c"),
        "expression": normalizers.Sequence([normalizers.NFC(), normalizers.StripAccents()]),
    }.items():
        backend = copied("bytes")
        backend.normalizer = normalizer
        yield name, backend
    backend = copied("bytes")
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    yield "white space", backend
    backend = copied("bytes")
    backend.add_tokens([AddedToken("<x>", rstrip=True)])
    yield "eats what follows", backend
    yield "no bytes", Backend.from_str(KINDS["pieces"]().to_str().replace("<0x41>", "<0xZZ>"))


@pytest.mark.parametrize(("name", "backend"), list(changed()))
def test_there_is_no_bound_where_characters_may_be_dropped(name: str, backend: Backend) -> None:
    assert Tokenizer(backend, {}).longest_token is None


def test_composed_characters_count_as_what_they_are_composed_of() -> None:
    backend = copied("bytes")
    plain = Tokenizer(backend, {}).longest_token
    backend.normalizer = normalizers.NFC()
    assert plain is not None
    assert Tokenizer(backend, {}).longest_token == 4 * plain


@given(text=TEXTS)
def test_tokenising_aside_gives_the_same_tokens(text: str) -> None:
    for make in KINDS.values():
        tokenizer = Tokenizer(make(), {})
        for special in (True, False):
            aside = tokenizer.encode(text, add_special_tokens=special, aside=True)
            assert aside == tokenizer.encode(text, add_special_tokens=special)


def others_run(*, aside: bool) -> bool:
    """Whether another thread runs while a text is tokenised, without being preempted."""
    tokenizer, text = Tokenizer(tiny_tokenizers.byte_level(), {}), "hello world " * 50_000
    gate, ran = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: gate.wait() and ran.set())
    thread.start()
    before = sys.getswitchinterval()
    sys.setswitchinterval(100)
    try:
        gate.set()
        tokenizer.encode(text, aside=aside)
        return ran.is_set()
    finally:
        sys.setswitchinterval(before)
        thread.join()


def test_other_threads_run_while_a_text_is_tokenised_aside() -> None:
    assert others_run(aside=True)
    assert not others_run(aside=False)
