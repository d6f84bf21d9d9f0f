"""Names of models as other programs write them: a hub's addresses, Ollama's names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgedec._support.model_path import hub_name, is_hub_name, ollama_name
from edgedec.library.reference import parse


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("hf.co/org/name", "org/name"),
        ("hf.co/org/name:Q4_K_M", "org/name:Q4_K_M"),
        ("huggingface.co/org/name", "org/name"),
        ("https://huggingface.co/org/name", "org/name"),
        ("https://huggingface.co/org/name/?library=transformers#use", "org/name"),
        (os.fspath(Path("https://huggingface.co/org/name")), "org/name"),
        ("https://huggingface.co/org/na.me-1B/tree/main", "org/na.me-1B"),
        ("https://huggingface.co/org/name/tree/v1", "org/name@v1"),
        ("https://huggingface.co/org/name/blob/main/config.json", "org/name"),
        ("https://huggingface.co/org/name/blob/main/a-Q8_0.gguf", "org/name:a-Q8_0.gguf"),
        ("https://huggingface.co/org/name/resolve/v1/b/a.gguf?download=true", "org/name@v1:a.gguf"),
    ],
)
def test_an_address_is_the_name_of_its_model(word: str, name: str) -> None:
    assert hub_name(word) == name
    assert parse(name) is not None
    assert is_hub_name(word) is not any(mark in name for mark in "@:")


@pytest.mark.parametrize(
    "word",
    [
        "org/name", "org/name:Q4_K_M", "demo", "", "hf.co/name", "hf.co", "my-hf.co/org/name",
        "https://huggingface.co/datasets/org/name", "https://example.org/org/name",
        "see https://huggingface.co/org/name",
    ],
)  # fmt: skip
def test_other_words_stay(word: str) -> None:
    assert hub_name(word) == word


def test_a_folder_of_this_name_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert hub_name("hf.co/org/name") == "org/name"
    (tmp_path / "hf.co" / "org" / "name").mkdir(parents=True)
    assert hub_name("hf.co/org/name") == "hf.co/org/name"
    (tmp_path / "llama3.2:1b").mkdir()
    assert ollama_name("llama3.2:1b") is None


@pytest.mark.parametrize("word", ["llama3.2:1b", "qwen3:0.6b-q8_0", "mistral:latest"])
def test_names_in_ollamas_form(word: str) -> None:
    line = ollama_name(word)
    assert line is not None
    assert line.startswith(f"{word} looks like a name of Ollama's library: give the model's name")


@pytest.mark.parametrize("word", ["llama3.2", "org/name:Q4_K_M", "a: b", "C:\\models", ":x", ""])
def test_other_names(word: str) -> None:
    assert ollama_name(word) is None
