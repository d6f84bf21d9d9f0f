"""Serves this machine's devices to another machine's llama.cpp, as its ``rpc-server`` does.

``python -m edgedec.runtimes.llamacpp.rpc_server --host 192.168.1.7 --port 50052`` runs the server
that is in the installed llama.cpp, which therefore speaks the version of a client that is installed
alike. It serves one client at a time, without authentication or encryption, until it is ended.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import threading
import time
from collections.abc import Sequence

from edgedec.errors import EdgedecError, InputError, RuntimeUnavailable

_LOOK_S = 5.0


def serve(host: str, port: int, threads: int, devices: Sequence[str] = ()) -> None:
    """Serve until the process ends; returns if the server cannot be started.

    Args:
        host: an IPv4 address of this machine.
        port: to listen on.
        threads: for the processor.
        devices: names as ``edgedec devices`` lists them; empty is all that take layers, or the
            processor if there is no other.

    Raises:
        RuntimeUnavailable: this llama.cpp has no RPC.
        InputError: no such device.

    """
    from edgedec.runtimes.llamacpp.backends import find_backends
    from edgedec.runtimes.llamacpp.remote import how, start_server

    run = start_server()
    if run is None:
        raise RuntimeUnavailable(f"this llama.cpp is built without RPC: {how()}")
    here = find_backends()
    chosen = [one for one in here if one.name.lower() in [name.lower() for name in devices]]
    if len(chosen) < len(devices):
        known = ", ".join(one.name for one in here)
        raise InputError(f"devices {', '.join(devices)}: expected some of {known}")
    others = [one for one in here if one.takes_layers]
    chosen = chosen or others or [one for one in here if one.name == "CPU"]
    threading.Thread(target=_watch, args=(port,), daemon=True).start()
    pointers = (ctypes.c_void_p * len(chosen))(*(one.pointer for one in chosen))
    run(f"{host}:{port}".encode(), None, threads, len(chosen), pointers)


def _watch(port: int) -> None:
    """Notice clients that are gone without a word: until then, no other would be served."""
    from edgedec.runtimes.llamacpp.connections import connections, keep_asking

    while True:
        time.sleep(_LOOK_S)
        for _, connection in connections():
            if connection.getsockname()[1] == port:
                keep_asking(connection)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and serve; return the exit code of a server that did not start."""
    from edgedec.hardware.device import available_cores
    from edgedec.runtimes.llamacpp.endpoints import endpoints

    parser = argparse.ArgumentParser(prog="rpc_server", description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=50052)
    parser.add_argument("--threads", type=int, default=available_cores())
    parser.add_argument("--device", action="append", default=[], help="repeatable")
    parser.add_argument("--rpc-trust", action="store_true", help="also listen on public addresses")
    given = parser.parse_args(arguments)
    try:
        (here,) = endpoints(f"{given.host}:{given.port}", trust=given.rpc_trust)
        if not here.loopback:
            sys.stderr.write(
                f"{here.name}: anybody who can connect can use it, without a password\n"
            )
        serve(given.host, given.port, given.threads, given.device)
    except EdgedecError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stderr.write(f"the server cannot listen on {given.host}:{given.port}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
