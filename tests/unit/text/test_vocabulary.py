"""Which tokens two vocabularies share, by their bytes."""

from __future__ import annotations

import functools

import pytest
import tiny_tokenizers
from cross_vocabulary import reduced
from example_counts import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from edgedec.decoding.translation import OUTSIDE, Translation
from edgedec.errors import InputError
from edgedec.models.demo import BUNDLE
from edgedec.text.tokenizer import Tokenizer
from edgedec.text.vocabulary_map import translate

KINDS = ["byte-level", "llama", "gemma", "demo"]
BOTH = {"bos_token": "<s>", "eos_token": "</s>"}


@functools.cache
def tokenizer(kind: str) -> Tokenizer:
    if kind == "demo":
        return Tokenizer.load(BUNDLE / "tokenizer")
    return Tokenizer(tiny_tokenizers.KINDS[kind](), BOTH)


@functools.cache
def translation_between(kind: str, other: str) -> Translation:
    return translate(tokenizer(kind), tokenizer(other))


def spelled(kind: str) -> list[bytes | None]:
    own = tokenizer(kind)
    return own.token_bytes(own.vocab_size)


def words(vocabulary: dict[str, int]) -> Tokenizer:
    """A byte-level BPE of exactly these tokens."""
    backend = Backend(models.BPE(vocabulary, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return Tokenizer(backend, {})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_tokens_that_cross_have_the_same_bytes(kind: str, other: str) -> None:
    found, mine, theirs = translation_between(kind, other), spelled(kind), spelled(other)
    for token, there in enumerate(found.to_draft.tolist()):
        if there != OUTSIDE and not found.same:
            assert mine[token] == theirs[there] is not None
    if not found.same:
        common = {data for data in mine if data} & {data for data in theirs if data}
        assert {mine[token] for token in found.target_ids} == common
    assert len(set(found.target_ids.tolist())) == len(set(found.draft_ids.tolist()))
    assert found.to_target[found.draft_ids].tolist() == found.target_ids.tolist()


def test_space_marks_and_byte_tokens_are_bytes() -> None:
    found = translation_between("byte-level", "llama")
    mine, theirs = tokenizer("byte-level"), tokenizer("llama")

    def crosses(one: str, other: str) -> bool:
        token, there = mine.token_id(one), theirs.token_id(other)
        assert token is not None
        assert there is not None
        return found.to_draft[token] == there

    assert crosses("Ġr", "▁r")
    assert crosses("ð", "<0xF0>")
    # A letter that is a token of its own comes before the byte token of the same byte.
    assert crosses("a", "a")
    back = translation_between("llama", "byte-level")
    letter, byte = theirs.token_id("a"), theirs.token_id("<0x61>")
    assert back.to_draft[letter] == back.to_draft[byte] == mine.token_id("a")
    assert letter in back.target_ids
    assert byte not in back.target_ids


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_special_tokens_never_cross(kind: str, other: str) -> None:
    if kind == other:
        return
    found, own, theirs = translation_between(kind, other), tokenizer(kind), tokenizer(other)
    assert own.special_ids | theirs.special_ids
    assert all(found.to_draft[token] == OUTSIDE for token in own.special_ids)
    assert not set(found.draft_ids.tolist()) & theirs.special_ids


def test_tokens_named_in_the_configuration_alone_never_cross_either() -> None:
    vocabulary = {"a": 0, "b": 1, "</s>": 2, "<s>": 3}
    one, other = words(vocabulary), words({"</s>": 0, "<s>": 1, "b": 2, "a": 3})
    assert len(translate(one, other).target_ids) == 4
    one.eos_token, one.bos_token = "</s>", "<s>"
    found = translate(one, other)
    assert found.to_draft.tolist() == [3, 2, OUTSIDE, OUTSIDE]


def test_text_that_reads_like_a_special_token_stays_text() -> None:
    found, own = translation_between("llama", "byte-level"), tokenizer("llama")
    ids, _ = found.speller.spell(own.encode("a <|end|> b", add_special_tokens=False), first=False)
    assert not set(ids) & tokenizer("byte-level").special_ids
    written = translation_between("byte-level", "llama").speller.write(
        tokenizer("byte-level").encode("a"), own.encode(" </s> b", add_special_tokens=False)
    )
    assert not set(written) & tokenizer("byte-level").special_ids
    theirs = spelled("llama")
    for text in ("<unk>", "a <s></s> b", "<<s>unk>", "</s"):
        ids, _ = translation_between("byte-level", "llama").speller.spell(
            tokenizer("byte-level").encode(text), first=False
        )
        assert b"".join(theirs[id] or b"" for id in ids) == text.encode()


def test_vocabularies_without_a_common_token() -> None:
    with pytest.raises(InputError, match="shares no token"):
        translate(words({"a": 0, "b": 1}), words({"c": 0, "d": 1}))


def test_a_tokenizer_that_cannot_write_a_character_goes_on() -> None:
    """The library raises for it where there is no token for the unknown."""
    backend = Backend(models.Unigram([("a", -1.0), ("b", -1.0), ("\u2581", -1.0)]))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    backend.decoder = decoders.Metaspace(prepend_scheme="never")
    poor = Tokenizer(backend, {})
    with pytest.raises(Exception, match="unknown token"):
        poor.encode("c")
    own = tokenizer("byte-level")
    found = translate(own, poor)
    ids, ends = found.speller.spell(own.encode("ab c ab"), first=True)
    assert len(ends) == len(own.encode("ab c ab"))
    assert set(ids) <= {0, 1, 2}
    assert translate(poor, own).target_ids.tolist() == [0, 1, 2]


def test_the_same_tokenizer_passes_untouched() -> None:
    demo = tokenizer("demo")
    again = Tokenizer.load(BUNDLE / "tokenizer")
    assert translate(demo, again).untouched
    assert translate(demo, again, target_columns=4096, draft_columns=4096).untouched


def test_padding_and_added_special_tokens_make_no_difference() -> None:
    demo = tokenizer("demo")
    parsed = Backend.from_file(str(BUNDLE / "tokenizer" / "tokenizer.json"))
    parsed.add_special_tokens([AddedToken("<|tool|>", special=True)])
    found = translate(demo, Tokenizer(parsed, {}), target_columns=4096, draft_columns=4224)
    assert found.same
    assert not found.untouched
    assert found.to_draft.tolist() == list(range(4096))
    other = translate(demo, demo, target_columns=4224, draft_columns=4096)
    assert other.to_draft[4096:].tolist() == [OUTSIDE] * 128


def test_columns_without_a_token_never_cross() -> None:
    found = translate(
        tokenizer("byte-level"), tokenizer("llama"), target_columns=500, draft_columns=300
    )
    assert (found.to_draft[tokenizer("byte-level").vocab_size :] == OUTSIDE).all()
    assert found.draft_ids.max() < 300


def test_what_they_share_is_said() -> None:
    other, _ = reduced(Backend.from_file(str(BUNDLE / "tokenizer" / "tokenizer.json")), 0.7)
    facts = translate(tokenizer("demo"), other).facts
    assert facts["shared_of_target"] == pytest.approx(0.7, abs=0.01)
    assert 0.9 < facts["shared_of_sample"] < 1
    assert facts["vocabulary"].startswith("shared 70% of the target's tokens, 9")


def test_few_common_tokens_are_drafted_as_text() -> None:
    backend = Backend.from_file(str(BUNDLE / "tokenizer" / "tokenizer.json"))
    levels = [translate(tokenizer("demo"), reduced(backend, keep)[0]).level for keep in (1, 0.2)]
    assert levels == ["token", "string"]


@settings(max_examples=examples(60))
@example(text="<unk>", first=True)
@given(text=st.text(min_size=1, max_size=60), first=st.booleans())
def test_spelling_says_the_text(text: str, first: bool) -> None:
    """The same bytes, and every end is at the same byte on both sides."""
    for kind, other in (("byte-level", "llama"), ("llama", "byte-level"), ("demo", "gemma")):
        mine, theirs = spelled(kind), spelled(other)
        tokens = tokenizer(kind).encode(text, add_special_tokens=False)
        ids, ends = translation_between(kind, other).speller.spell(tokens, first=first)
        said = [theirs[id] or b"" for id in ids]
        whole = b"".join(mine[token] or b"" for token in tokens)
        if first:  # where SentencePiece has a space more, or one less
            assert b"".join(said).lstrip(b" ") == whole.lstrip(b" ")
        else:
            assert b"".join(said) == whole
        assert len(ends) == len(tokens)
        assert ends[-1] == len(ids)
        for index, end in enumerate(ends, 1):
            if end != OUTSIDE:
                part = b"".join(mine[token] or b"" for token in tokens[:index])
                assert b"".join(said[:end]).lstrip(b" ") == part.lstrip(b" ")


@settings(max_examples=examples(60))
@given(text=st.text(min_size=1, max_size=40), cut=st.integers(0, 40))
def test_what_was_drafted_is_written_as_the_target_would(text: str, cut: int) -> None:
    """As far as the text so far allows; the bytes are the draft's in any case."""
    for kind, other in (("byte-level", "llama"), ("llama", "byte-level"), ("demo", "gemma")):
        own = tokenizer(kind)
        before = own.encode("x" + text[:cut], add_special_tokens=False)
        drafted, _ = translation_between(kind, other).speller.spell(
            own.encode(text[cut:], add_special_tokens=False), first=False
        )
        written = translation_between(kind, other).speller.write(before, drafted)
        mine, said = spelled(kind), spelled(other)
        assert b"".join(mine[token] or b"" for token in written) == b"".join(
            said[token] or b"" for token in drafted
        )


def test_words_are_written_whole_whatever_they_were_drafted_in() -> None:
    found = translation_between("demo", "byte-level")
    drafted = tokenizer("byte-level").encode(" return self", add_special_tokens=False)
    before = tokenizer("demo").encode("x =", add_special_tokens=False)
    own = tokenizer("demo").encode(" return self", add_special_tokens=False)
    assert len(drafted) > len(own)
    assert found.speller.write(before, drafted) == own


def test_a_drafted_special_token_ends_what_is_written() -> None:
    found, theirs = translation_between("byte-level", "llama"), tokenizer("llama")
    drafted = theirs.encode("ab", add_special_tokens=False)
    stop = theirs.eos_id
    assert stop is not None
    before = tokenizer("byte-level").encode("x")
    whole = found.speller.write(before, drafted)
    assert whole
    assert found.speller.write(before, [*drafted, stop, *drafted]) == whole
    assert found.speller.write(before, [stop]) == []
