# SPDX-License-Identifier: Apache-2.0
"""``python -m benchmarks.training STEP``: questions, answers, states, head, draft, parallel."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.training.answers import answer_all
from benchmarks.training.questions import questions, texts


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training", description="Train drafters for a published target."
    )
    parser.add_argument("step", choices=sorted(STEPS))
    parser.add_argument("--target", type=Path, help="checkpoint's folder (all but the first two)")
    parser.add_argument("--gguf", type=Path, help="the same target as a GGUF file (answers)")
    parser.add_argument("--work", type=Path, default=Path("build/training"))
    parser.add_argument("--count", type=int, default=6000, help="questions (6000)")
    parser.add_argument(
        "--held-out", type=Path, nargs="*", default=[], help="files of prompts never to ask"
    )
    parser.add_argument("--draft-vocab", type=int, default=8192, help="tokens drafted (8192)")
    parser.add_argument("--layers", type=int, default=6, help="of the draft (6)")
    parser.add_argument("--tokens", type=float, default=1e6, help="to train on, with repeats (1e6)")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def _questions(options: argparse.Namespace) -> None:
    held_out = "\n".join(file.read_text("utf-8") for file in options.held_out)
    made = questions(options.count, held_out)
    (options.work / "questions.json").write_text(json.dumps(made), "utf-8")
    unasked = texts(options.count // 2)
    (options.work / "texts.json").write_text(json.dumps(unasked), "utf-8")
    print(f"{len(made)} questions and {len(unasked)} texts")


def _answers(options: argparse.Namespace) -> None:
    asked = [(kind, text) for kind, text in json.loads(_text(options.work / "questions.json"))]
    model = _given(options.gguf, "--gguf")
    answer_all(model, asked, options.work / "answers.jsonl", threads=options.threads)


def _states(options: argparse.Namespace) -> None:
    from benchmarks.training import states

    folder = _given(options.target, "--target")
    target = states.load_target(folder)
    taps = states.middle_taps(target.dims.layers)
    for chats, out in _parts(options, folder):
        states.keep_states(target, chats, taps, out)


def _parts(options: argparse.Namespace, folder: Path) -> Iterator[tuple[list[Any], Path]]:
    """Yield the answers and the texts with the folders of their states."""
    from tokenizers import Tokenizer

    from benchmarks.training import states

    for name in ("answers.jsonl", "texts.json"):
        _text(options.work / name)
    yield states.read_chats(options.work / "answers.jsonl"), options.work / "states"
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    yield (
        states.text_chats(options.work / "texts.json", tokenizer),
        options.work / "states-of-texts",
    )


def _head(options: argparse.Namespace) -> None:
    _train(options, "head")


def _draft(options: argparse.Namespace) -> None:
    _train(options, "draft")


def _parallel(options: argparse.Namespace) -> None:
    _train(options, "parallel")


def _train(options: argparse.Namespace, which: str) -> None:
    from tokenizers import Tokenizer

    from benchmarks.training import draft, head, parallel, states

    folder = _given(options.target, "--target")
    target = states.load_target(folder)
    chats = head.Chats(*_parts(options, folder))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    kept = head.kept_once(chats.chats, tokenizer, options.draft_vocab, options.work)
    if which == "head":
        taps = states.middle_taps(target.dims.layers)
        found: object = head.train_head(target, chats, kept, taps, options.work, options.tokens)
    elif which == "parallel":
        found = parallel.train_parallel(target, chats, kept, options.work, options.tokens)
    else:
        found = draft.train_draft(
            target, chats, kept, folder, options.work, layers=options.layers, tokens=options.tokens
        )
    print(f"{which}: first choices that agree in held-out answers: {found}")


STEPS = {
    "questions": _questions,
    "answers": _answers,
    "states": _states,
    "head": _head,
    "draft": _draft,
    "parallel": _parallel,
}


def _given(path: Path | None, option: str) -> Path:
    if path is None:
        raise SystemExit(f"error: expected {option}")
    return path


def _text(file: Path) -> str:
    if not file.exists():
        raise SystemExit(f"error: {file} is missing: run the step before")
    return file.read_text("utf-8")


def main() -> None:
    options = arguments()
    options.work.mkdir(parents=True, exist_ok=True)
    if options.step in ("states", "head", "draft", "parallel"):
        import torch

        torch.set_num_threads(options.threads)
    STEPS[options.step](options)


if __name__ == "__main__":
    main()
