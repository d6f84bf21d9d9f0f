"""A hub on a loopback port, as huggingface_hub speaks to one: for tests of what is fetched.

It answers ``/api/models/...`` and ``/{repo}/resolve/{commit}/{file}``; large files are behind a
redirect and can be asked for in ranges. What goes wrong is chosen by the attributes of ``Hub``.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "a" * 40
_LARGE = (".safetensors", ".gguf")


@dataclass
class Hub:
    """What is served, and how it fails.

    Attributes:
        files: contents by name, of the one repository ``repo``.
        commit: of the default branch.
        gated: answer as for a gated model to whom has no token.
        token: refuse every other token with 401.
        cut: bytes of a large file after which connections break, so often; then no more.
        parameters: in its safetensors; None if the hub does not say.
        replaced: contents sent in the place of a file's.
        requests: (method, path, range) of each request.

    """

    repo: str
    files: dict[str, bytes]
    commit: str = COMMIT
    gated: bool = False
    token: str | None = None
    parameters: int | None = None
    cut: list[int] = field(default_factory=list)
    replaced: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    address: str = ""

    def fetched(self, name: str) -> int:
        """How often a file's bytes were asked for."""
        return sum(
            method == "GET" and path.endswith(f"/{name}") and "/api/" not in path
            for method, path, _ in self.requests
        )

    def info(self) -> dict[str, Any]:
        counted = {} if self.parameters is None else {"F16": self.parameters}
        return {
            "safetensors": {"parameters": counted, "total": self.parameters} if counted else None,
            "id": self.repo,
            "modelId": self.repo,
            "sha": self.commit,
            "gated": "manual" if self.gated else False,
            "cardData": {"license": "apache-2.0"},
            "siblings": [self._sibling(name) for name in self.files],
        }

    def _sibling(self, name: str) -> dict[str, Any]:
        data = self.files[name]
        found = {"rfilename": name, "size": len(data), "blobId": git_sha1(data)}
        if name.endswith(_LARGE):
            sha256 = hashlib.sha256(data).hexdigest()
            found["lfs"] = {"sha256": sha256, "size": len(data), "pointerSize": 134}
        return found


def git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@contextmanager
def serving(hub: Hub, *more: Hub) -> Iterator[Hub]:
    """Serve a hub on a free loopback port while the block runs; ``more`` are other repositories."""
    hubs = {one.repo: one for one in (hub, *more)}
    handler = type("Handler", (_Handler,), {"hub": hub, "hubs": hubs})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    for one in hubs.values():
        one.address = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    hubs: Mapping[str, Hub]
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on standard error."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        asked = re.match(r"/(?:api/models/|cdn/)?([^/]+/[^/]+)", path)
        self.hub = hub = self.hubs.get(asked[1] if asked else "", self.hub)
        hub.requests.append((self.command, path, self.headers.get("Range")))
        sent = self.headers.get("Authorization", "").removeprefix("Bearer ") or None
        if hub.token is not None and sent is not None and sent != hub.token:
            self._error(401, message="Invalid credentials in Authorization header")
        elif found := re.fullmatch(rf"/api/models/{hub.repo}(?:/revision/(.+))?", path):
            self._api(found[1], sent)
        elif found := re.fullmatch(rf"/{hub.repo}/resolve/([0-9a-f]{{40}})/(.+)", path):
            self._resolve(found[2], sent)
        elif path.startswith("/cdn/"):
            name = path.removeprefix(f"/cdn/{hub.repo}/")
            self._send(hub.files[name], name)
        else:
            self._error(404, code="RepoNotFound")

    def _api(self, revision: str | None, sent: str | None) -> None:
        if revision not in (None, "main", self.hub.commit):
            self._error(404, code="RevisionNotFound")
            return
        data = json.dumps(self.hub.info()).encode()
        self._headers(200, len(data), {"Content-Type": "application/json"})
        self.wfile.write(data)

    def _resolve(self, name: str, sent: str | None) -> None:
        hub = self.hub
        if hub.gated and sent is None:
            self._error(401, code="GatedRepo")
            return
        data = hub.files.get(name)
        if data is None:
            self._error(404, code="EntryNotFound")
            return
        commit = {"X-Repo-Commit": self.hub.commit}
        if name.endswith(_LARGE):
            # Another host, as the hub's is: what is there has none of the hub's headers.
            other = hub.address.replace("127.0.0.1", "localhost")
            about = {
                "Location": f"{other}/cdn/{hub.repo}/{name}",
                "X-Linked-Etag": f'"{hashlib.sha256(data).hexdigest()}"',
                "X-Linked-Size": str(len(data)),
            }
            self._headers(302, 0, commit | about)
        else:
            self._send(data, name, commit | {"ETag": f'"{git_sha1(data)}"'})

    def _send(self, data: bytes, name: str, headers: dict[str, str] | None = None) -> None:
        """Send a file, or the range of it that was asked for, or less if it is to break."""
        data = self.hub.replaced.get(name, data)
        start, status, more = 0, 200, {"Accept-Ranges": "bytes", **(headers or {})}
        if asked := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or ""):
            start, status = int(asked[1]), 206
            more["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        body = data[start:]
        self._headers(status, len(body), more)
        if self.command == "HEAD":
            return
        if self.hub.cut and name.endswith(_LARGE):
            body = body[: self.hub.cut.pop(0)]
            self.close_connection = True
        self.wfile.write(body)

    def _error(self, status: int, code: str = "", message: str = "") -> None:
        named = {"X-Error-Code": code, "X-Error-Message": message}
        self._headers(status, 0, {name: value for name, value in named.items() if value})

    def _headers(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(length), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
