"""The vectors of tokenizers: edgedec still gives them, and what is broken would be noticed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tokenizers

from edgedec.text.detokenize import Scheme
from tools.vectors import files, small_tokenizers, strings, tokens

KINDS = sorted(tokens.places())


def test_tokenizers_are_trained_alike() -> None:
    """By the version of the library that wrote the files; others may train otherwise."""
    made = small_tokenizers.make()
    assert set(made) == set(KINDS) - {"demo"}
    if tokenizers.__version__ == files.read("tokens.json")["made_with"]["tokenizers"]:
        for name, text in made.items():
            assert files.difference(f"tokenizers/{name}.json", text) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_tokens(kind: str) -> None:
    found = files.read("tokens.json")
    tokenizer = tokens.load(kind, found["tokenizers"][kind])
    cases = [case for case in found["cases"] if case["tokenizer"] == kind]
    assert len(cases) > 80
    for case in cases:
        made = tokens.case(
            kind, tokenizer, case["text"], add_special_tokens=case["add_special_tokens"]
        )
        assert made == case
        assert "".join(case["pieces"]) == case["decoded"]
    for case in found["decodes"]:
        if case["tokenizer"] == kind:
            assert tokens.decode(kind, tokenizer, case["ids"], case["prompt"]) == case


def test_the_texts_are_of_all_kinds() -> None:
    assert strings.planes() == {0, 1, 2, 3, 14, 15, 16}
    assert len(strings.categories()) >= 26


@pytest.mark.parametrize("kind", KINDS)
def test_another_tokenizer_is_noticed(kind: str) -> None:
    """Every one differs from every other in some case of its own."""
    found = files.read("tokens.json")
    cases = [case for case in found["cases"] if case["tokenizer"] == kind]
    for other in set(KINDS) - {kind}:
        tokenizer = tokens.load(other, found["tokenizers"][other])
        assert any(tokenizer.encode(case["text"]) != case["ids"] for case in cases)


def _changed_files(kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a tokenizer's file with one part of it missing or another."""

    def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        parsed = json.loads((files.FOLDER / tokens.places()[kind]).read_text("utf-8"))
        change(parsed)
        return parsed

    if kind == "llama3":
        yield "merges first", changed(lambda p: p["model"].update(ignore_merges=False))
        yield "digits one by one", changed(
            lambda p: p["pre_tokenizer"]["pretokenizers"][0]["pattern"].update(
                Regex=small_tokenizers.QWEN_SPLIT))  # fmt: skip
    if kind == "qwen":
        yield "no NFC", changed(lambda p: p.update(normalizer=None))
    if kind == "gpt2":
        yield "no added tokens", changed(lambda p: p.update(added_tokens=p["added_tokens"][:1]))
    if kind == "llama2":
        yield "no byte tokens", changed(lambda p: p["model"].update(byte_fallback=False))
        yield "no BOS", changed(lambda p: p.update(post_processor=None))
    if kind == "added":
        for token in range(1, 4):
            kept = {"lstrip": False, "rstrip": False}
            yield (
                f"white space stays at {token}",
                changed(lambda p, at=token, kept=kept: p["added_tokens"][at].update(kept)),
            )


@pytest.mark.parametrize("kind", ["added", "gpt2", "llama2", "llama3", "qwen"])
def test_a_part_that_is_ignored_is_noticed(kind: str) -> None:
    cases = [case for case in files.read("tokens.json")["cases"] if case["tokenizer"] == kind]
    for name, parsed in _changed_files(kind):
        backend = tokenizers.Tokenizer.from_str(json.dumps(parsed))
        wrong = [
            case
            for case in cases
            if backend.encode(case["text"], add_special_tokens=case["add_special_tokens"]).ids
            != case["ids"]
        ]
        assert wrong, name


def test_pieces_without_the_space_of_a_prompt_are_noticed(monkeypatch) -> None:
    found = files.read("tokens.json")
    joiner = Scheme.joiner
    monkeypatch.setattr(Scheme, "joiner", lambda self, continued: joiner(self, continued=False))
    tokenizer = tokens.load("llama2", found["tokenizers"]["llama2"])
    cases = [case for case in found["decodes"] if case["tokenizer"] == "llama2"]
    assert any(tokens.decode("llama2", tokenizer, c["ids"], c["prompt"]) != c for c in cases)
