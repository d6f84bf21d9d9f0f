# SPDX-License-Identifier: Apache-2.0
"""The corpus of the demo pair: Python's standard library, and packages installed beside it.

Both are those of the running interpreter. Only modules of the standard library are held out: a
package is read for variety, since a model of this size learns the library by heart in a few
rounds, and its modules that repeat held-out ones are left out. The text itself is never stored in
the repository; only the list of held-out files is, so that anyone can rebuild the same split and
measure on text the models never saw.
"""

from __future__ import annotations

import hashlib
import sysconfig
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

Tokens = NDArray[np.uint16]

END_OF_TEXT, SYSTEM, USER, ASSISTANT, END = SPECIAL_TOKENS = (
    "<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>",
)  # fmt: skip
VOCAB_SIZE, OTHER_VOCAB_SIZE = 4096, 2048  # of the pair; of the draft with its own tokenizer
HELD_OUT_PER_MILLE = 40
LARGEST_FILE = 400_000  # bytes; longer modules are tables
SMALLEST_FILE = 200
LIBRARY_EPOCHS, TEST_EPOCHS = 2.0, 0.7  # relative weights: tests repeat themselves more
# What the recipe's environment has, under BSD, MIT and Apache licences for the most part.
PACKAGES = (
    "click", "fsspec", "huggingface_hub", "jinja2", "networkx", "numpy", "rich", "sympy", "torch",
    "transformers",
)  # fmt: skip
PACKAGE_SHARE = 0.5  # of the windows
LARGEST_PACKAGE = 16_000_000  # characters; of a larger one some files, by their names
TELLING_LINE = 40  # characters: a shorter line is in many modules
COPIED = 0.05  # of a module's telling lines stand in held-out ones: it is a copy

SKIPPED_FOLDERS = {"site-packages", "__pycache__", "encodings", "pydoc_data", "encoded_modules"}
# Tables rather than code, or (the sysconfig data) full of one machine's paths.
SKIPPED_PREFIXES = (
    "_sysconfigdata", "config-", "lib2to3/tests/data", "html/entities.py", "msilib/",
    "stringprep.py", "sre_constants.py", "test/bad", "_build_config",
)  # fmt: skip

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)


@dataclass(frozen=True)
class Document:
    """One source file; `path` is relative to its root, with forward slashes."""

    path: str
    text: str

    @property
    def is_test(self) -> bool:
        folders = self.path.split("/")[:-1]
        return any(name in {"test", "tests", "idle_test"} for name in folders)

    @property
    def is_held_out(self) -> bool:
        """A function of the path alone, so the split never depends on listing order."""
        digest = hashlib.sha256(self.path.encode()).digest()
        return not self.is_test and int.from_bytes(digest[:4], "big") % 1000 < HELD_OUT_PER_MILLE


@dataclass(frozen=True)
class Corpus:
    """Token streams, each document followed by <|endoftext|>."""

    library: Tokens
    tests: Tokens
    packages: Tokens
    held_out: Tokens


def read_documents(root: Path | None = None) -> list[Document]:
    """Every usable module under `root` (default: the interpreter's own library), by path."""
    root = root or Path(sysconfig.get_path("stdlib"))
    documents = []
    for file in sorted(root.rglob("*.py")):
        path = file.relative_to(root).as_posix()
        if not _is_skipped(path) and SMALLEST_FILE <= file.stat().st_size <= LARGEST_FILE:
            text = _source_text(file)
            if text is not None and not _is_table(text):
                documents.append(Document(path, text))
    return documents


def read_packages(held_out: list[Document]) -> list[Document]:
    """Modules of the installed packages; a package that is not there is left out."""
    known = {line for document in held_out for line in _telling_lines(document)}
    documents = []
    for name in PACKAGES:
        found = find_spec(name)
        if found is None or found.origin is None:
            continue
        own = [
            document
            for document in read_documents(Path(found.origin).parent)
            if not document.is_test and not _is_copy(document, known)
        ]
        share = LARGEST_PACKAGE / max(1, sum(len(document.text) for document in own))
        documents += [document for document in own if _place(document.path) < share]
    return documents


def _telling_lines(document: Document) -> set[str]:
    lines = (line.strip() for line in document.text.splitlines())
    return {line for line in lines if len(line) >= TELLING_LINE}


def _is_copy(document: Document, known: set[str]) -> bool:
    lines = _telling_lines(document)
    return len(lines & known) > COPIED * len(lines)


def _place(path: str) -> float:
    """A number in [0, 1) that depends on the name alone."""
    return int.from_bytes(hashlib.sha256(path.encode()).digest()[:4], "big") / 2**32


def _is_skipped(path: str) -> bool:
    return path.startswith(SKIPPED_PREFIXES) or bool(SKIPPED_FOLDERS & set(path.split("/")))


def _source_text(file: Path) -> str | None:
    try:
        return file.read_bytes().decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError:  # codec tests are written in other encodings on purpose
        return None


def _is_table(text: str) -> bool:
    digits = sum(character.isdigit() for character in text)
    foreign = sum(character > "\x7f" for character in text)
    return digits > 0.2 * len(text) or foreign > 0.05 * len(text)


def train_tokenizer(documents: list[Document], vocab_size: int = VOCAB_SIZE) -> Tokenizer:
    """Byte-level BPE with GPT-2's pre-tokenizer, `vocab_size` tokens, no automatic BOS."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((d.text for d in documents if not d.is_held_out), trainer)
    if tokenizer.get_vocab_size() != vocab_size:
        raise ValueError(f"expected {vocab_size} tokens, got {tokenizer.get_vocab_size()}")
    return tokenizer


def tokenizer_config() -> dict[str, object]:
    """Return the tokenizer_config.json that transformers needs."""
    added = {
        str(index): {
            "content": token, "lstrip": False, "normalized": False, "rstrip": False,
            "single_word": False, "special": True,
        }
        for index, token in enumerate(SPECIAL_TOKENS)
    }  # fmt: skip
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "added_tokens_decoder": added,
        "additional_special_tokens": list(SPECIAL_TOKENS[1:]),
        "eos_token": END_OF_TEXT,
        "pad_token": END_OF_TEXT,
        "add_bos_token": False,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 8192,
        "chat_template": CHAT_TEMPLATE,
    }


def encode(documents: list[Document], packages: list[Document], tokenizer: Tokenizer) -> Corpus:
    """Documents of the library and of packages -> streams of token ids."""

    def stream(chosen: list[Document]) -> Tokens:
        end = tokenizer.token_to_id(END_OF_TEXT)
        encodings = tokenizer.encode_batch([d.text for d in chosen])
        rows = [[*encoding.ids, end] for encoding in encodings]
        return np.concatenate([np.array(row, dtype=np.uint16) for row in rows])

    held_out = [d for d in documents if d.is_held_out]
    trained = [d for d in documents if not d.is_held_out]
    return Corpus(
        library=stream([d for d in trained if not d.is_test]),
        tests=stream([d for d in trained if d.is_test]),
        packages=stream(packages),
        held_out=stream(held_out),
    )


class Crops:
    """Random windows of the training streams; a window may start anywhere in a file."""

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer, *, chat_share: float) -> None:
        self._corpus = corpus
        self._chat_share = chat_share
        library, tests = LIBRARY_EPOCHS * corpus.library.size, TEST_EPOCHS * corpus.tests.size
        self._library_share = library / (library + tests)
        self._chat_open = tokenizer.encode(f"{USER}\n").ids
        self._chat_turn = tokenizer.encode(f"{END}\n{ASSISTANT}\n").ids
        self._chat_close = tokenizer.encode(f"{END}\n").ids

    def draw(self, rng: np.random.Generator, rows: int, length: int) -> NDArray[np.int64]:
        """Token ids, [rows, length]."""
        return np.stack([self._row(rng, length) for _ in range(rows)])

    def _row(self, rng: np.random.Generator, length: int) -> NDArray[np.int64]:
        stream = self._corpus.packages
        if rng.random() >= PACKAGE_SHARE:
            in_library = rng.random() < self._library_share
            stream = self._corpus.library if in_library else self._corpus.tests
        start = int(rng.integers(0, stream.size - length))
        row = stream[start : start + length].astype(np.int64)
        return self._as_chat(rng, row) if rng.random() < self._chat_share else row

    def _as_chat(self, rng: np.random.Generator, row: NDArray[np.int64]) -> NDArray[np.int64]:
        """The user shows some code and the assistant continues it.

        Without these rows the chat tokens would keep their random embeddings and a chat
        prompt would derail the model.
        """
        turn = int(rng.integers(8, row.size // 2))
        close = int(rng.integers(turn + 8, row.size))
        parts = (self._chat_open, row[:turn], self._chat_turn, row[turn:close], self._chat_close)
        joined = np.concatenate([np.asarray(part, dtype=np.int64) for part in parts])
        return np.concatenate([joined, row])[: row.size]
