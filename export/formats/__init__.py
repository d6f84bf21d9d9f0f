"""Finds a format's exporter: the module of that name in this package, with ``_`` for ``-``.

A new format is a new file here. It is imported on first use, so that a format whose packages are
not installed costs nothing and breaks nothing.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, cast

from edgedec._support import installation
from edgedec.errors import ExtraMissing, InputError
from edgedec.export.job import Exported, ExportJob, Figures
from edgedec.export.options import ExportOptions, Progress
from edgedec.models.decoder import DecoderSpec


class Exporter(Protocol):
    """The interface of a format's module.

    Attributes:
        WEIGHTS: its weight formats, the finest last.
        DEFAULT_WEIGHTS: one of them.
        PACKAGES: packages whose versions the manifest records.

    """

    WEIGHTS: tuple[str, ...]
    DEFAULT_WEIGHTS: str
    PACKAGES: tuple[str, ...]

    def check(self, options: ExportOptions) -> None:
        """Refuse options that this format does not support, before writing.

        Raises:
            InputError: an option does not apply to this format.
            RuntimeUnavailable: a package that it needs is missing, or too old.

        """
        ...

    def write(self, job: ExportJob, folder: Path, progress: Progress) -> Exported:
        """Write the model's files into ``folder``, which other formats may share.

        Raises:
            ExportError: see ``edgedec.errors``; also if this format cannot represent the model.

        """
        ...

    def parity(self, job: ExportJob, folder: Path, progress: Progress) -> Figures:
        """Compare the exported model with its source.

        Raises:
            ParityError: it diverges further than its weights allow.

        """
        ...


def names() -> list[str]:
    """Return the formats that have an exporter, installed or not."""
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__))


def exporter(name: str) -> Exporter:
    """Import a format's exporter.

    Raises:
        InputError: there is no such format.
        RuntimeUnavailable: a package it needs is not installed.

    """
    if name not in names():
        raise InputError(f"no format {name!r}: expected one of {', '.join(names())}")
    try:
        module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    except ModuleNotFoundError as error:
        raise ExtraMissing(
            installation.needs(f"exporting to {name}", "export", error.name or "a package")
        ) from None
    return cast(Exporter, module)


def reads_texts(job: ExportJob) -> bool:
    """Return whether a job needs calibration texts, for its weights or its activations."""
    module = exporter(job.format)
    measured: Callable[[ExportOptions], bool] | None = getattr(module, "measures", None)
    own = job.options.imatrix_text is not None and is_weighed(job)
    in_weights = job.weights in getattr(module, "CALIBRATED", ()) and not (job.held or own)
    return in_weights or (measured is not None and measured(job.options))


def is_weighed(job: ExportJob) -> bool:
    """Return whether a text for the importance matrix matters to a job's weights."""
    weighs: Callable[[ExportJob], bool] | None = getattr(exporter(job.format), "weighs", None)
    return weighs is not None and weighs(job)


def check_job(job: ExportJob) -> None:
    """Refuse a model that its format cannot hold, before texts are written for it.

    Raises:
        UnsupportedArchitecture, InputError: as the format's ``write`` would after minutes.

    """
    check: Callable[[ExportJob], None] | None = getattr(exporter(job.format), "check_job", None)
    if check is not None:
        check(job)


def is_measured(job: ExportJob) -> bool:
    """Return whether a job's weights are chosen by what is measured on texts."""
    return job.weights in getattr(exporter(job.format), "MEASURED", ())


def outline_of(names: Sequence[str]) -> Callable[[Path], DecoderSpec] | None:
    """Return the reader of sizes for a checkpoint whose architecture has no spec.

    A format that needs no spec has a function ``outline``; None if one of the formats has none.
    """
    found = [getattr(exporter(name), "outline", None) for name in names]
    return found[0] if all(found) else None


def weights_of(name: str, given: str | None, option: str, formats: tuple[str, ...]) -> str | None:
    """Return one format's weights from an option such as ``int4`` or ``onnx=int4,gguf=q4_k_m``.

    Returns:
        None if it does not mention this format.

    Raises:
        InputError: it has another form, or names a format that is not exported, or weights that
            the format does not support.

    """
    if given is None:
        return None
    if "=" not in given:
        if len(formats) > 1:
            example = ",".join(f"{name}={exporter(name).DEFAULT_WEIGHTS}" for name in formats)
            raise InputError(f"{option} {given}: say for which format, as in {option} {example}")
        return _known(name, given, option)
    chosen: dict[str, str] = {}
    for part in given.split(","):
        format, _, weights = (word.strip() for word in part.partition("="))
        if format not in formats:
            raise InputError(
                f"{option} {given}: {format!r} is not exported here, only {', '.join(formats)}"
            )
        if format in chosen:
            raise InputError(f"{option} {given}: {format} occurs twice: expected it once")
        chosen[format] = _known(format, weights, option)
    return chosen.get(name)


def _known(name: str, weights: str, option: str) -> str:
    known = exporter(name).WEIGHTS
    if weights not in known:
        raise InputError(
            f"{option}: {weights!r} is not a weight format of {name}: expected one of"
            f" {', '.join(known)}"
        )
    return weights
