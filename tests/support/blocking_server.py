"""A server that keeps no promise: few threads, one lock, bodies that it keeps, no orderly end.

It speaks as much of the API as ``benchmarks.sections.serve_attacked`` asks for.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

LARGE, PLACES = 100_000, 6
HELD_S, ROUND_S = 0.5, 0.005
KEPT: list[bytes] = []
LOCK = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        with LOCK:
            self._begin()

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        if len(raw) > LARGE:
            with LOCK:
                KEPT.append(raw * 10)
                time.sleep(HELD_S)
                self._begin(400)
            return
        self._begin()
        for _ in range(json.loads(raw)["max_tokens"]):
            with LOCK:
                self._event("{}")
            time.sleep(ROUND_S)
        self._event('{"usage": {"completion_tokens": 1}}')
        self._event("[DONE]")

    def log_message(self, *_: Any) -> None:
        pass

    def _begin(self, status: int = 200) -> None:
        self.send_response(status)
        self.end_headers()

    def _event(self, data: str) -> None:
        self.wfile.write(f"data: {data}\n\n".encode())


class Server(HTTPServer):
    pool = ThreadPoolExecutor(PLACES)
    request_queue_size = 100

    def process_request(self, request: Any, client_address: Any) -> None:
        self.pool.submit(self._serve, request, client_address)

    def _serve(self, request: socket.socket, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError:
            pass
        finally:
            self.shutdown_request(request)


def end(*_: object) -> None:
    try:
        raise RuntimeError("told to end")
    except RuntimeError:
        traceback.print_exc()
    os._exit(1)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end)
    server = Server(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    sys.setswitchinterval(0.001)
    server.serve_forever()
