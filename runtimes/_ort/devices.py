"""Finds and chooses the devices of this ONNX Runtime's execution providers."""

from __future__ import annotations

import functools
import importlib
import json
import pkgutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import onnxruntime as ort

from edgedec.errors import InputError, RuntimeUnavailable
from edgedec.hardware.device import Device
from edgedec.hardware.machine import cpu_name
from edgedec.records.place import CPU as PROCESSOR

CPU = "CPUExecutionProvider"
_SUFFIX = "ExecutionProvider"
# Not a device: it sends its work to a remote service.
_REMOTE = {"AzureExecutionProvider"}
# Device kinds of providers that do not list their devices; the others are for GPUs.
_KINDS = {
    "CoreMLExecutionProvider": "npu",
    "DnnlExecutionProvider": "cpu",
    "QNNExecutionProvider": "npu",
    "VitisAIExecutionProvider": "npu",
    "XnnpackExecutionProvider": "cpu",
}


# -- execution providers in separate packages ---------------------------------------------------
#
# Such a package is called ``onnxruntime_ep_...`` (Qualcomm's is older than that convention) and
# names its library and its provider, so they need not be listed here.

_PREFIX = "onnxruntime_ep_"
_OTHERS = {"onnxruntime_qnn"}


@functools.cache
def register() -> dict[str, str]:
    """Register the providers of all such packages with ONNX Runtime, once.

    Returns:
        Installed packages that did not load, and why.

    """
    if not hasattr(ort, "register_execution_provider_library"):
        return {}
    failed = {}
    for name in _packages():
        try:
            package = importlib.import_module(name)
            provider = package.get_ep_name()
            if provider not in ort.get_available_providers():
                ort.register_execution_provider_library(provider, package.get_library_path())
        except Exception as error:  # any error of another project's package or library
            failed[name] = (str(error).strip() or type(error).__name__).splitlines()[0]
    return failed


def problems() -> list[str]:
    """See ``edgedec.runtimes.registry.Adapter``."""
    return [f"{name} does not load: {reason}" for name, reason in register().items()]


def _packages() -> list[str]:
    names = {module.name for module in pkgutil.iter_modules()}
    return sorted(n for n in names if n.startswith(_PREFIX) or n in _OTHERS)


# -- the devices that ONNX Runtime offers -------------------------------------------------------


def _openvino_options(threads: int) -> dict[str, str]:
    return {"load_config": json.dumps({"CPU": {"INFERENCE_NUM_THREADS": str(threads)}})}


# Snapdragon 8 Gen 3: the NPUs of older ones do not compute in fp16.
_QNN_SOC = "57"


def _qnn_options(threads: int) -> dict[str, str]:
    """Return the options of Qualcomm's NPU emulator, which the provider does not set by itself."""
    package: Any = importlib.import_module("onnxruntime_qnn")
    return {"backend_path": package.get_qnn_htp_path(), "soc_model": _QNN_SOC}


# Options of providers that compute on the processor's cores: they ignore the session's threads.
_ON_PROCESSOR: dict[str, Callable[[int], dict[str, str]]] = {
    "OpenVINOExecutionProvider": _openvino_options,
    "QNNExecutionProvider": _qnn_options,
}


@dataclass(frozen=True, slots=True)
class OrtDevice:
    """A device of an execution provider.

    Attributes:
        device: as adapters list it, but without the runtime.
        handle: ONNX Runtime's handle; None for a provider that is chosen by name.

    """

    device: Device
    handle: Any

    @property
    def provider(self) -> str:
        """Name of the execution provider."""
        return self.device.provider or CPU

    @property
    def label(self) -> str:
        """Name for messages."""
        return f"{self.device.name} ({self.provider})"


def find_devices(runtime: str) -> list[Device]:
    """Return the devices that the adapter ``runtime`` can use, the processor first."""
    return [
        Device(runtime, offer.device.name, offer.device.kind, offer.device.description,
               offer.device.provider)
        for offer in available_devices()
    ]  # fmt: skip


def available_devices() -> list[OrtDevice]:
    """Return the devices of all installed packages' providers, the processor first."""
    register()
    available = ort.get_available_providers()
    handles = [handle for handle in _handles() if not _virtual(handle.ep_name, available)]
    found, numbers = [], Counter[str]()
    for handle in handles:
        kind = _kind(handle)
        base = name = f"{_short(handle.ep_name)}:{kind}"
        if handle.ep_name == CPU:
            name = PROCESSOR
        elif kind != "cpu":
            name = f"{base}{numbers[base]}"
            numbers[base] += 1
        found.append(OrtDevice(Device("", name, kind, _describe(handle), handle.ep_name), handle))
    listed = {handle.ep_name for handle in handles}
    for provider in available:
        if provider in listed or _virtual(provider, available):
            continue
        kind = _KINDS.get(provider, "gpu")
        name = _short(provider)
        text = f"chosen by the provider (onnxruntime {ort.__version__})"
        found.append(OrtDevice(Device("", name, kind, text, provider), None))
    return sorted(found, key=lambda offer: offer.provider != CPU)


def choose(device: str | None, providers: Sequence[str]) -> list[OrtDevice]:
    """Return the devices for a session, in order of preference.

    Args:
        device: a name from ``find_devices``; None is the processor if a provider can use it, else
            the provider's first device.
        providers: execution providers in order of preference; empty for the device's own.

    Raises:
        RuntimeUnavailable: a device or a provider is not available here.

    """
    if device in (None, PROCESSOR) and set(providers) <= {CPU}:
        # The common case, in which no provider package is loaded.
        return [OrtDevice(Device("", PROCESSOR, "cpu", "", CPU), None)]
    here = available_devices()
    if not providers:
        named = [offer for offer in here if offer.device.name == device]
        if not named:
            raise RuntimeUnavailable(
                f"no device {device!r} in this onnxruntime: {_list(here)};"
                " `edgedec devices` lists those of all runtimes"
            )
        return named
    chosen: list[OrtDevice] = []
    for provider in providers:
        own = [offer for offer in here if offer.provider == provider]
        if not own:
            raise RuntimeUnavailable(
                f"provider {provider!r} is not in this onnxruntime: {_list(here)}"
            )
        named = [offer for offer in own if _is(offer, device)]
        # Only the first provider must have the device.
        if device and not named and not chosen:
            raise RuntimeUnavailable(f"no device {device!r} of {provider}: {_list(own)}")
        chosen.append((named or own)[0])
    return chosen


def _is(offer: OrtDevice, device: str | None) -> bool:
    """Return whether a device has this name; None and ``cpu`` are the processor."""
    if device in (None, PROCESSOR):
        return offer.device.kind == "cpu"
    return offer.device.name == device


def put_into(options: ort.SessionOptions, chosen: Sequence[OrtDevice], threads: int) -> list[str]:
    """Add the devices to a session's options.

    Returns:
        Names of providers to create the session with; empty if the options name all of them.

    Raises:
        InputError: ONNX Runtime cannot combine these.

    """
    others = [offer for offer in chosen if offer.provider != CPU]
    if not others:
        return [CPU]
    by_name = [offer for offer in others if offer.handle is None]
    if len(by_name) == len(others):
        return [offer.provider for offer in chosen]
    if by_name:
        raise InputError(
            f"providers {', '.join(offer.provider for offer in others)}: one in a package of "
            "its own cannot be combined with others: name one of them"
        )
    for offer in others:
        own = _ON_PROCESSOR.get(offer.provider)
        given = own(threads) if own and offer.device.kind == "cpu" else {}
        options.add_provider_for_devices([offer.handle], given)
    return []


def _handles() -> list[Any]:
    return list(ort.get_ep_devices()) if hasattr(ort, "get_ep_devices") else []


def _virtual(provider: str, available: Sequence[str]) -> bool:
    """Return whether a provider only selects among other devices, as OpenVINO's ``AUTO`` does."""
    base, dot, _ = provider.rpartition(".")
    return provider in _REMOTE or (bool(dot) and base in available)


def _kind(handle: Any) -> str:
    return str(handle.device.type).rpartition(".")[2].lower()


def _describe(handle: Any) -> str:
    facts = {**handle.device.metadata, **handle.ep_metadata}
    name = facts.get("FULL_DEVICE_NAME") or facts.get("Description")
    if not name:
        maker = handle.device.vendor or handle.ep_vendor
        name = cpu_name() if _kind(handle) == "cpu" else f"by {maker}"
    versions = f"onnxruntime {ort.__version__}"
    if handle.ep_name != CPU:
        versions = f"{_short(handle.ep_name)} {facts.get('version', 'plugin')}, {versions}"
    return f"{name} ({versions})"


def _short(provider: str) -> str:
    return provider.removesuffix(_SUFFIX).lower()


def _list(found: Sequence[OrtDevice]) -> str:
    return f"it has {', '.join(offer.label for offer in found)}"
