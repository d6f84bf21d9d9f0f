"""Addresses of RPC servers: which are taken, which are refused, and in which words."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest

from edgedec.errors import InputError, RuntimeUnavailable
from edgedec.records.place import RPC_TRUST, trusting
from edgedec.runtimes.llamacpp.endpoints import MOST_SERVERS, endpoints

OWN = ["127.0.0.1", "127.9.9.9", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.0.7"]
PUBLIC = [
    "8.8.8.8", "172.32.0.1", "172.15.255.255", "192.169.0.1", "11.0.0.1", "100.64.0.1", "0.0.0.0",
    "255.255.255.255", "224.0.0.1", "198.51.100.7",
]  # fmt: skip


@pytest.mark.parametrize("address", OWN)
def test_own_addresses(address: str) -> None:
    (found,) = endpoints(f"{address}:50052")
    assert (found.name, found.address, found.port) == (f"{address}:50052", address, 50052)
    assert found.loopback == address.startswith("127.")


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_need_trust(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"no authentication and no encryption.*--rpc-trust"):
        endpoints(f"127.0.0.1:1,{address}:50052")
    assert endpoints(f"{address}:50052", trust=True)[0].address == address
    monkeypatch.setenv(RPC_TRUST, "1")
    assert endpoints(f"{address}:50052")
    monkeypatch.setenv(RPC_TRUST, "0")
    with pytest.raises(InputError):
        endpoints(f"{address}:50052")


def test_a_name_is_judged_by_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address that was judged is the one connected to: no second look-up."""
    known = {"desk": "192.168.1.7", "elsewhere.example": "93.184.216.34"}

    def look_up(host: str, *_: Any) -> list[Any]:
        if host not in known:
            raise socket.gaierror("Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (known[host], 0))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    (found,) = endpoints("desk:50052")
    assert (found.name, found.address) == ("desk:50052", "192.168.1.7")
    with pytest.raises(InputError, match=r"elsewhere.example \(93.184.216.34\) is not a private"):
        endpoints("elsewhere.example:50052")
    with pytest.raises(RuntimeUnavailable, match="no IPv4 address is found for 'nowhere'"):
        endpoints("nowhere:50052")


@pytest.mark.parametrize(
    "text",
    [
        "", "127.0.0.1", "127.0.0.1:", ":50052", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:-1",
        "127.0.0.1:50052,", ",", "127.0.0.1:5x", "127.0.0.1:050052", "a b:1", "127.0.0.1:1\n2",
        "-h:1", "$(id):1", "127.0.0.1:٣", "http//x:1", "h\0st:1",
    ],
)  # fmt: skip
def test_malformed(text: str) -> None:
    with pytest.raises(InputError, match=r"expected HOST:PORT"):
        endpoints(text)


def test_other_refusals() -> None:
    with pytest.raises(InputError, match="no IPv6 address"):
        endpoints("[::1]:50052")
    with pytest.raises(InputError, match=r"127\.0\.0\.1:7 twice"):
        endpoints("127.0.0.1:7,127.0.0.1:8,127.0.0.1:7")
    many = ",".join(f"127.0.0.1:{1 + port}" for port in range(MOST_SERVERS + 1))
    with pytest.raises(InputError, match=f"{MOST_SERVERS} at most"):
        endpoints(many)
    assert len(endpoints(many.rpartition(",")[0])) == MOST_SERVERS


@pytest.mark.parametrize("before", [None, "0"])
def test_trust_ends_where_it_was_given(before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RPC_TRUST, raising=False)
    if before is not None:
        monkeypatch.setenv(RPC_TRUST, before)
    with trusting(False), pytest.raises(InputError):
        endpoints("8.8.8.8:50052")
    with trusting(True):
        assert endpoints("8.8.8.8:50052")
    assert os.environ.get(RPC_TRUST) == before
    with pytest.raises(InputError):
        endpoints("8.8.8.8:50052")
