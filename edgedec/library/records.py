"""Stores facts about a model of the library in a JSON file next to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from edgedec._support.atomic import write_json
from edgedec._support.fields import from_json, one_line, to_json
from edgedec._support.kept import Unusable, read_object
from edgedec.errors import BundleError, InputError

RECORD = "model.json"
BUNDLE, GGUF = "bundle", "gguf"
_SCHEMA = 1
PLAIN, CALIBRATED = "none", "self"
AUTO = "auto"
WEIGHTS = (AUTO, "int4", "int8", "fp16", "fp32")
# Those whose rounding can be calibrated.
ROUNDED = (AUTO, "int4")
_COUNTS = {2: "two", 3: "three"}


@dataclass(frozen=True, slots=True)
class Form:
    """How a checkpoint's weights are stored.

    Attributes:
        weights: ``auto`` (int4, and int8 where that keeps the model close to its source), ``int4``,
            ``int8``, ``fp16`` or ``fp32``.
        calibration: ``none`` rounds each weight by itself; ``self`` rounds them for texts that the
            model writes, in minutes. Only what has int4 in it is calibrated.
        max_kl: of ``auto``, in nats per token; None is that of ``edgedec export``.

    """

    weights: str = AUTO
    calibration: str = PLAIN
    max_kl: float | None = None

    @classmethod
    def requested(
        cls, weights: str | None, calibrated: bool | None, max_kl: float | None
    ) -> Form | None:
        """Return the requested form; None if nothing is requested.

        Raises:
            InputError: the options do not go together.

        """
        if weights is None and calibrated is None and max_kl is None:
            return None
        found = cls(weights or AUTO, CALIBRATED if calibrated else PLAIN, max_kl)
        if calibrated and not found.rounds:
            raise InputError(f"calibrated is for int4: leave it or weights {weights} out")
        if max_kl is not None and found.weights != AUTO:
            raise InputError(f"max-kl is for weights auto: leave it or weights {weights} out")
        if max_kl is not None and not max_kl > 0:
            raise InputError(f"max-kl: expected nats above 0, got {max_kl}")
        return found

    @property
    def rounds(self) -> bool:
        """Whether the rounding of its weights can be calibrated."""
        return self.weights in ROUNDED

    def __str__(self) -> str:
        if not self.rounds:
            return self.weights
        limit = "" if self.max_kl is None else f" within {self.max_kl:g} nats"
        rounding = "calibrated" if self.calibration == CALIBRATED else "rounded to nearest"
        return f"{self.weights}{limit}, {rounding}"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a model came from.

    Attributes:
        where: a folder's absolute path, or a hub's name of it.
        revision: the hub's commit; None for a folder.
        files: sha256 of each file by name.
        bytes: of these files together.
        licence: as the hub states it; None for a folder.

    """

    where: str
    revision: str | None
    files: dict[str, str]
    bytes: int
    licence: str | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """The facts about one model.

    Attributes:
        name: what the user calls it: a folder's name, or a hub's.
        kind: ``bundle`` or ``gguf``.
        path: of the bundle or the GGUF file, relative to the library's folder.
        form: how its weights are stored; of a GGUF file only ``weights`` applies.
        architecture: its ``model_type``.
        parameters: numbers in it.
        tokenizer: a hash of its tokenizer; equal ones are of the same tokenizer.
        licence: as its source states it, or None.
        made: when it was added, in UTC, as ISO 8601.
        origin: where it came from.
        head: where the head in its bundle came from, if it was fetched for it; else None.

    """

    name: str
    kind: str
    path: str
    form: Form
    architecture: str
    parameters: int
    tokenizer: str
    licence: str | None
    made: str
    origin: Origin
    head: Origin | None = None

    @property
    def sources(self) -> set[str]:
        """Where what it was made of came from."""
        return {one.where for one in (self.origin, self.head) if one is not None}


@dataclass(frozen=True, slots=True)
class Model:
    """A model in the library.

    Attributes:
        id: hexadecimal digits that follow from its source and its form.
        record: its facts.
        path: the bundle's folder or the GGUF file, absolute.

    """

    id: str
    record: Record
    path: Path

    @property
    def name(self) -> str:
        """The name that users give."""
        return self.record.name

    @property
    def size_bytes(self) -> int:
        """Bytes of its files; those of a bundle may be shared with another model's."""
        if self.record.kind == GGUF:
            return self.record.origin.bytes
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())


def write(folder: Path, record: Record) -> None:
    """Write a model's record into its folder."""
    write_json(folder / RECORD, {"schema": _SCHEMA, **to_json(record)}, indent=1)


def read(library: Path, folder: Path) -> Model | None:
    """Return the model of a folder; None if it is damaged, or of another version of edgedec."""
    try:
        raw = read_object(folder / RECORD)
        if raw.pop("schema", None) != _SCHEMA:
            return None
        raw.setdefault("head", None)  # as libraries before this field have it
        record = from_json(Record, raw, str(folder / RECORD), BundleError)
    except (OSError, Unusable, BundleError):
        return None
    path = _inside(library, record.path)
    if path is None or not path.exists():
        return None
    return Model(folder.name, record, path)


def _inside(library: Path, path: str) -> Path | None:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts:
        return None
    return library / pure


def as_json(model: Model) -> Mapping[str, Any]:
    """Return a model's facts as JSON."""
    facts: dict[str, Any] = to_json(model.record)
    return {"id": model.id, "size_bytes": model.size_bytes, **facts, "path": str(model.path)}


def contents(model: Model) -> tuple[tuple[str, str], ...]:
    """Return what all forms of a model have in common, and no other model has."""
    return tuple(sorted(model.record.origin.files.items()))


def several(word: str, found: Sequence[Model]) -> str:
    """Return the line about a word that stands for several models or forms, with their ids."""
    models = len({contents(one) for one in found})
    what = f"{_COUNTS.get(models, models)} models"
    if models == 1:
        what = f"one model in {_COUNTS.get(len(found), len(found))} forms"
    each = (
        f"{one.id[:8]} ({one.record.form}, from {one_line(one.record.origin.where)})"
        for one in found
    )
    return f"{word} is {what}: {'; '.join(each)}: give the id of one instead of the name"
