"""The adapter of the runtime ``llamacpp``: see ``edgedec.runtimes.registry.Adapter``."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np

from edgedec.errors import BundleError
from edgedec.gguf import GgufHeader
from edgedec.gguf.parts import decodable_parts
from edgedec.hardware.device import Device
from edgedec.records.load import LoadOptions
from edgedec.runtimes.llamacpp.backends import find_devices as devices
from edgedec.runtimes.llamacpp.backends import load_plugins
from edgedec.runtimes.llamacpp.check import first_open
from edgedec.runtimes.llamacpp.model import LlamaModel
from edgedec.runtimes.llamacpp.opening import over_rpc

__all__ = ["admit", "devices", "how_to_build_rpc", "load", "problems", "remote_devices", "sizes"]

_SIZE_KEYS = {
    "layers": "block_count",
    "kv_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
}


def load(path: Path, options: LoadOptions) -> LlamaModel:
    """See ``edgedec.runtimes.registry.Adapter``."""
    return LlamaModel.load(path, options)


def remote_devices(rpc: str) -> list[Device]:
    """See ``edgedec.runtimes.registry.remote_devices``."""
    found: list[Device] = over_rpc().find_devices(rpc)
    return found


def how_to_build_rpc() -> str | None:
    """Return the command that builds llama.cpp with RPC; None if it has it."""
    found: str | None = over_rpc().how_to_build_rpc()
    return found


def problems() -> list[str]:
    """See ``edgedec.runtimes.registry.Adapter``."""
    failed = load_plugins()
    return [failed] if failed else []


def admit(path: Path, files: Collection[Path]) -> None:
    """Check that the parts of a split file are listed, and that llama.cpp can open it."""
    for part in decodable_parts(GgufHeader.read(path)):
        if part not in files:
            raise BundleError(
                f"{path}: its part {part.name} is not listed in the manifest among the model's"
                " files: export the bundle again"
            )
    first_open(path)


def sizes(path: Path) -> dict[str, int]:
    """See ``edgedec.runtimes.registry.Adapter``; keys that a file may leave out are left out."""
    header = GgufHeader.read(path)
    of_model = f"{header.architecture}."
    stated = {name: header.metadata.get(of_model + key) for name, key in _SIZE_KEYS.items()}
    stated |= {"vocab_size": header.vocab_size, "max_context": header.context_length}
    by_layer = stated["kv_heads"]
    every = header.metadata.get(of_model + "full_attention_interval")
    if isinstance(by_layer, np.ndarray) and by_layer.dtype.kind in "iu":
        slides = header.metadata.get(of_model + "attention.sliding_window_pattern")
        near, far, shared = (
            header.number(f"{of_model}attention.{key}", 0)
            for key in ("key_length_swa", "key_length", "shared_kv_layers")
        )
        heads = by_layer[by_layer > 0]  # 0 in layers without keys and values
        if near and isinstance(slides, np.ndarray) and slides.shape == by_layer.shape:
            # Heads differ by layer, and the last layers read those of others (Gemma 4).
            kept = max(len(by_layer) - shared, 0)
            each = zip(by_layer.tolist(), slides.tolist(), strict=True)
            channels = [count * (near if slide else far) for count, slide in each]
            stated |= {"kv_layers": kept, "kv_channels": sum(channels[:kept])}
            del stated["head_dim"]
        elif len({*heads.tolist()}) == 1:
            stated |= {"kv_heads": int(heads[0]), "kv_layers": len(heads)}
    elif type(every) is int and every > 0 and type(stated["layers"]) is int:  # one of so many
        stated["kv_layers"] = stated["layers"] // every
    return {name: size for name, size in stated.items() if type(size) is int and size > 0}
