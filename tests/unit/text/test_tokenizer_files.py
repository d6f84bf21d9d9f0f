"""The files beside ``tokenizer.json`` add to it what transformers makes of them.

The ids, texts and special tokens were recorded from transformers 4.57.6: of each folder
``AutoTokenizer.from_pretrained``, its ``encode``, ``decode`` and ``special_tokens_map``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from edgedec.errors import BundleError, CheckpointError
from edgedec.export import tokenizer as exported
from edgedec.export.tokenizer import TokenizerContent
from edgedec.text.tokenizer import Tokenizer

LETTERS = sorted(pre_tokenizers.ByteLevel.alphabet())
FIRST = 1 + len(LETTERS)  # the id of the next token


def token(content: str, **flags: bool) -> dict[str, Any]:
    plain = dict.fromkeys(("lstrip", "normalized", "rstrip", "single_word"), False)
    return {"content": content, **plain, "special": True, **flags}


def folder(path: Path, files: dict[str, Any]) -> Path:
    """A byte-level tokenizer of letters, one special token, and these files beside it."""
    made = Backend(
        models.BPE(vocab={"<end>": 0, **{c: i + 1 for i, c in enumerate(LETTERS)}}, merges=[])
    )
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken("<end>", special=True, normalized=False)])
    path.mkdir(parents=True, exist_ok=True)
    made.save(str(path / "tokenizer.json"))
    for name, value in files.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")
    return path


CONFIG, MAP, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
CLASS = {"tokenizer_class": "PreTrainedTokenizerFast"}
LLAMA = {"tokenizer_class": "LlamaTokenizerFast", "bos_token": "<end>", "eos_token": "<end>",
         "unk_token": "<end>"}  # fmt: skip
U, X, SPACE = (1 + LETTERS.index(letter) for letter in "ux\u0120")
FOLDERS: dict[str, tuple[dict[str, Any], str, list[int], str]] = {
    "listed in the configuration": (
        {CONFIG: {**CLASS, "added_tokens_decoder": {str(FIRST): token("<a>")}}},
        "<a>u", [FIRST, U], "u"),
    "listed, and text": (
        {CONFIG: {**CLASS, "added_tokens_decoder": {str(FIRST): token("<a>", special=False)}}},
        "<a>u", [FIRST, U], "<a>u"),
    "takes the spaces before it": (
        {CONFIG: {**CLASS, "added_tokens_decoder": {str(FIRST): token("<a>", lstrip=True)}}},
        "x <a>u", [X, FIRST, U], "xu"),
    "takes the spaces after it": (
        {CONFIG: {**CLASS, "added_tokens_decoder": {str(FIRST): token("<a>", rstrip=True)}}},
        "<a> u", [FIRST, U], "u"),
    "a word by itself": (
        {CONFIG: {**CLASS, "added_tokens_decoder": {
            str(FIRST): token("ux", single_word=True, special=False)}}},
        "ux uxx", [FIRST, SPACE, U, X, X], "ux uxx"),
    "other flags than tokenizer.json has": (
        {CONFIG: {**CLASS, "added_tokens_decoder": {"0": token("<end>", rstrip=True)}}},
        "<end> u", [0, U], "u"),
    "in the older file": (
        {CONFIG: CLASS, ADDED: {"<a>": FIRST, "<b>": FIRST + 1}},
        "<b><a>u", [FIRST + 1, FIRST, U], "<b><a>u"),
    "in the older file, named as special": (
        {CONFIG: CLASS, ADDED: {"<a>": FIRST}, MAP: {"additional_special_tokens": ["<a>"]}},
        "<a>u", [FIRST, U], "u"),
    "the older file does not count beside the newer": (
        {CONFIG: {**CLASS, "added_tokens_decoder": {}}, ADDED: {"<a>": FIRST}},
        "<end>u", [0, U], "u"),
    "a word of the vocabulary that is named as special": (
        {CONFIG: {**CLASS, "bos_token": "u"}}, "xux", [X, U, X], "xx"),
    "a flag asks for BOS": (
        {CONFIG: {**LLAMA, "add_bos_token": True}}, "u", [0, U], "u"),
    "a flag asks for none": (
        {CONFIG: {**LLAMA, "add_bos_token": False}}, "u", [U], "u"),
    "a flag asks for EOS": (
        {CONFIG: {**LLAMA, "add_bos_token": False, "add_eos_token": True}}, "u", [U, 0], "u"),
    "the class has BOS without a flag": ({CONFIG: LLAMA}, "u", [0, U], "u"),
    "a flag of a class that does not read it": (
        {CONFIG: {**LLAMA, **CLASS, "add_bos_token": True}}, "u", [U], "u"),
}  # fmt: skip
NAMES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "in the configuration": ({CONFIG: {**CLASS, "eos_token": "<end>"}}, {"eos_token": "<end>"}),
    "in the map alone": ({CONFIG: CLASS, MAP: {"eos_token": "<end>"}}, {"eos_token": "<end>"}),
    "in the map, as an object": (
        {CONFIG: CLASS, MAP: {"bos_token": token("<end>")}}, {"bos_token": "<end>"}),
    "the map wins over an older configuration": (
        {CONFIG: {**CLASS, "eos_token": "u"}, MAP: {"eos_token": "<end>"}}, {"eos_token": "<end>"}),
    "a newer configuration wins": (
        {CONFIG: {**CLASS, "eos_token": "<end>", "added_tokens_decoder": {"0": token("<end>")}},
         MAP: {"eos_token": "u"}}, {"eos_token": "<end>"}),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDERS)
def test_tokens_of_the_other_files(tmp_path: Path, name: str) -> None:
    files, text, ids, decoded = FOLDERS[name]
    tokenizer = Tokenizer.load(folder(tmp_path / "m", files))
    assert tokenizer.encode(text) == ids
    assert tokenizer.decode(ids) == decoded
    stream = tokenizer.stream()
    assert "".join(map(stream.push, ids)) + stream.flush() == decoded
    # What an export writes says the same in tokenizer.json alone.
    exported.write(tmp_path / "m", tmp_path / "written")
    alone = Backend.from_file(str(tmp_path / "written" / "tokenizer.json"))
    assert alone.encode(text).ids == ids
    assert TokenizerContent(tmp_path / "m").sha256 == TokenizerContent(tmp_path / "written").sha256


def test_the_control_without_the_files(tmp_path: Path) -> None:
    bare = Tokenizer.load(folder(tmp_path, {}))
    same = {name for name, (_, text, ids, _) in FOLDERS.items() if bare.encode(text) == ids}
    assert same == {
        "the older file does not count beside the newer",
        "a word of the vocabulary that is named as special",
        "a flag asks for none",
        "a flag of a class that does not read it",
    }


@pytest.mark.parametrize("name", NAMES)
def test_names_of_special_tokens(tmp_path: Path, name: str) -> None:
    files, names = NAMES[name]
    tokenizer = Tokenizer.load(folder(tmp_path / "m", files))
    found = {"bos_token": tokenizer.bos_token, "eos_token": tokenizer.eos_token}
    assert {key: value for key, value in found.items() if value is not None} == names


JINJA, OLD = "chat_template.jinja", "chat_template.json"
USE = "additional_chat_templates/tool_use.jinja"
LIST = [{"name": "default", "template": "c"}, {"name": "tool_use", "template": "t"}]


@pytest.mark.parametrize(
    ("files", "default", "tools"),
    [
        ({CONFIG: {"chat_template": "c"}}, "c", "c"),
        ({CONFIG: {"chat_template": LIST}}, "c", "t"),
        ({CONFIG: {"chat_template": "c"}, JINJA: "j"}, "j", "j"),
        ({CONFIG: {"chat_template": LIST}, JINJA: "j"}, "j", "j"),
        ({JINJA: "j", USE: "u"}, "j", "u"),
        ({CONFIG: {"chat_template": LIST}, JINJA: "j", USE: "u"}, "j", "u"),
        ({OLD: {"chat_template": "o"}}, "o", "o"),
        ({OLD: {"chat_template": LIST}}, "c", "t"),
        ({CONFIG: {"chat_template": "c"}, OLD: {"chat_template": "o"}}, "c", "c"),
        ({JINJA: "j", OLD: {"chat_template": "o"}}, "j", "j"),
    ],
)
def test_templates(tmp_path: Path, files: dict[str, Any], default: str, tools: str) -> None:
    folder(tmp_path / "m", {"config.json": {}, **files})
    exported.write(tmp_path / "m", tmp_path / "written")
    for place in ("m", "written"):
        template = Tokenizer.load(tmp_path / place).chat_template
        assert template is not None
        talk = [{"role": "user", "content": "x"}]
        tool = {"type": "function", "function": {"name": "f"}}
        assert template.render(talk) == default
        assert template.render(talk, tools=[tool]) == tools


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({CONFIG: {"added_tokens_decoder": {"9999": token("<a>")}}}, "has the id 9999 there and"),
        ({CONFIG: {"added_tokens_decoder": {"x": token("<a>")}}}, "'x': expected a token's id"),
        ({CONFIG: {"added_tokens_decoder": {"1": "<a>"}}}, "expected a token"),
        ({CONFIG: {"added_tokens_decoder": [1]}}, "added_tokens_decoder: expected at most"),
        ({ADDED: {"<a>": "x"}}, "expected a token's id"),
        ({MAP: "[1]"}, "special_tokens_map.json: expected a JSON object"),
        ({OLD: "{"}, "chat_template.json: expected a JSON object"),
    ],
)
def test_what_is_damaged_is_refused(tmp_path: Path, files: dict[str, Any], says: str) -> None:
    with pytest.raises(BundleError, match=r"^[^\n]+$") as error:
        Tokenizer.load(folder(tmp_path, files))
    assert says in str(error.value)
    with pytest.raises(CheckpointError):
        TokenizerContent(tmp_path)


# -- added tokens are text ------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["ø", "ö", "«", "ł", "Ġ", "éé", "Ø x", "思", "\u0120a"])
def test_an_added_token_is_its_own_text(tmp_path: Path, content: str) -> None:
    """As llama.cpp decodes it; letters of the byte alphabet are no bytes there."""
    id = 1 + LETTERS.index(content) if content in LETTERS else FIRST
    listed = {str(id): token(content, special=False)}
    tokenizer = Tokenizer.load(folder(tmp_path, {CONFIG: {"added_tokens_decoder": listed}}))
    ids = tokenizer.encode(f"x{content}u{content}")
    assert ids == [X, id, U, id]
    assert tokenizer.decode(ids) == f"x{content}u{content}"
    stream = tokenizer.stream()
    assert [stream.push(one) for one in ids] == ["x", content, "u", content]
    assert tokenizer.bytes_of(id) == content.encode()
    assert tokenizer.token_bytes(id + 1)[id] == content.encode()
    # The control: the library itself takes letters of the alphabet for bytes.
    assert (tokenizer.backend.decode([id]) == content) == (not set(content) <= set(LETTERS))
