"""Devices of other machines, by llama.cpp's RPC: asked about in a child process, then connected.

The client ends the process if a server cannot be reached or speaks another version, and it waits
for good if the server has another client, since a server serves one at a time. So a child process
asks first.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgedec._support import installation
from edgedec._support.amounts import size
from edgedec._support.fields import one_line
from edgedec._support.sandbox import Limits, Refused, Stopped, ask_once
from edgedec.errors import EdgedecError, RuntimeUnavailable
from edgedec.hardware.device import Device
from edgedec.records.place import REMOTE
from edgedec.runtimes.llamacpp.backends import Backend, ggml, load_plugins
from edgedec.runtimes.llamacpp.endpoints import Endpoint, endpoints
from edgedec.runtimes.llamacpp.library import version
from edgedec.runtimes.llamacpp.link import Link, answers_now, link_to, spelling

_log = logging.getLogger("edgedec")
CHILD = "edgedec.runtimes.llamacpp._remote_child"
# Asking takes a few milliseconds and the time to start Python.
_PATIENCE_S = 20.0
_QUIET = {"GGML_NO_BACKTRACE": "1"}
_warned: set[str] = set()
# llama.cpp connects to one server at a time, and for good if that vanishes meanwhile.
_connecting = threading.Lock()


@dataclass(frozen=True, slots=True)
class Found:
    """A device of a server.

    Attributes:
        server: its address.
        index: of the device on its server.
        free, total: bytes of its memory.

    """

    server: Endpoint
    index: int
    free: int
    total: int


@functools.cache
def client() -> Any:
    """Return ``ggml_backend_rpc_add_server``; None if this llama.cpp was built without RPC."""
    return _function(b"ggml_backend_rpc_add_server", ctypes.c_void_p, ctypes.c_char_p)


def how() -> str:
    """Return the command that builds llama.cpp with RPC."""
    package = "llama-cpp-python"
    words = ("--force-reinstall", "--no-cache-dir", "--no-binary", package, package)
    return f'CMAKE_ARGS="-DGGML_RPC=on" {installation.install(*words)}'


def how_to_build_rpc() -> str | None:
    """Return the command that builds llama.cpp with RPC; None if it has it."""
    return how() if client() is None else None


def start_server() -> Any:
    """Return ``ggml_backend_rpc_start_server``; None if this llama.cpp was built without RPC."""
    count, pointer = ctypes.c_size_t, ctypes.c_void_p
    return _function(
        b"ggml_backend_rpc_start_server", None, ctypes.c_char_p, ctypes.c_char_p, count, count,
        pointer,
    )  # fmt: skip


def _function(name: bytes, result: Any, *arguments: Any) -> Any:
    load_plugins()
    try:
        registry = ggml().ggml_backend_reg_by_name(b"RPC")
    except AttributeError:  # its functions are in another library, as on Windows
        return None
    address = ggml().ggml_backend_reg_get_proc_address(registry, name) if registry else None
    return ctypes.CFUNCTYPE(result, *arguments)(address) if address else None


def find(text: str, *, trust: bool = False) -> list[Found]:
    """Return the devices of servers, which a child process asks; warn of the protocol, once.

    Args:
        text: ``HOST:PORT[,HOST:PORT]``.
        trust: see ``endpoints``.

    Raises:
        InputError: see ``endpoints``.
        RuntimeUnavailable: this llama.cpp has no RPC, or a server cannot be used.

    """
    servers = endpoints(text, trust=trust)
    if client() is None:
        raise RuntimeUnavailable(
            f"--rpc needs a llama.cpp that is built with RPC, and this one is not: {how()}"
        )
    _warn(servers)
    return [found for server in servers for found in _look(server)]


def find_devices(text: str, *, trust: bool = False) -> list[Device]:
    """Return one device for each of the servers', with its memory; see ``find``."""
    devices = []
    for one in find(text, trust=trust):
        what = f"device {one.index} of {one.server.name} over RPC (llama.cpp {version()})"
        name = f"{REMOTE}{one.server.name}"
        devices.append(Device("llamacpp", name, "gpu", what, None, one.total, one.free))
    return devices


def connect(found: Sequence[Found]) -> tuple[Link, list[Backend]]:
    """Connect to servers that were found; return their devices for a model, and its calls.

    Raises:
        PassFailed: a server has vanished since.

    """
    servers = tuple(dict.fromkeys(one.server for one in found))
    link = Link(servers)
    backends = [backend for server in servers for backend in _devices(server, link)]
    return link, backends


def layers_that_fit(found: Sequence[Found], file_bytes: int, layers: int) -> int | None:
    """Return how many layers the servers can hold; None if all of them.

    A tenth of their memory is left for keys, values and buffers.
    """
    free = sum(one.free for one in found) * 9 // 10
    if file_bytes <= free:
        return None
    count = layers * free // file_bytes
    _log.warning(
        "--rpc: the servers have %s free, the model takes %s: %d of its %d layers go there, the"
        " others stay on this machine (--gpu-layers changes that)",
        size(free), size(file_bytes), count, layers,
    )  # fmt: skip
    return count


def _look(server: Endpoint) -> list[Found]:
    """Return a server's devices: by this process's own connection, if it has one."""
    link = link_to(server)
    if link is None:
        return _ask(server)
    found = []
    for number, backend in enumerate(_devices(server, link)):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        fill = ggml().ggml_backend_dev_memory
        link.soon(fill, backend.pointer, ctypes.byref(free), ctypes.byref(total))
        found.append(Found(server, number, free.value, total.value))
    return found


def _devices(server: Endpoint, link: Link) -> list[Backend]:
    if not _connecting.acquire(timeout=_PATIENCE_S):
        raise RuntimeUnavailable(
            f"{server.name}: llama.cpp waits for a server that vanished while it connected: start"
            " edgedec again"
        )
    _connecting.release()
    reg = link.soon(_added, spelling(server).encode())
    count = ggml().ggml_backend_reg_dev_count(reg) if reg else 0
    pointers = [ggml().ggml_backend_reg_dev_get(reg, index) for index in range(count)]
    return [Backend(f"{REMOTE}{server.name}", server.name, True, one) for one in pointers]


def _added(address: bytes) -> Any:
    with _connecting:
        return client()(address)


def _ask(server: Endpoint) -> list[Found]:
    if not answers_now(server):
        raise RuntimeUnavailable(
            f"{server.name}: no server answers: start llama.cpp's rpc-server there, and check the"
            " address and the firewall"
        )
    limits = Limits(memory_bytes=None, cpu_s=None, wall_s=_PATIENCE_S)
    task = {"endpoint": f"{server.address}:{server.port}"}
    try:
        answer = ask_once(CHILD, task, limits, environment=_QUIET, telling=_telling)
        return [Found(server, number, int(free), int(total))
                for number, (free, total) in enumerate(answer)]  # fmt: skip
    except Stopped as error:
        raise RuntimeUnavailable(
            f"{server.name}: it accepts connections but cannot be used ({one_line(str(error))}):"
            " it may serve another client, of which it takes one at a time, be of another version"
            " of llama.cpp, or not be an rpc-server"
        ) from None
    except (Refused, EdgedecError, TypeError, ValueError) as error:
        raise RuntimeUnavailable(f"{server.name}: {one_line(str(error))}") from None


def _telling(output: bytes) -> str:
    """Return the line in which llama.cpp says why it ended the child."""
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines()]
    told = [line for line in lines if "RPC" in line or "connect" in line]
    line = (told or [line for line in lines if line] or ["it gave no reason"])[0]
    return one_line(line.rpartition("ggml-rpc.cpp:")[2])


def _warn(servers: Sequence[Endpoint]) -> None:
    names = ", ".join(one.name for one in servers if not one.loopback)
    if names and names not in _warned:
        _warned.add(names)
        _log.warning(
            "--rpc %s: this connection has no authentication and no encryption: use it in a network"
            " that you trust, or through an ssh tunnel",
            names,
        )
