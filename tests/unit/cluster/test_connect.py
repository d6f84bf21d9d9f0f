"""What Ray raises when a cluster cannot be used is one line."""

import socket
import threading
from contextlib import suppress

import pytest

from edgedec.cluster import connect
from edgedec.errors import InputError, RuntimeUnavailable


@pytest.mark.parametrize("address", ["nowhere", "ray://10.0.0.1:10001", "10.0.0.1:", ":6379"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(InputError, match="expected HOST:PORT"), connect.connected(address):
        pass


@pytest.mark.ray
@pytest.mark.parametrize("which", ["ray_version", "python_version"])
def test_another_version_of_ray_or_python(which: str) -> None:
    """As Ray itself compares this process with a cluster."""
    import ray
    from ray._private import utils

    own = dict(zip(("ray_version", "python_version"), utils.compute_version_info(), strict=True))
    utils.check_version_info(own, "here")  # the control: nothing is raised
    with pytest.raises(RuntimeError) as raised:
        utils.check_version_info({**own, which: "1.2.3"}, "here")
    line = connect._said("10.0.0.1:6379", raised.value)
    assert line.startswith("the cluster at 10.0.0.1:6379 has another version of Ray or Python")
    assert "1.2.3" in line
    assert ray.__version__ in line
    assert "\n" not in line


def test_without_ray_the_command_that_installs_it_is_named(monkeypatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RuntimeUnavailable, match="--ray needs ray"), connect.connected("auto"):
        pass


SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
FORGED = {
    "an end": b"",
    "rubbish": b"\x00\xff" * 40,
    "another protocol": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "half an answer": SETTINGS[:5],
}


class Listener:
    """Says something to each client, and then nothing, or ends the connection."""

    def __init__(self, said: bytes, *, stays: bool = False) -> None:
        self._said, self._stays = said, stays
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._kept: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Listener":
        self._thread.start()
        return self

    def __exit__(self, *details: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for one in (self._socket, *self._kept):
            one.close()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                client = self._socket.accept()[0]
                client.sendall(self._said)
                if self._stays:
                    self._kept.append(client)
                else:
                    client.close()


@pytest.mark.parametrize("kind", FORGED)
@pytest.mark.parametrize("stays", [False, True])
def test_what_is_no_head_is_refused_before_ray_tries(kind, stays, monkeypatch) -> None:
    monkeypatch.setattr(connect, "_ray", lambda: pytest)  # in the place of Ray
    monkeypatch.setattr(connect, "_PATIENCE_S", 0.2)  # what says nothing is waited for so long
    with (
        Listener(FORGED[kind], stays=stays) as other,
        pytest.raises(
            RuntimeUnavailable, match=f"what listens at {other.address} is no head of a Ray cluster"
        ),
    ):
        connect.check(other.address)


@pytest.mark.ray
def test_a_head_that_goes_no_further_is_given_up(monkeypatch) -> None:
    monkeypatch.setattr(connect, "_LONGEST_S", 1.0)
    with (
        Listener(SETTINGS, stays=True) as head,
        pytest.raises(
            RuntimeUnavailable, match=f"the cluster at {head.address} has not let this machine in"
        ),
    ):
        connect.check(head.address)


def test_a_child_that_fails_soon_leaves_the_words_to_ray(monkeypatch) -> None:
    monkeypatch.setattr(connect, "CHILD", "edgedec.no_such_module")
    assert connect._lets_in("127.0.0.1:1")


def test_what_speaks_grpc_is_left_to_ray(monkeypatch) -> None:
    monkeypatch.setattr(connect, "_ray", lambda: pytest)
    monkeypatch.setattr(connect, "_lets_in", lambda address: True)
    with Listener(SETTINGS) as head:
        assert connect.check(head.address) is pytest
