"""The adapter of the runtime ``onnx``: see ``edgedec.runtimes.registry.Adapter``."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from edgedec.bundle.onnx_file import check_listed as admit
from edgedec.decoding.session import HeadModel
from edgedec.errors import BundleError
from edgedec.hardware.device import Device
from edgedec.records.adapter import Prepared
from edgedec.records.load import LoadOptions
from edgedec.runtimes._ort import devices as of_onnxruntime
from edgedec.runtimes._ort.devices import problems
from edgedec.runtimes._ort.metadata import sizes
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.runtimes.onnx.openvino import places as openvino

__all__ = ["admit", "devices", "load", "load_head", "prepare", "problems", "quickest", "sizes"]


def load(path: Path, options: LoadOptions) -> OnnxModel:
    """See ``edgedec.runtimes.registry.Adapter``."""
    threads, providers, invariant = options.threads, options.providers, options.batch_invariant
    may_pad = options.may_pad
    if openvino.wanted(options):
        from edgedec.runtimes.onnx.openvino.importing import model_class

        return model_class().compile(path, threads=threads, batch_invariant=invariant)
    memory = options.own.get("weight_memory")
    if memory is not None:
        from edgedec.runtimes.onnx.streaming.model import StreamedOnnxModel

        return StreamedOnnxModel.stream(
            path,
            memory,
            threads=threads,
            providers=providers,
            batch_invariant=invariant,
            may_pad=may_pad,
        )
    return OnnxModel.load(
        path,
        threads=threads,
        providers=providers,
        device=options.device,
        batch_invariant=invariant,
        may_pad=may_pad,
    )


def load_head(path: Path, files: Collection[Path], options: LoadOptions) -> HeadModel:
    """See ``edgedec.runtimes.registry.load_head``; heads run on ONNX Runtime in every place."""
    from edgedec.runtimes.onnx.assistant import open_head
    from edgedec.runtimes.onnx.fusion import FUSE_FILE

    fusion = path.with_name(FUSE_FILE)
    if fusion not in files:
        raise BundleError(
            f"{path}: the manifest does not list {FUSE_FILE} among the head's files: export the"
            " bundle again"
        )
    admit(fusion, files)
    return open_head(path, threads=options.threads)


def quickest(path: Path, options: LoadOptions, draft: Path | None) -> str | None:
    """See ``edgedec.runtimes.registry.Adapter``."""
    if not openvino.is_there():
        return None
    from edgedec.runtimes.onnx.openvino import choice

    return choice.quickest(path, options, draft)


def devices() -> list[Device]:
    """See ``edgedec.runtimes.registry.Adapter``."""
    return [*of_onnxruntime.find_devices("onnx"), *openvino.find_devices()]


def prepare(path: Path) -> Prepared:
    """See ``edgedec.runtimes.registry.Adapter``."""
    from edgedec.runtimes.onnx import preparing

    return preparing.prepare(path)
