"""Finds a GGUF file and loads its weights with llama.cpp."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from types import ModuleType

from edgedec._support.files import check_regular, open_regular
from edgedec._support.parts import part
from edgedec.errors import BundleError, RuntimeUnavailable
from edgedec.gguf import GgufHeader
from edgedec.gguf.parts import named_parts
from edgedec.records.load import LoadOptions
from edgedec.records.place import REMOTE
from edgedec.runtimes.llamacpp.backends import Backend, find_backends, load_plugins
from edgedec.runtimes.llamacpp.library import (
    Caller,
    Direct,
    Params,
    Weights,
    api,
    check_forks,
    forget,
    reason,
    reorders_weights,
    version,
    warned,
)

_MAGIC = b"GGUF"
_AUTO, _READ, _MAP, _LOCK, _MAP_AND_LOCK = -1, 0, 1, 2, 3  # llama_load_mode


def find_file(path: Path) -> Path:
    """Return the file itself, or the only GGUF file of a folder.

    Raises:
        BundleError: there is none, or more than one, or it is not GGUF.

    """
    if path.is_dir():
        files = [file for file in sorted(path.glob("*.gguf")) if named_parts(file)[0] == file]
        if len(files) != 1:
            found = ", ".join(file.name for file in files) or "none"
            raise BundleError(f"{path}: expected one .gguf file, found {found}: name the file")
        path = files[0]
    try:
        with open_regular(path) as stream:
            magic = stream.read(len(_MAGIC))
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror}") from error
    if magic != _MAGIC:
        raise BundleError(f"{path}: not a GGUF file: give a model in GGUF")
    return path


def open_weights(file: Path, options: LoadOptions) -> Weights:
    """Load a file.

    Raises:
        BundleError: llama.cpp cannot load it, or it is not a decoder.
        RuntimeUnavailable: the device, a server, or locked memory is not available, or this process
            was forked from one that computes.
        InputError: a server's address, see ``endpoints``.
        PassFailed: a server vanished meanwhile.

    """
    check_forks()
    load_plugins()
    params: Params = api.llama_model_default_params()
    params.load_mode = _load_mode(options)
    params.use_extra_bufts = reorders_weights() and options.own.get("repack") is not False
    layers = options.own.get("gpu_layers")
    call: Caller = Direct()
    if servers := servers_of(options):
        remote = over_rpc()
        found = remote.find(servers, trust=bool(options.own.get("rpc_trust")))
        if layers is None:
            parts = [one.stat().st_size for one in named_parts(file)]
            layers = remote.layers_that_fit(found, sum(parts), _layers(file))
        call, chosen = remote.connect(found)
    else:
        chosen = _choose(options)
    pointers = (ctypes.c_void_p * (len(chosen) + 1))(*(device.pointer for device in chosen), None)
    if options.device is not None or servers:
        params.devices = ctypes.addressof(pointers)
    if layers is not None:
        params.n_gpu_layers = layers
    forget()
    try:
        check_regular(named_parts(file))
    except OSError as error:
        raise BundleError(f"{file}: cannot be read: {error.strerror}") from None
    pointer = call(api.llama_model_load_from_file, os.fsencode(file), params)
    if not pointer:
        raise BundleError(f"{file}: llama.cpp cannot load it: {reason()}")
    weights = Weights(pointer, call)
    call.watch()
    if options.own.get("mlock") and warned("mlock"):
        raise RuntimeUnavailable(
            "the weights could not be locked in memory: raise the limit (ulimit -l) or leave "
            "mlock out"
        )
    if not _decodes(weights):
        raise BundleError(f"{file}: not a decoder-only language model: edgedec runs no others")
    return weights


def over_rpc() -> ModuleType:
    """Import the part that reaches servers of other machines."""
    return part("edgedec.runtimes.llamacpp.remote", "--rpc")


def servers_of(options: LoadOptions) -> str:
    """Return the servers that load options name, as the user wrote them; empty for none."""
    if rpc := options.own.get("rpc"):
        return str(rpc)
    device = options.device or ""
    return device[len(REMOTE) :] if device.startswith(REMOTE) else ""


def _layers(file: Path) -> int:
    """Return the number of a model's layers, with its output."""
    header = GgufHeader.read(file)
    return header.number(f"{header.architecture}.block_count", 0) + 1


def on_processor(options: LoadOptions) -> bool:
    """Return whether all layers stay on the processor."""
    if options.own.get("gpu_layers") == 0:
        return True
    if servers_of(options):
        return False
    if options.device is not None:
        return not _choose(options)
    return not any(device.takes_layers for device in find_backends())


def _decodes(weights: Weights) -> bool:
    model = weights.pointer
    other = api.llama_model_has_encoder(model) or api.llama_model_is_diffusion(model)
    return bool(api.llama_model_has_decoder(model)) and not other


def _load_mode(options: LoadOptions) -> int:
    mapped = options.own.get("mmap")
    if options.own.get("mlock"):
        return _LOCK if mapped is False else _MAP_AND_LOCK
    return {None: _AUTO, True: _MAP, False: _READ}[mapped]


def _choose(options: LoadOptions) -> list[Backend]:
    """Return the device of the layers; none for the processor alone."""
    layers = options.own.get("gpu_layers")
    if options.device is None and not layers:
        return []
    devices = find_backends()
    if options.device is None:
        others = [device for device in devices if device.takes_layers]
        if not others:
            raise RuntimeUnavailable(
                f"gpu_layers is {layers}: this llama.cpp ({version()}) has no device "
                "other than the CPU"
            )
        return others
    for device in devices:
        if device.name.lower() == options.device.lower():
            return [device] if device.takes_layers else []
    raise RuntimeUnavailable(
        f"no device {options.device!r} in this llama.cpp: it has "
        f"{', '.join(device.name for device in devices)}"
    )
