"""A relay that forwards a TCP connection late, for networks that are slower than loopback.

``tc netem`` does the same where the kernel has it. Each byte arrives half of the round trip after
it was sent, in either direction; bandwidth is not limited; the client speaks first. It runs in a
process of its own: ``python -m benchmarks.delay PORT TARGET_PORT ROUND_TRIP_MS``, both ports on
loopback.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import sys
import threading
import time
from collections.abc import Sequence

_BYTES = 1 << 16
# time.sleep oversleeps by about this much.
_LATE_S = 60e-6


def _forward(source: socket.socket, sink: socket.socket, delay_s: float) -> None:
    """Forward until the source ends, then end the sink."""
    due: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

    def send() -> None:
        with contextlib.suppress(OSError):
            while True:
                when, data = due.get()
                if (left := when - time.perf_counter() - _LATE_S) > 0:
                    time.sleep(left)
                if not data:
                    break
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=send, daemon=True).start()
    data = b"-"
    while data:
        try:
            data = source.recv(_BYTES)
        except OSError:
            data = b""
        due.put((time.perf_counter() + delay_s, data))


def _connect(near: socket.socket, target_port: int, delay_s: float) -> None:
    with contextlib.suppress(OSError):
        if not near.recv(1, socket.MSG_PEEK):
            near.close()  # it only looked whether anything listens: the target serves one client
            return
    far = socket.create_connection(("127.0.0.1", target_port))
    for end in (near, far):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for source, sink in ((near, far), (far, near)):
        threading.Thread(target=_forward, args=(source, sink, delay_s), daemon=True).start()


def main(arguments: Sequence[str]) -> None:
    """Listen and forward until the process is ended."""
    port, target_port, round_trip_ms = int(arguments[0]), int(arguments[1]), float(arguments[2])
    with socket.create_server(("127.0.0.1", port)) as listening:
        while True:
            given = (listening.accept()[0], target_port, round_trip_ms / 2e3)
            threading.Thread(target=_connect, args=given, daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1:])
