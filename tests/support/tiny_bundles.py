"""Bundles that tests only read: each is exported once, for all workers and for later runs.

They are kept by their content: what was exported, how, by which sources and packages. A test that
changes a bundle, or tests how one is exported, exports it for itself.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from filelock import FileLock

from edgedec.export import (
    ExportOptions,
    ExportReport,
    Progress,
    bundling,
    calibration,
    export_bundle,
    mixing,
    sensitivity,
    weighed,
)

REPOSITORY = Path(__file__).resolve().parents[2]
KEPT = REPOSITORY / ".pytest_cache" / "bundles"
# What an exporter is made of; the rooms below it are few and small.
SOURCES = ("export", "models", *(f"edgedec/{room}" for room in ("_support", "bundle", "coreml",
           "decoding", "gguf", "memory", "records", "text")))  # fmt: skip
PACKAGES = ("gguf", "ml_dtypes", "numpy", "onnx", "onnxruntime", "safetensors", "tokenizers")
# How much of a text an export reads in tests, and how many mixtures it tries.
SHORT = {
    (calibration, "TOKENS"): 512,
    (calibration, "_LEAST"): 512,
    (calibration, "_WRITTEN"): 64,
    (bundling, "_SAMPLE_TOKENS"): 192,
    (sensitivity, "_MOST"): 64,
    (weighed, "_TOKENS"): 64,
    (weighed, "_LEAST"): 64,
    (mixing, "TRIES"): 1,
}
# Folders of former sources that stay, for someone who goes back and forth between two branches.
FORMER = 2


def kept(options: ExportOptions) -> Path:
    """Return a bundle as ``export_bundle(options)`` makes it, which must not be changed.

    Of ``options.out`` the name counts alone: it is the bundle's.
    """
    made = KEPT / _exporter()
    bundle = made / _digest(_described(options)) / options.out.name
    bundle.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(bundle.parent / "lock"):
        if not bundle.exists():  # an export is moved into place once it is whole
            with FileLock(KEPT / "lock"):
                _forget_former(made)
            export_bundle(dataclasses.replace(options, out=bundle))
    return bundle


def once(options: ExportOptions, progress: Progress | None = None) -> ExportReport:
    """Export, or copy what this process has exported of the same files; steps are told again."""
    if not options.target.is_dir():
        return export_bundle(options, progress)
    key, out, steps = _digest(_described(options)), options.out, list[tuple[str, int, int]]()
    if key not in _ONCE:
        kept = Path(_SCRATCH.name) / key
        report = export_bundle(
            dataclasses.replace(options, out=kept), lambda *step: steps.append(step)
        )
        _ONCE[key] = report, steps
    report, steps = _ONCE[key]
    for step in steps if progress else ():
        progress(*step)
    shutil.copytree(report.path, out)
    return dataclasses.replace(report, path=out)


_ONCE: dict[str, tuple[ExportReport, list[tuple[str, int, int]]]] = {}
_SCRATCH = tempfile.TemporaryDirectory(prefix="edgedec-bundles-", ignore_cleanup_errors=True)


def exact(target: Path, draft: Path | None = None) -> Path:
    """Return a bundle of checkpoints in fp32, whose texts do not depend on what is drafted."""
    return kept(ExportOptions(target, Path("bundle"), draft, weights="fp32", parity=False))


def _described(options: ExportOptions) -> Iterable[bytes]:
    """Yield all that decides what is exported: the checkpoints by their content."""
    plain = dataclasses.replace(
        options, target=Path(), out=Path(options.out.name), draft=None, head=None
    )
    yield repr((plain, [getattr(*place) for place in SHORT])).encode()
    for folder in filter(None, (options.target, options.draft, options.head)):
        yield folder.name.encode()
        for file in sorted(folder.iterdir()):
            yield file.name.encode()
            yield file.read_bytes()


@functools.cache
def _exporter() -> str:
    versions = [importlib.metadata.version(name) for name in PACKAGES]
    files = [file for name in SOURCES for file in sorted((REPOSITORY / name).rglob("*.py"))]
    return _digest([repr(versions).encode(), *(file.read_bytes() for file in files)])


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()[:24]


def _forget_former(made: Path) -> None:
    """Remove what other sources exported, but for the latest."""
    others = [folder for folder in KEPT.iterdir() if folder.is_dir() and folder != made]
    others.sort(key=lambda folder: folder.stat().st_mtime, reverse=True)
    for folder in others[FORMER:]:
        shutil.rmtree(folder, ignore_errors=True)
