"""nginx and HAProxy on a free loopback port, with the files of docs/deploy."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from waiting import until

DEPLOY = Path(__file__).parents[2] / "docs" / "deploy"
# Folders where Debian has them, which are not in every user's path.
_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
# What surrounds the file of nginx, as Debian's /etc/nginx/nginx.conf does.
_AROUND = """
daemon off;
{user}
pid {folder}/nginx.pid;
error_log stderr;
worker_processes 1;
events {{ worker_connections 2048; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/edgedec.conf;
}}
"""


def with_addresses(text: str, port: int, servers: Sequence[str]) -> str:
    """Return a balancer's file with other addresses in it.

    Args:
        text: of the file.
        port: what it listens on instead of 80, on the loopback device.
        servers: ``host:port`` of the two servers.

    """
    changes = {"10.0.0.11:8080": servers[0], "10.0.0.12:8080": servers[1]}
    changes |= {"listen 80;": f"listen 127.0.0.1:{port};", "bind :80": f"bind 127.0.0.1:{port}"}
    for old, new in changes.items():
        text = text.replace(old, new)
    return text


def _nginx(text: str, folder: Path) -> list[str]:
    user = "user root;" if os.getuid() == 0 else ""
    (folder / "edgedec.conf").write_text(text, "utf-8")
    (folder / "nginx.conf").write_text(_AROUND.format(folder=folder, user=user), "utf-8")
    return ["-e", "stderr", "-c", str(folder / "nginx.conf")]


def _haproxy(text: str, folder: Path) -> list[str]:
    (folder / "haproxy.cfg").write_text(text, "utf-8")
    return ["-db", "-f", str(folder / "haproxy.cfg")]


# Name of the program: its file under docs/deploy, and what gives its arguments.
BALANCERS: dict[str, tuple[str, Callable[[str, Path], list[str]]]] = {
    "nginx": ("nginx.conf", _nginx),
    "haproxy": ("haproxy.cfg", _haproxy),
}


def file_of(name: str) -> str:
    """Return the text of a balancer's file."""
    return (DEPLOY / BALANCERS[name][0]).read_text("utf-8")


def program(name: str) -> str:
    """Return a balancer's program, or skip the test."""
    found = shutil.which(name, path=_PATH)
    if found is None:
        pytest.skip(f"{name} is not installed: on Debian, apt install {name}")
    return found


@contextmanager
def balancing(name: str, servers: Sequence[str], folder: Path, text: str = "") -> Iterator[str]:
    """Run a balancer over two servers; yields its address.

    Args:
        name: of the program.
        servers: ``host:port`` of each.
        folder: an empty one, for its files.
        text: of the file; the one of docs/deploy by default.

    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    changed = with_addresses(text or file_of(name), port, servers)
    command = [program(name), *BALANCERS[name][1](changed, folder)]
    log = folder / "log"
    with log.open("w") as written:
        process = subprocess.Popen(command, stdout=written, stderr=written)

    def listens() -> bool:
        assert process.poll() is None, log.read_text()
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", port)) == 0

    try:
        until(listens)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)
