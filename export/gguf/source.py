"""Opens a GGUF file as a checkpoint: what an export reads of a Hugging Face folder."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from edgedec._support.model_path import utf8
from edgedec.export.checkpoint import Checkpoint
from edgedec.export.gguf.file import ModelFile
from edgedec.export.gguf.reading import GgufTensors, decoder_of
from edgedec.gguf.header import GgufHeader
from edgedec.gguf.sampling import stated_sampling
from edgedec.gguf.tokenizer import load_tokenizer
from edgedec.gguf.vocabulary import UNUSED, end_ids
from edgedec.text.tokenizer import CONFIG, TEMPLATE, TOKENIZER

# What converters call a row of the embedding that is no token.
_PADDING = re.compile(r"\[PAD\d+\]")
_WHOLE = frozenset({"F32", "F16", "BF16"})
_PER_TOKEN = ("tokens", "token_type", "scores")


def open_file(path: Path) -> Checkpoint:
    """Return a GGUF file as a checkpoint.

    Its tokenizer is written to a scratch folder, which is there as long as the checkpoint is.

    Raises:
        BundleError: it is damaged, or its tokenizer is.
        UnsupportedArchitecture: its decoder cannot be read back.
        CheckpointError: its decoder is damaged.

    """
    file = ModelFile(path)
    spec, architecture = decoder_of(file)
    header = _without_padding(file.header)
    if (header.vocab_size or 0) > spec.vocab_used:
        raise file.wrong(
            f"it has {header.vocab_size} tokens, and an embedding of {spec.vocab_used} rows: it is"
            " damaged"
        )
    tensors = GgufTensors(file, spec, architecture)
    texts = Path(tempfile.mkdtemp(prefix="edgedec-gguf-"))
    weakref.finalize(tensors, shutil.rmtree, texts, ignore_errors=True)
    _write_tokenizer(header, texts)
    config: dict[str, Any] = {"model_type": spec.architecture}
    if licence := header.text("general.license"):
        config["license"] = licence
    ends = [end for end in end_ids(header) if end < spec.vocab_used]
    return Checkpoint(
        path=path,
        config=config,
        generation={**stated_sampling(header.metadata), "eos_token_id": ends},
        spec=spec,
        tensors=tensors,
        texts=texts,
        rounded="" if tensors.dtypes <= _WHOLE else header.quantisation,
    )


def _without_padding(header: GgufHeader) -> GgufHeader:
    """Return a header without the rows after the last token."""
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    types = header.metadata.get("tokenizer.ggml.token_type")
    if not isinstance(tokens, list) or not isinstance(types, np.ndarray):
        return header
    if len(types) < (count := len(tokens)):  # which is refused where they are read
        return header
    while count and types[count - 1] == UNUSED and _PADDING.fullmatch(tokens[count - 1]):
        count -= 1
    metadata = dict(header.metadata)
    for name in _PER_TOKEN:
        if isinstance(listed := metadata.get(key := f"tokenizer.ggml.{name}"), list | np.ndarray):
            metadata[key] = listed[:count]
    return dataclasses.replace(header, metadata=metadata)


def _write_tokenizer(header: GgufHeader, folder: Path) -> None:
    tokenizer = load_tokenizer(header)
    tokenizer.backend.save(utf8(folder / TOKENIZER), pretty=False)
    named = {"bos_token": tokenizer.bos_id, "eos_token": tokenizer.eos_id}
    # llama.cpp assumes some where a file names none: those are text.
    config = {
        name: tokenizer.backend.id_to_token(id)
        for name, id in named.items()
        if id in tokenizer.special_ids
    }
    (folder / CONFIG).write_text(json.dumps(config), "utf-8")
    if template := header.text("tokenizer.chat_template"):
        (folder / TEMPLATE).write_text(template, "utf-8", newline="\n")
