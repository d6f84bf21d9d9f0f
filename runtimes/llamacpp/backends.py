"""Lists the devices of this build of llama.cpp, as ggml knows them."""

from __future__ import annotations

import ctypes
import functools
import os
from dataclasses import dataclass
from typing import Any

from edgedec.hardware.device import Device
from edgedec.records.place import CPU
from edgedec.runtimes.llamacpp.library import FOLDER, forget, reason, reorders_weights, version

_CARD, _SHARED_CARD = 1, 2  # ggml_backend_dev_type
# NPUs also report as graphics devices; these are the prefixes of Qualcomm's and Huawei's.
_NEURAL = ("HTP", "CANN")


_size, _pointer, _text = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p


# Result and argument types of the ggml functions called.
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "ggml_backend_load_all_from_path": (None, [_text]),
    "ggml_backend_reg_count": (_size, []),
    "ggml_backend_reg_by_name": (_pointer, [_text]),
    "ggml_backend_reg_get_proc_address": (_pointer, [_pointer, _text]),
    "ggml_backend_reg_dev_count": (_size, [_pointer]),
    "ggml_backend_reg_dev_get": (_pointer, [_pointer, _size]),
    "ggml_backend_dev_count": (_size, []),
    "ggml_backend_dev_get": (_pointer, [_size]),
    "ggml_backend_dev_name": (_text, [_pointer]),
    "ggml_backend_dev_description": (_text, [_pointer]),
    "ggml_backend_dev_type": (ctypes.c_int, [_pointer]),
    "ggml_backend_dev_memory": (None, [_pointer] * 3),
    "ggml_set_abort_callback": (_pointer, [_pointer]),
}


@dataclass(frozen=True, slots=True)
class Backend:
    """A device of this build.

    Attributes:
        name: as ``LoadOptions.device`` takes it.
        description: the vendor's.
        takes_layers: whether layers are offloaded to it: true for GPUs and NPUs, false for the CPU
            and its accelerators.
        pointer: ggml's; 0 if the library does not list its devices.

    """

    name: str
    description: str
    takes_layers: bool
    pointer: int

    @property
    def kind(self) -> str:
        """Kind, as in ``hardware.device.Device``."""
        if not self.takes_layers:
            return "cpu"
        return "npu" if self.name.startswith(_NEURAL) else "gpu"

    @property
    def memory(self) -> tuple[int, int] | None:
        """Return bytes of its own memory: free, total; None if it does not report them."""
        if not self.pointer:
            return None
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        ggml().ggml_backend_dev_memory(self.pointer, ctypes.byref(free), ctypes.byref(total))
        return (free.value, total.value) if total.value else None


@functools.cache
def ggml() -> Any:
    """Return the library behind llama.cpp, with the types of the functions called.

    Raises:
        AttributeError: its functions are in another library, as on Windows.

    """
    from llama_cpp import _ggml

    library = _ggml.libggml
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


@functools.cache
def load_plugins() -> str | None:
    """Load backends that are separate libraries, once.

    They are next to llama.cpp's library if it was built that way, or at ``GGML_BACKEND_PATH``;
    never in the current folder, where llama.cpp itself would also look.

    Returns:
        Why the requested one did not load; None if all did.

    """
    wanted = os.environ.get("GGML_BACKEND_PATH")
    forget()
    try:
        library = ggml()
    except AttributeError:
        return "GGML_BACKEND_PATH is not used on this system" if wanted else None
    before = library.ggml_backend_reg_count()
    library.ggml_backend_load_all_from_path(os.fsencode(FOLDER))
    reorders_weights()  # before the first computation, which would choose for this process
    if wanted and library.ggml_backend_reg_count() == before:
        return f"GGML_BACKEND_PATH {wanted} does not load: {reason()}"
    return None


def find_backends() -> list[Backend]:
    """Return all backends, including the processor's accelerators."""
    load_plugins()
    try:
        library = ggml()
    except AttributeError:
        return [Backend("CPU", "this processor", False, 0)]
    found = []
    for index in range(library.ggml_backend_dev_count()):
        pointer = library.ggml_backend_dev_get(index)
        name = library.ggml_backend_dev_name(pointer).decode()
        text = library.ggml_backend_dev_description(pointer).decode("utf-8", "replace")
        takes_layers = library.ggml_backend_dev_type(pointer) in (_CARD, _SHARED_CARD)
        found.append(Backend(name, text, takes_layers, pointer))
    return found


def find_devices() -> list[Device]:
    """Return the devices for a model; the processor with its accelerators comes first."""
    backends = find_backends()
    helpers = [b.name for b in backends if not b.takes_layers and b.name != "CPU"]
    devices: list[Device] = []
    for backend in backends:
        text = f"{backend.description} (llama.cpp {version()})"
        if not backend.takes_layers:
            if backend.name == "CPU":
                also = f", with {', '.join(helpers)}" if helpers else ""
                devices.insert(0, Device("llamacpp", CPU, "cpu", text + also))
            continue
        free, total = backend.memory or (None, None)
        devices.append(Device("llamacpp", backend.name, backend.kind, text, None, total, free))
    return devices
