"""Tokenizers that nobody opened yet are tried in a child; what panics is an error of one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_tokenizers
from tokenizer_attacks import ATTACKS, backtracking
from tokenizers import Tokenizer as Backend
from tokenizers import models

from edgedec import text
from edgedec.errors import BundleError
from edgedec.text import Tokenizer, one_line_errors
from edgedec.vetted import cache_file


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cache_file("tokenizers")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The tasks that the child was given, in order."""
    found: list[Any] = []
    real: Callable[..., Any] = text.CHECKER.ask
    monkeypatch.setattr(text.CHECKER, "ask", lambda *of: [found.append(of), real(*of)][1])
    return found


def test_a_tokenizer_is_tried_once(tmp_path: Path, asked: list[Any], cache: Path) -> None:
    tiny_tokenizers.save(tiny_tokenizers.llama(), tmp_path)
    for _ in range(3):
        Tokenizer.load(tmp_path)
    assert len(asked) == 1
    assert len(json.loads(cache.read_bytes())["opened"]) == 1


def test_another_version_or_another_file_is_tried_again(
    tmp_path: Path, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_tokenizers.save(tiny_tokenizers.llama(), tmp_path)
    Tokenizer.load(tmp_path)
    monkeypatch.setattr(text, "CHECK_VERSION", 99)
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


def test_nothing_is_remembered_where_nothing_can_be_kept(
    tmp_path: Path, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    tiny_tokenizers.save(tiny_tokenizers.llama(), tmp_path)
    for _ in range(2):
        Tokenizer.load(tmp_path)
    assert len(asked) == 2


def test_a_panic_in_this_process_is_an_error_of_one_line() -> None:
    tokenizer = Tokenizer(Backend.from_str(backtracking()), {})
    with pytest.raises(BundleError, match="the tokenizer cannot encode this text: ") as error:
        tokenizer.encode("x" * 64)
    assert "\n" not in str(error.value)
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


LOADED = """
import json, resource, sys
from edgedec import text
from edgedec.errors import EdgedecError
try:
    said = str(text.Tokenizer.load(sys.argv[1]).vocab_size)
except EdgedecError as error:
    said = f"{type(error).__name__}: {error}"
text.CHECKER.close()
own, child = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
scale = 1 if sys.platform == "darwin" else 1024
print(json.dumps([said, (own.ru_maxrss + child.ru_maxrss) * scale,
                  sum(one.ru_utime + one.ru_stime for one in (own, child))]))
"""


def loaded(folder: Path) -> tuple[str, int, float]:
    """What is said, the peak of both processes in bytes, and their processor time in seconds."""
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", LOADED, str(folder)],
        check=True, capture_output=True, env={**os.environ, **paths}, timeout=120,
    )  # fmt: skip
    assert done.stderr == b""
    said, peak, seconds = json.loads(done.stdout)
    return said, peak, seconds


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux obeys RLIMIT_AS")
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_an_error_of_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "tokenizer.json").write_text(ATTACKS[name], "utf-8")
    said, peak, seconds = loaded(tmp_path)
    assert said.startswith("BundleError: ")
    assert "expected a Hugging Face tokenizer.json: " in said
    assert "\n" not in said
    assert peak <= 300e6
    assert seconds <= 2


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux obeys RLIMIT_AS")
def test_a_harmless_tokenizer_passes(tmp_path: Path) -> None:
    """The control: what is measured is not what every tokenizer takes or says."""
    tiny_tokenizers.save(tiny_tokenizers.byte_level(), tmp_path)
    said, peak, seconds = loaded(tmp_path)
    assert said == "342"
    assert peak < 160e6
    assert seconds < 2
