"""``suffix`` and ``echo`` of completions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import openai
import pytest
import tiny_bundles
import tiny_tokenizers
from serving import CONTEXT, Server, serving
from tiny_checkpoints import scripted_checkpoint
from tokenizers import AddedToken, Tokenizer

from edgedec.export import ExportOptions
from edgedec.serve import prompts
from edgedec.text import tokenizer as text

BEFORE, AFTER = "def add(left, right): ", "\n    return total\n"
BETWEEN = "total = left + right"
MARKS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")


def infilling(folder: Path) -> Path:
    """A model that has learnt what to write at the end of a prompt for infilling."""
    entries = {"eos_token": "<|end|>"}
    scripted_checkpoint(folder, [MARKS[2], BETWEEN], context=CONTEXT, entries=entries)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken(mark, special=False) for mark in MARKS[:2]])
    tiny_tokenizers.save(tokenizer, folder)
    return folder


@pytest.fixture(scope="module")
def coder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("coder")
    target = infilling(folder / "target")
    options = ExportOptions(target, folder / "tiny", weights="fp32", parity=False)
    with serving(tiny_bundles.kept(options), "--threads", "1", "--drafter", "lookup") as server:
        yield server


def completed(server: Server, prompt: Any, stream: bool = False, **more: Any) -> list[str]:
    """The texts of a completion."""
    given: Any = {"model": "tiny", "prompt": prompt, "max_tokens": 12, "temperature": 0, **more}
    create = server.client().completions.create
    if not stream:
        return [choice.text for choice in create(**given).choices]
    texts: dict[int, str] = {}
    for chunk in create(**given, stream=True):
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + choice.text
    return [texts[place] for place in sorted(texts)]


@pytest.mark.parametrize("stream", [False, True])
def test_a_suffix_asks_for_the_text_between(coder: Server, stream: bool) -> None:
    assert completed(coder, BEFORE, stream, suffix=AFTER) == [BETWEEN]
    assert completed(coder, [BEFORE, "x"], stream, suffix=AFTER) == [BETWEEN] * 2
    for nothing in ("", None):
        assert completed(coder, BEFORE, stream, suffix=nothing) != [BETWEEN]


def test_the_model_reads_both_sides(coder: Server) -> None:
    used = coder.client().completions.create(model="tiny", prompt=BEFORE, suffix=AFTER).usage
    prompt = MARKS[0] + BEFORE + MARKS[1] + AFTER + MARKS[2]
    assert used.prompt_tokens == coder.post("/tokenize", {"prompt": prompt}).json()["count"]
    assert used.prompt_tokens > coder.post("/tokenize", {"prompt": BEFORE}).json()["count"] + 3


def test_ollamas_suffix_is_the_same(coder: Server) -> None:
    body = {
        "model": "tiny",
        "prompt": BEFORE,
        "suffix": AFTER,
        "stream": False,
        "options": {"temperature": 0},
    }
    assert coder.post("/api/generate", body).json()["response"] == BETWEEN
    assert "insert" in coder.post("/api/show", {"model": "tiny"}).json()["capabilities"]


def test_a_model_without_such_tokens_refuses(server: Server) -> None:
    with pytest.raises(openai.BadRequestError, match="no fill-in-the-middle tokens: leave") as one:
        completed(server, BEFORE, suffix=AFTER)
    assert one.value.param == "suffix"
    assert "insert" not in server.post("/api/show", {"model": "tiny"}).json()["capabilities"]


def test_tokens_have_no_suffix(coder: Server) -> None:
    with pytest.raises(openai.BadRequestError, match="suffix: expected a prompt that is a text"):
        completed(coder, [5, 6], suffix=AFTER)


@pytest.mark.parametrize(
    "marks", [MARKS, ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
              ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>")],  # noqa: RUF001
)  # fmt: skip
def test_the_spellings_of_the_models_that_have_them(marks: Sequence[str]) -> None:
    def known(names: Sequence[str]) -> text.Tokenizer:
        backend = Tokenizer.from_str(tiny_tokenizers.byte_level().to_str())
        backend.add_tokens([AddedToken(name, special=True) for name in names])
        return text.Tokenizer(backend, {})

    tokenizer = known(marks)
    assert prompts.infill_marks(tokenizer) == tuple(marks)
    read = prompts.Prompts(tokenizer, CONTEXT).infill("one", "two")
    assert read == tokenizer.encode(f"{marks[0]}one{marks[1]}two{marks[2]}")
    for missing in range(3):  # the control
        assert prompts.infill_marks(known([*marks[:missing], *marks[missing + 1 :]])) is None


@pytest.mark.parametrize("stream", [False, True])
def test_echo_gives_the_prompt_back(server: Server, stream: bool) -> None:
    tokens = server.post("/tokenize", {"prompt": BEFORE}).json()["tokens"]
    (plain,) = completed(server, BEFORE, stream)
    for prompt in (BEFORE, tokens, [BEFORE], [tokens]):
        assert completed(server, prompt, stream, echo=True) == [BEFORE + plain]
        assert completed(server, prompt, stream, echo=False) == [plain]
    several = completed(server, [BEFORE, "x"], stream, echo=True, n=2)
    assert [one[: len(BEFORE)] for one in several[:2]] == [BEFORE] * 2
    assert [one[0] for one in several[2:]] == ["x"] * 2


@pytest.mark.parametrize("stream", [False, True])
def test_echo_of_a_text_that_ends_at_once(coder: Server, stream: bool) -> None:
    prompt = BEFORE + BETWEEN
    assert completed(coder, prompt, stream) == [""]
    assert completed(coder, prompt, stream, echo=True) == [prompt]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"echo": "yes"}, "echo: expected true or false"),
        ({"echo": True, "logprobs": 1}, "no log probabilities here"),
        ({"echo": True, "prompt": [1 << 70]}, "expected the model's token ids"),
        ({"echo": True, "prompt": [-1]}, "expected the model's token ids"),
        ({"suffix": 3}, "suffix: expected a text"),
    ],
)
def test_wrong_ones_are_refused(server: Server, change: dict[str, Any], message: str) -> None:
    answer = server.post("/v1/completions", {"model": "tiny", "prompt": "x", **change})
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]
