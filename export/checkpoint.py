"""Reads a Hugging Face checkpoint folder lazily, with consistency checks."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Protocol

import numpy as np

from edgedec._support.files import read_regular
from edgedec._support.model_path import (
    how_to_fetch,
    is_gguf,
    is_hub_name,
    part_of_model,
)
from edgedec._support.ready_path import ready_graphs
from edgedec.bundle.manifest import MANIFEST
from edgedec.errors import CheckpointError, UnsupportedArchitecture
from edgedec.export import links
from edgedec.export.safetensors import SafetensorsFile
from edgedec.export.tensors import CanonicalTensors, FloatArray, TensorReader
from edgedec.models.decoder import DecoderSpec
from edgedec.models.heads import is_head
from edgedec.models.registry import spec_for
from edgedec.models.sources import CANONICAL
from edgedec.text import ends
from edgedec.text.tokenizer import CONFIG, TOKENIZER, Tokenizer
from edgedec.text.tokenizer_files import SPECIAL_MAP

MAX_JSON_BYTES = 64 << 20
_OWN_HEAD = (
    "config.json ties the head to the embedding, and the files hold a head with other values:"
    " lm_head is used as they hold it"
)
# Tensors that a decoder of text does without: tables that follow from config.json, masks, what
# reads images and sound, and layers that predict further tokens.
_KNOWN = re.compile(
    r"rotary_(pos_)?emb\.|(attn|attention)\.(masked_)?bias$"
    r"|(^|\.)(embed_)?(vision|visual|multi_modal|audio|image)|(^|\.)mtp|\.nextn"
)
_NAMED, _BLOCK = 4, 1 << 22


@dataclass(frozen=True)
class Checkpoint:
    """A decoder's configuration, weights and tokenizer: a Hugging Face folder, or a GGUF file.

    Attributes:
        generation: its ``generation_config.json``, empty when there is none.
        spec: the decoder it describes.
        texts: the folder with its tokenizer and chat template; a folder's own.
        rounded: the type of weights that are quantised already; empty for others.
        notes: what of its files is used in another way than they say, or not at all; one line each.

    """

    path: Path
    config: Mapping[str, Any]
    generation: Mapping[str, Any]
    spec: DecoderSpec
    tensors: SourceTensors
    texts: Path
    rounded: str = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def open(
        cls, path: str | Path, outline: Callable[[Path], DecoderSpec] | None = None
    ) -> Checkpoint:
        """Read the configuration and the headers; no weights yet.

        Args:
            outline: returns the sizes of a decoder without a spec, whose tensors will not be
                read; None if a spec is required.

        Raises:
            CheckpointError: something is missing or inconsistent, or a link leads outside.
            UnsupportedArchitecture: no spec for its ``model_type``.

        """
        path = Path(path)
        _check_folder(path)
        links.check(path)
        _refuse_others(path)
        config = read_json(path / "config.json")
        if is_head(config):
            raise CheckpointError(
                f"{path} is a head, which drafts for its target:"
                f" edgedec export TARGET --head {path}"
            )
        notes: list[str] = []
        tensors: SourceTensors
        try:
            spec, tensors, notes = _read(path, spec_for(config))
        except UnsupportedArchitecture as error:
            if outline is None:
                raise UnsupportedArchitecture(
                    f"{error}; `edgedec export {shlex.quote(str(path))} --out DIR --exporter"
                    " optimum` may convert it"
                ) from None
            spec, tensors = outline(path), UnreadTensors(path)
        generation = path / "generation_config.json"
        return cls(
            path=path,
            config=config,
            generation=read_json(generation) if generation.exists() else {},
            spec=spec,
            tensors=tensors,
            texts=path,
            notes=tuple(notes),
        )

    @property
    def name(self) -> str:
        """The name of the folder, or of the file without its ending."""
        if is_gguf(self.path):
            return self.path.stem
        return Path(os.path.abspath(self.path)).name  # noqa: PTH100 - a link keeps its name

    @property
    def files(self) -> list[Path]:
        """Files that the model is made from, sorted by name."""
        if is_gguf(self.path):
            return [self.path.with_name(name) for name in sorted(self.tensors.files)]
        names = {"config.json", "tokenizer.json", *self.tensors.files}
        return [self.path / name for name in sorted(names)]

    @functools.cached_property
    def eos_ids(self) -> tuple[int, ...]:
        """Tokens that end a text: all that the files name (``edgedec.text.ends``).

        Those of generation_config.json come first, or of config.json where it names none.
        """
        return eos_ids(self.path, self.texts, self.config, self.generation, self.spec.vocab_used)

    @property
    def mask_token(self) -> int | None:
        """The token that a parallel draft reads for one not known yet (PARD); None for others."""
        token = self.config.get("pard_token")
        if token is None or (type(token) is int and 0 <= token < self.spec.vocab_size):
            return token
        raise CheckpointError(
            f"{self.path}: pard_token {token!r} in config.json is not a token, expected a number"
            f" from 0 to {self.spec.vocab_size - 1}"
        )

    @property
    def licence(self) -> str | None:
        """Return the licence stated in config.json or at the head of README.md."""
        return stated_licence(self.path, self.config)


def eos_ids(
    path: Path,
    texts: Path,
    config: Mapping[str, Any],
    generation: Mapping[str, Any],
    vocab_used: int,
) -> tuple[int, ...]:
    """Return the tokens that end a text; see ``Checkpoint.eos_ids``."""
    of_config, ids = ends.stated(config), ends.stated(generation)
    first = ids or of_config
    if not all(type(i) is int and 0 <= i < vocab_used for i in first):
        raise CheckpointError(f"{path}: eos_token_id {first!r} is not a token")
    more = []
    if (texts / TOKENIZER).exists():
        files = [texts / name for name in (CONFIG, SPECIAL_MAP)]
        naming = [read_json(file) for file in files if file.exists()]
        more = ends.more_ends(Tokenizer.load(texts), naming, of_config)
    return tuple(dict.fromkeys([*first, *(i for i in more if i < vocab_used)]))


def stated_licence(path: Path, config: Mapping[str, Any]) -> str | None:
    """Return the licence that a folder's config.json states, or the head of its README.md."""
    stated = config.get("license")
    return stated if isinstance(stated, str) else of_card(path, "license")


def of_card(path: Path, name: str) -> str | None:
    """Return what the head of a folder's README.md states under a name, or None."""
    card = path / "README.md"
    if card.is_file():
        with card.open(encoding="utf-8", errors="replace") as stream:
            head = stream.read(4096)
        for line in head.splitlines():
            if line.startswith(f"{name}:"):
                return line.partition(":")[2].strip() or None
    return None


def _refuse_others(path: Path) -> None:
    """Refuse a bundle, which has no config.json."""
    if (path / MANIFEST).exists() and not (path / "config.json").exists():
        raise CheckpointError(
            f"{path} is a bundle already: give the checkpoint's folder that it was made from"
        )


class SourceTensors(TensorReader, Protocol):
    """The canonical tensors of a model that is exported.

    Attributes:
        files: names of the files that hold them.
        dtypes: types of the stored matrices, as their format calls them.

    """

    files: frozenset[str]
    dtypes: frozenset[str]


class CheckpointTensors:
    """The canonical tensors of a spec, from one safetensors file or from shards.

    Attributes:
        files: names of the files that hold them.
        dtypes: types of the stored matrices, as safetensors calls them.

    Raises:
        CheckpointError: immediately for a missing tensor or a wrong shape, and when a row that
            is read contains NaN or infinity.

    """

    def __init__(self, folder: Path, spec: DecoderSpec) -> None:
        self._stored = stored = _Stored(folder, spec)
        self.files = stored.files
        self.dtypes = stored.dtypes
        self._canonical = CanonicalTensors(stored, spec.tensors(), spec.origins())

    def has_own_head(self) -> bool:
        """Return whether the files hold a head with other values than the embedding."""
        return self._stored.has_own_head()

    def unused(self) -> list[str]:
        """Return a line that names tensors which no export reads, known kinds aside, or none."""
        return not_used(self._stored.unused())

    def shape(self, name: str) -> tuple[int, ...]:
        return self._canonical.shape(name)

    def rows(self, name: str, start: int, stop: int) -> FloatArray:
        values = self._canonical.rows(name, start, stop)
        check_finite(name, values)
        return values


def _read(path: Path, spec: DecoderSpec) -> tuple[DecoderSpec, CheckpointTensors, list[str]]:
    """Return a checkpoint's decoder as its files have it, its tensors, and notes for the user."""
    tensors, notes = CheckpointTensors(path, spec), []
    if spec.tied and tensors.has_own_head():
        spec = dataclasses.replace(spec, tied=False)
        tensors = CheckpointTensors(path, spec)
        notes.append(_OWN_HEAD)
    if any(rope is not None and rope.kind == "dynamic" for rope in spec.ropes):
        notes.append(
            f"its dynamic scaling of positions begins beyond {spec.max_context} tokens, with"
            " angles that change as a text grows: such texts are refused"
        )
    return spec, tensors, [*notes, *tensors.unused()]


def not_used(names: Sequence[str]) -> list[str]:
    """Return a line that names tensors which are in the files and not read, or none."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return [f"not used: {', '.join(names[:_NAMED])}{more}"] if names else []


def check_finite(name: str, values: FloatArray) -> None:
    """Raise CheckpointError for weights that are not finite."""
    # A sum is finite only if all its terms are, and needs no array of booleans. It may overflow
    # although every term is finite; only then is each term checked.
    with np.errstate(over="ignore", invalid="ignore"):
        suspicious = not math.isfinite(float(values.sum()))
    if suspicious and not np.isfinite(values).all():
        raise CheckpointError(f"{name} contains NaN or infinite weights and is not exported")


class UnreadTensors(CheckpointTensors):
    """The files of a checkpoint without a spec, whose tensors' roles are unknown."""

    def __init__(self, folder: Path) -> None:
        self.files = frozenset(file.path.name for file in locate(folder).values())
        self.dtypes = frozenset()

    def shape(self, name: str) -> tuple[int, ...]:
        raise UnsupportedArchitecture(f"{name}: the checkpoint's architecture is unknown")

    def rows(self, name: str, start: int, stop: int) -> FloatArray:
        raise UnsupportedArchitecture(f"{name}: the checkpoint's architecture is unknown")


def stored_numbers(folder: Path) -> int:
    """Return the number of values in all tensors of a checkpoint, from their headers."""
    return sum(math.prod(file.shape(name)) for name, file in locate(folder).items())


class _Stored:
    """The tensors of the files, under the names that the spec uses."""

    def __init__(self, folder: Path, spec: DecoderSpec) -> None:
        self._where, self._spec = locate(folder), spec
        # Multimodal checkpoints and bare decoders use other prefixes.
        self._ours, embed = spec.prefixes[0], spec.origins()[spec.name("embed")].name
        found = [p for p in spec.prefixes if p + embed.removeprefix(self._ours) in self._where]
        self._theirs = found[0] if found else self._ours
        for name, shape in spec.stored():
            if self._name(name) not in self._where:
                raise CheckpointError(
                    f"{folder} has no tensor {name}, which {spec.architecture} needs"
                )
            if self.shape(name) != shape:
                raise CheckpointError(
                    f"{folder}: {name} is {list(self.shape(name))}, config.json says {list(shape)}"
                )

    def has_own_head(self) -> bool:
        """See ``CheckpointTensors``; of a spec whose head is tied."""
        names = [self._name(origin.name) for origin in (
            self._spec.origins()[self._spec.name("embed")],
            dataclasses.replace(self._spec, tied=False).origins()[CANONICAL["head"]],
        )]  # fmt: skip
        embed, head = (self._where.get(name) for name in names)
        if embed is None or head is None or embed.shape(names[0]) != head.shape(names[1]):
            return False
        rows, columns = embed.shape(names[0])
        step = max(1, _BLOCK // columns)
        return any(
            not np.array_equal(
                embed.rows(names[0], start, min(start + step, rows)),
                head.rows(names[1], start, min(start + step, rows)),
            )
            for start in range(0, rows, step)
        )

    def unused(self) -> list[str]:
        """Return the tensors that no spec reads, without known kinds, by name."""
        spec = self._spec
        used = {self._name(name) for name, _ in spec.stored()}
        # Files may hold keys and values of layers that read those of other layers.
        borrowing = (layer for layer in spec.attending if layer not in spec.caching)
        spare = (spec.name(role, layer) for layer in borrowing for role in ("k", "v", "k_norm"))
        used |= {self._name(name) for name in spare}
        if self._spec.tied:  # the same values as the embedding's
            used |= {name for name in self._where if name.endswith(CANONICAL["head"])}
        return sorted(name for name in self._where.keys() - used if not _KNOWN.search(name))

    @property
    def files(self) -> frozenset[str]:
        """Return the names of the files that contain them."""
        return frozenset(file.path.name for file in self._where.values())

    @property
    def dtypes(self) -> frozenset[str]:
        """Types of the stored matrices, as safetensors calls them."""
        return frozenset(
            file.dtype(name) for name, file in self._where.items() if len(file.shape(name)) > 1
        )

    def shape(self, name: str) -> tuple[int, ...]:
        name = self._name(name)
        return self._where[name].shape(name)

    def rows(self, name: str, start: int, stop: int) -> FloatArray:
        name = self._name(name)
        return self._where[name].rows(name, start, stop).astype(np.float32)

    def _name(self, name: str) -> str:
        if name.startswith(self._ours):
            return self._theirs + name[len(self._ours) :]
        return name


def _check_folder(path: Path) -> None:
    if is_hub_name(str(path)):
        raise CheckpointError(how_to_fetch(str(path), "`edgedec export {} --out DIR`"))
    if part := part_of_model(path):
        raise CheckpointError(part)
    if not path.is_dir():
        raise CheckpointError(f"{path} is not a folder: give a Hugging Face checkpoint folder")


def read_json(file: Path) -> dict[str, Any]:
    """Return a JSON object from a file of bounded size."""
    try:
        data = read_regular(file, MAX_JSON_BYTES)
    except OSError as error:
        raise CheckpointError(
            f"{file} cannot be read: {error.strerror}; give a complete Hugging Face folder"
        ) from None
    if data is None:
        raise CheckpointError(f"{file} is larger than {MAX_JSON_BYTES >> 20} MiB")
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise CheckpointError(f"{file} is not a JSON object: download or copy it again")
    return parsed


def locate(folder: Path) -> dict[str, SafetensorsFile]:
    """Return the file of each tensor."""
    index = folder / "model.safetensors.index.json"
    single = folder / "model.safetensors"
    if single.exists() or not index.exists():
        if not single.exists() and ready_graphs(folder):
            raise CheckpointError(
                f"{folder} holds an ONNX model, which `edgedec run {folder}` opens as it is: export"
                " its original checkpoint"
            )
        if not single.exists():
            raise CheckpointError(
                f"{folder} has no model.safetensors (nor an index of shards): convert it first"
            )
        file = SafetensorsFile(single)
        return dict.fromkeys(file.names, file)
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict):
        raise CheckpointError(f"{index} has no weight_map")
    shards: dict[str, SafetensorsFile] = {}
    where = {}
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or PurePath(shard).name != shard or shard in ("", ".", ".."):
            raise CheckpointError(f"{index}: {shard!r} is not a file in this folder")
        if shard not in shards:
            shards[shard] = SafetensorsFile(folder / shard)
        if name not in shards[shard].names:
            raise CheckpointError(
                f"{folder / shard} has no tensor {name}, although the index lists it"
            )
        where[name] = shards[shard]
    return where
