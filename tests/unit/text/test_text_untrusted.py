"""Tokenizers that nobody opened yet are tried in a child; what panics is an error of one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_tokenizers
from kinds import in_full
from peak_memory import measured
from tokenizer_attacks import ATTACKS, backtracking, mapped, normalizing, replacing
from tokenizers import Tokenizer as Backend
from tokenizers import models

from edgedec._support.kept import Record
from edgedec.errors import BundleError
from edgedec.text import _tokenizer_child, tokenizer_check
from edgedec.text.tokenizer import Tokenizer
from edgedec.text.tokenizer_check import one_line_errors


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Record("checks", "tokenizers").file


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The tasks that the child was given, in order."""
    found: list[Any] = []
    real: Callable[..., Any] = tokenizer_check.CHECKER.ask
    monkeypatch.setattr(
        tokenizer_check.CHECKER, "ask", lambda *of: [found.append(of), real(*of)][1]
    )
    return found


def test_a_tokenizer_is_tried_once(tmp_path: Path, asked: list[Any], cache: Path) -> None:
    tiny_tokenizers.save(tiny_tokenizers.llama(), tmp_path)
    for _ in range(3):
        Tokenizer.load(tmp_path)
    assert len(asked) == 1
    assert len(json.loads(cache.read_bytes())["content"]["opened"]) == 1


def test_another_version_or_another_file_is_tried_again(
    tmp_path: Path, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_tokenizers.save(tiny_tokenizers.llama(), tmp_path)
    Tokenizer.load(tmp_path)
    monkeypatch.setattr(tokenizer_check, "CHECK_VERSION", 99)
    Tokenizer.load(tmp_path)
    assert len(asked) == 2
    tiny_tokenizers.save(tiny_tokenizers.byte_level(), tmp_path)
    Tokenizer.load(tmp_path)
    assert len(asked) == 3


def test_what_was_refused_is_not_remembered(tmp_path: Path, asked: list[Any], cache: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(backtracking(), "utf-8")
    for _ in range(2):
        with pytest.raises(BundleError, match="expected a Hugging Face"):
            Tokenizer.load(tmp_path)
    assert len(asked) == 2
    assert not cache.exists()


def test_a_panic_in_this_process_is_an_error_of_one_line() -> None:
    tokenizer = Tokenizer(Backend.from_str(backtracking()), {})
    with pytest.raises(BundleError, match="the tokenizer cannot encode this text: "):
        tokenizer.encode("x" * 64)
    assert tokenizer.decode(tokenizer.encode("harmless")) == "harmless"


def test_an_error_of_the_library_is_one_too() -> None:
    backend = Backend(models.WordLevel({"a": 0}, unk_token="gone"))
    backend.decoder = tiny_tokenizers.byte_level().decoder
    with pytest.raises(BundleError, match="the tokenizer cannot encode this text: WordLevel"):
        Tokenizer(backend, {}).encode("b")


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError])
def test_what_ends_a_program_is_not_swallowed(error: type[BaseException]) -> None:
    with pytest.raises(error), one_line_errors("expected"):
        raise error


@pytest.mark.parametrize(
    ("steps", "most"),
    [
        ([(" ", "▁")], 1),
        ([("a", "bb")] * 6, 64),
        ([("...", "…"), ("ab", "abc")], 2),
    ],
)
def test_how_much_a_normalizer_may_add(
    tmp_path: Path, steps: list[tuple[str, str]], most: float
) -> None:
    """Up to the bound a file is read; what is counted is no less than what is made."""
    source = replacing(*steps)
    state = json.loads(source)["normalizer"]
    assert _tokenizer_child._growth(state) <= most
    normalizer = Backend.from_str(source).normalizer
    for text_ in ("a" * 10, "ab..." * 3, "x y"):
        made = normalizer.normalize_str(text_)
        assert len(made) <= _tokenizer_child._growth(state) * len(text_)
    (tmp_path / "tokenizer.json").write_text(source, "utf-8")
    Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    "steps",
    [
        [{"type": "Replace", "pattern": {"Regex": "(?=ж)"}, "content": "ж"}] * 3,
        [{"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}] * 9,
        [{"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}] * 9,
        [{"type": "Prepend", "prepend": "▁"}, {"type": "NFC"}],
        [{"type": "ByteLevel"}],
    ],
)
def test_other_normalizers_add_no_more_than_is_counted(
    tmp_path: Path, steps: list[dict[str, object]]
) -> None:
    source = normalizing(*steps)
    normalizer = Backend.from_str(source).normalizer
    growth = _tokenizer_child._growth(json.loads(source)["normalizer"])
    for text_ in ("ж", "жжж", "a  b", "é", "😀"):
        assert len(normalizer.normalize_str(text_)) <= growth * len(text_)
    (tmp_path / "tokenizer.json").write_text(source, "utf-8")
    Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("pattern", "takes"),
    [(" {2,}", True), (r"\s+", True), ("[\n\t]", True), ("a", True)]
    + [
        (p, False)
        for p in ("a*", "(?=a)", "a{1,0}", "a{0,}", "a|", "[^a]", "a+?b*", "", r"\b", "^")
    ],
)
def test_expressions_that_match_no_empty_text(pattern: str, takes: bool) -> None:
    assert (_tokenizer_child._TAKES_ONE.fullmatch(pattern) is not None) is takes


@pytest.mark.parametrize("longest", [1, 18, 65])
def test_the_longest_text_of_a_table_is_counted_in_characters(longest: int) -> None:
    source = mapped("a\0" + "ж" * longest + "\0b")
    growth = _tokenizer_child._growth(json.loads(source)["normalizer"])
    assert growth == longest


LOADED = """
from edgedec.text import tokenizer as text, tokenizer_check
close = tokenizer_check.CHECKER.close
def work(folder):
    return text.Tokenizer.load(folder).vocab_size
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux obeys RLIMIT_AS")
@pytest.mark.parametrize("name", in_full(ATTACKS, 3))
def test_an_attack_is_an_error_of_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "tokenizer.json").write_text(ATTACKS[name], "utf-8")
    said, peak, seconds = measured(LOADED, str(tmp_path))
    assert said.startswith("BundleError: ")
    assert "expected a Hugging Face tokenizer.json: " in said
    assert "\n" not in said
    assert peak <= 300e6
    assert seconds <= 2


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux obeys RLIMIT_AS")
def test_a_harmless_tokenizer_passes(tmp_path: Path) -> None:
    """The control: what is measured is not what every tokenizer takes or says."""
    tiny_tokenizers.save(tiny_tokenizers.byte_level(), tmp_path)
    said, peak, seconds = measured(LOADED, str(tmp_path))
    assert said == "342"
    assert peak < 160e6
    assert seconds < 2
