"""Chooses the files of a hub's repository that a model needs; none of them is code.

Weights come from safetensors, GGUF or ONNX alone: a pickle is never fetched.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgedec._support.ready_path import GENAI, GENAI_LABEL, first_graph, graphs_of
from edgedec.errors import InputError
from edgedec.library.records import BUNDLE, GGUF, Origin
from edgedec.library.reference import Reference

_WEIGHTS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors")
_BESIDE = (
    "config.json",
    "generation_config.json",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.json",
    "additional_chat_templates/tool_use.jinja",
    "additional_chat_templates/rag.jinja",
)
_MAX_BESIDE_BYTES = 128 << 20
# The most common quantisations, the most common first.
_USUAL = ("Q4_K_M", "Q4_0", "Q4_K_S", "Q5_K_M", "Q8_0")
_PART = re.compile(r"-(\d{5})-of-(\d{5})(?=\.gguf$)", re.IGNORECASE)
_OF = re.compile(r"-\d{5}-of-(\d{5})\.")
_PLAIN_PATH = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?")
_MAX_FILES = 10_000
_NAMED = 12


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file on the hub, as the hub describes it.

    Attributes:
        size_bytes: its length.
        sha256: of a large file.
        git_sha1: of a small one, as git computes it.

    """

    size_bytes: int
    sha256: str | None
    git_sha1: str | None


@dataclass(frozen=True, slots=True)
class Choice:
    """The files to fetch.

    Attributes:
        kind: ``bundle`` for a checkpoint that becomes one, or ``gguf``.
        names: of the files, the main one of a GGUF model first.
        label: distinguishes a GGUF file or a decoder in ONNX from the others of its repository;
            empty for a checkpoint.
        graph: the decoder in ONNX, which names files that are needed as well; empty for others.

    """

    kind: str
    names: tuple[str, ...]
    label: str = ""
    graph: str = ""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A model's files on this disk.

    Attributes:
        folder: of one revision of the repository.
        choice: which of its files were fetched.
        origin: where they came from.

    """

    folder: Path
    choice: Choice
    origin: Origin


def choose(reference: Reference, files: Mapping[str, RemoteFile], *, head: bool = False) -> Choice:
    """Return the files that a model needs, or a head, which has no tokenizer of its own.

    A checkpoint is preferred to GGUF files, and these to decoders in ONNX, unless one of these was
    asked for.

    Raises:
        InputError: no weights can be read, or the choice between several is ambiguous.

    """
    if len(files) > _MAX_FILES:
        raise InputError(f"{reference.repo} has {len(files)} files, expected {_MAX_FILES} at most")
    weights = [name for name in files if _WEIGHTS.fullmatch(name)]
    if weights and reference.which is None:
        needed = ("config.json",) if head else ("config.json", "tokenizer.json")
        return _checkpoint(reference, files, weights, needed)
    if head:
        raise InputError(
            f"{reference.repo} has no model.safetensors: other weights of a head are not read"
        )
    models = _gguf_models(name for name in files if _PLAIN_PATH.fullmatch(name))
    graphs = _graphs(files)
    if graphs and (not models or reference.which in graphs):
        return _ready(reference, files, graphs)
    if not models:
        asked = "" if reference.which is None else f" for :{reference.which}"
        kinds = "GGUF or ONNX files" if weights else "model.safetensors, GGUF or ONNX files"
        raise InputError(f"{reference.repo} has no {kinds}{asked}: other weights are not read")
    label = _label(reference, models)
    _check_whole(reference, models[label])
    return Choice(GGUF, models[label], label)


def _checkpoint(
    reference: Reference,
    files: Mapping[str, RemoteFile],
    weights: list[str],
    needed: tuple[str, ...],
) -> Choice:
    missing = [name for name in needed if name not in files]
    if missing:
        raise InputError(f"{reference.repo} has no {missing[0]}, which a checkpoint needs")
    beside = [name for name in _BESIDE if name in files]
    _check_small(reference, files, beside)
    single = ["model.safetensors"] if "model.safetensors" in weights else sorted(weights)
    _check_whole(reference, single)
    return Choice(BUNDLE, (*beside, *single))


def _check_whole(reference: Reference, parts: Sequence[str]) -> None:
    """Refuse a model in parts of which some are missing, before the others are fetched."""
    counts = Counter(int(found[1]) for part in parts if (found := _OF.search(part)))
    if counts and all(count != stated for stated, count in counts.items()):
        stated, count = counts.most_common(1)[0]
        raise InputError(
            f"{reference.repo} has {count} of the {stated} parts of {parts[0]}: give another"
            " revision, or another of its models"
        )


def _graphs(files: Mapping[str, RemoteFile]) -> dict[str, str]:
    """Return the decoders in ONNX by label: those of transformers.js and optimum, or of genai.

    The last have a folder each, whose graph its configuration names, so that the folder stands for
    it.
    """
    genai = [name for name in files if name.rpartition("/")[2] == GENAI]
    if genai:
        folders = {name: name.rpartition("/")[0] or GENAI_LABEL for name in sorted(genai)}
        short = {name: folder.rpartition("/")[2] for name, folder in folders.items()}
        return _apart(short, folders)
    return graphs_of(files) if "config.json" in files else {}


def _apart(short: Mapping[str, str], long: Mapping[str, str]) -> dict[str, str]:
    """Return names by their short labels, or by their long ones where several have the short."""
    counts = Counter(short.values())
    return {label if counts[label] == 1 else long[name]: name for name, label in short.items()}


def _ready(
    reference: Reference, files: Mapping[str, RemoteFile], graphs: Mapping[str, str]
) -> Choice:
    label = reference.which or first_graph(graphs)
    if label is None or label not in graphs:
        few = _listed(graphs)
        raise InputError(f"{reference.repo} has {few}: name one, {reference.repo}:NAME")
    graph = graphs[label]
    folder = graph.rpartition("/")[0]
    if graph.endswith(GENAI):
        beside = [name for name in files if name.rpartition("/")[0] == folder]
        names = [name for name in beside if not name.endswith((".md", ".py", ".bin"))]
        return Choice(BUNDLE, tuple(sorted(names)), label, graph)
    texts = [name for name in _BESIDE if name in files]
    _check_small(reference, files, texts)
    data = [name for name in files if name.startswith((f"{graph}_data", f"{graph}.data"))]
    return Choice(BUNDLE, (*texts, graph, *sorted(data)), label, graph)


def _check_small(
    reference: Reference, files: Mapping[str, RemoteFile], names: Iterable[str]
) -> None:
    for name in names:
        if files[name].size_bytes > _MAX_BESIDE_BYTES:
            raise InputError(
                f"{reference.repo}: {name} has {files[name].size_bytes} bytes, expected"
                f" {_MAX_BESIDE_BYTES >> 20} MiB at most"
            )


def _gguf_models(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the parts of each GGUF model by its label."""
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        if name.lower().endswith(".gguf") and "mmproj" not in name.lower():
            found.setdefault(_PART.sub("", name), []).append(name)
    labels = _apart({name: _tag(name) for name in found}, {name: name for name in found})
    return {label: tuple(found[name]) for label, name in labels.items()}


def _tag(name: str) -> str:
    """Return a file's quantisation, as its name states it; else the name."""
    stem = name.rsplit("/", 1)[-1][: -len(".gguf")]
    found = re.search(r"(?:^|[-._])((?:I?Q\d\w*|BF16|F16|F32|MXFP4))$", stem, re.IGNORECASE)
    return found[1].upper() if found else name


def _label(reference: Reference, models: Mapping[str, tuple[str, ...]]) -> str:
    which = reference.which
    if which is not None:
        for label, parts in models.items():
            if label.lower() == which.lower() or which in parts:
                return label
        files = {label for label, parts in models.items() for one in parts
                 if one.rpartition("/")[2] == which}  # fmt: skip
        if len(files) == 1:
            return files.pop()
        raise InputError(f"{reference.repo} has no {which}: it has {_listed(models)}")
    if len(models) == 1:
        return next(iter(models))
    for usual in _USUAL:
        if usual in models:
            return usual
    raise InputError(f"{reference.repo} has {_listed(models)}: name one, {reference.repo}:NAME")


def _listed(models: Mapping[str, object]) -> str:
    names = list(models)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
