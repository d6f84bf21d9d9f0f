"""Tokenizers: what they read, what they refuse, and what a stream gives out when."""

import json
from pathlib import Path

import pytest
import tiny_tokenizers
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from edgedec.errors import BundleError, InputError
from edgedec.text.detokenize import Scheme, byte_of_char
from edgedec.text.tokenizer import Tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_tokenizers.save(tiny_tokenizers.llama(), tmp_path)


def configure(folder: Path, **entries: object) -> Path:
    (folder / "tokenizer_config.json").write_text(json.dumps(entries), "utf-8")
    return folder


def one_line(error: pytest.ExceptionInfo[Exception]) -> str:
    message = str(error.value)
    assert message
    return message


def test_a_folder_and_its_file_are_the_same(folder: Path) -> None:
    text = "def add(left): 😀"
    one, two = Tokenizer.load(folder), Tokenizer.load(folder / "tokenizer.json")
    assert one.encode(text) == two.encode(text)
    assert one.decode(one.encode(text)) == text


def test_bos_comes_from_the_file_or_from_the_template_never_twice(folder: Path) -> None:
    template = "{{ bos_token }}{{ messages[0]['content'] }}"
    configure(folder, bos_token={"content": "<s>"}, eos_token="</s>", chat_template=template)
    tokenizer = Tokenizer.load(folder)
    assert (tokenizer.bos_id, tokenizer.eos_id) == (1, 2)
    assert tokenizer.encode("x")[0] == 1
    assert tokenizer.encode("x", add_special_tokens=False)[0] != 1
    chat = tokenizer.encode_chat([{"role": "user", "content": "x"}])
    assert chat.count(1) == 1
    assert chat[0] == 1


def test_tokens_not_named_are_none(folder: Path) -> None:
    tokenizer = Tokenizer.load(configure(folder, bos_token=None))
    assert (tokenizer.bos_token, tokenizer.bos_id, tokenizer.eos_id) == (None, None, None)


def test_no_template(folder: Path) -> None:
    with pytest.raises(InputError, match="no chat template"):
        Tokenizer.load(folder).encode_chat([{"role": "user", "content": "x"}])


def test_truncation_and_padding_in_the_file_are_ignored(tmp_path: Path) -> None:
    backend = Backend.from_str(tiny_tokenizers.byte_level().to_str())
    backend.enable_truncation(3)
    backend.enable_padding(length=64)
    tokenizer = Tokenizer.load(tiny_tokenizers.save(backend, tmp_path))
    assert tokenizer.decode(tokenizer.encode("hello hello hello")) == "hello hello hello"
    assert len(tokenizer.encode("a")) == 1


def test_vocab_size_counts_added_tokens() -> None:
    tokenizer = Tokenizer(tiny_tokenizers.byte_level(), {})
    assert tokenizer.vocab_size == 342
    assert tokenizer.written(341) == "    "
    assert tokenizer.written(342) == ""


def test_special_tokens_leave_no_text() -> None:
    tokenizer = Tokenizer(tiny_tokenizers.byte_level(), {})
    (end,) = tokenizer.special_ids
    tokens = [end, *tokenizer.encode("x"), end]
    stream = tokenizer.stream()
    assert "".join(map(stream.push, tokens)) + stream.flush() == "x"
    assert tokenizer.encode("<|end|>") == [end]


def test_the_first_word_keeps_its_space_after_a_prompt() -> None:
    tokenizer = Tokenizer(tiny_tokenizers.llama(), {})
    token = tokenizer.encode("x", add_special_tokens=False)[0]
    assert tokenizer.written(token).startswith("▁")
    assert not tokenizer.stream().push(token).startswith(" ")
    assert not tokenizer.stream([1]).push(token).startswith(" ")  # BOS alone is no text
    assert tokenizer.stream([1, 300]).push(token).startswith(" ")


def test_the_byte_map_is_the_librarys() -> None:
    from tokenizers import pre_tokenizers

    assert set(byte_of_char()) == set(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(byte_of_char().values()) == list(range(256))


def test_half_a_surrogate_pair_is_refused() -> None:
    tokenizer = Tokenizer(tiny_tokenizers.byte_level(), {})
    with pytest.raises(InputError, match="not valid UTF-8 at character 2") as error:
        tokenizer.encode(b"ab\xff".decode("utf-8", "surrogateescape"))
    one_line(error)


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[1]", b"\xff\xfe", b"{" * 100_000, b'{"model": {"type": "BPE"}}', b"null"],
    ids=["empty", "object", "list", "not UTF-8", "deep", "no vocabulary", "null"],
)
def test_damaged_files_are_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(BundleError) as error:
        Tokenizer.load(tmp_path)
    assert str(tmp_path) in one_line(error)


def test_an_empty_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="it has no tokens"):
        Tokenizer.load(tiny_tokenizers.save(Backend(models.BPE()), tmp_path))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"tokenizer\.json: cannot be read"):
        Tokenizer.load(tmp_path)


def test_a_file_beyond_the_limit_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgedec.text.tokenizer.MAX_TOKENIZER_BYTES", 1 << 10)
    with pytest.raises(BundleError, match="expected at most"):
        Tokenizer.load(folder)


@pytest.mark.parametrize("content", ["[]", "{", "[" * 100_000])
def test_a_damaged_configuration_is_named(folder: Path, content: str) -> None:
    (folder / "tokenizer_config.json").write_text(content, "utf-8")
    with pytest.raises(BundleError, match=r"tokenizer_config\.json: expected a JSON object"):
        Tokenizer.load(folder)


@pytest.mark.parametrize(
    "decoder",
    [
        None,
        decoders.WordPiece(),
        decoders.CTC(),
        decoders.Sequence([decoders.Strip(" ", 1, 0), decoders.Fuse()]),
        decoders.Sequence([decoders.Fuse(), decoders.ByteFallback()]),
        decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 0, 1)]),
    ],
    ids=["none", "WordPiece", "CTC", "strip every token", "fallback after fuse", "strip the end"],
)
def test_decoders_that_cannot_stream_are_refused(decoder: decoders.Decoder | None) -> None:
    parsed = None if decoder is None else json.loads(decoder.__getstate__())
    with pytest.raises(BundleError, match="is unknown here") as error:
        Scheme.read(parsed)
    one_line(error)
