"""Runs in the child process of ``remote``: asks one server for the memory of its devices."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from edgedec._support import _sandbox_child
from edgedec._support._sandbox_child import Refusal


def main(task: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Return the free and the total bytes of each device; llama.cpp ends the process if it fails.

    Nothing goes on from here to a model: the connection ends with this process.
    """
    from edgedec.runtimes.llamacpp.backends import ggml
    from edgedec.runtimes.llamacpp.remote import client

    add_server = client()
    if add_server is None:
        raise Refusal("unavailable", "this llama.cpp was built without RPC")
    reg = add_server(task["endpoint"].encode())
    found = []
    for index in range(ggml().ggml_backend_reg_dev_count(reg) if reg else 0):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        device = ggml().ggml_backend_reg_dev_get(reg, index)
        ggml().ggml_backend_dev_memory(device, ctypes.byref(free), ctypes.byref(total))
        found.append((free.value, total.value))
    if not found:
        raise Refusal("unavailable", "the server has no devices")
    return found


if __name__ == "__main__":
    _sandbox_child.serve(main)
