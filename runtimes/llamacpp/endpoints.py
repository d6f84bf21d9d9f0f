"""Addresses of llama.cpp's RPC servers: parsed, resolved and checked before anything connects.

The protocol has no authentication and no encryption, and a server computes any graph that it is
sent. So only addresses that no stranger can reach are taken, unless the user trusts the network.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from dataclasses import dataclass

from edgedec._support.fields import one_line
from edgedec.errors import InputError, RuntimeUnavailable
from edgedec.records.place import RPC_TRUST

# llama.cpp's limit on the devices of a model.
MOST_SERVERS = 16
_LONGEST = 4096
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")
_PORT = re.compile(r"[0-9]{1,5}")
_OWN = tuple(
    ipaddress.ip_network(network)
    for network in (
        "127.0.0.0/8",  # this machine
        "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16",  # RFC 1918
        "169.254.0.0/16",  # a cable between two machines
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server's address.

    Attributes:
        name: as the user wrote it, ``HOST:PORT``.
        address: its IPv4 address, which was checked and is the one connected to.
        port: from 1 to 65535.

    """

    name: str
    address: str
    port: int

    @property
    def loopback(self) -> bool:
        """True if it is on this machine, as the near end of a tunnel is."""
        return ipaddress.ip_address(self.address).is_loopback


def endpoints(text: str, *, trust: bool = False) -> tuple[Endpoint, ...]:
    """Return the servers that ``HOST:PORT[,HOST:PORT]`` names.

    Args:
        text: as the user gives it.
        trust: take public addresses, too; as the variable ``EDGEDEC_RPC_TRUST=1`` does.

    Raises:
        InputError: malformed, named twice, too many, or an address that is not private.
        RuntimeUnavailable: a name that cannot be resolved.

    """
    trust = trust or os.environ.get(RPC_TRUST) == "1"
    parts = [part.strip() for part in text[:_LONGEST].split(",")]
    if len(parts) > MOST_SERVERS:
        raise InputError(f"rpc names {len(parts)} servers: expected {MOST_SERVERS} at most")
    found = tuple(_endpoint(part, trust) for part in parts)
    places = [(one.address, one.port) for one in found]
    for one, place in zip(found, places, strict=True):
        if places.count(place) > 1:
            raise InputError(f"rpc names {one.name} twice: name each server once")
    return found


def _endpoint(part: str, trust: bool) -> Endpoint:
    if part.count(":") > 1:
        raise InputError(
            f"rpc {one_line(part)!r:.80}: llama.cpp takes no IPv6 address: expected HOST:PORT with"
            " a name or an IPv4 address"
        )
    host, colon, digits = part.partition(":")
    port = int(digits) if _PORT.fullmatch(digits) else 0
    if not colon or not _HOST.fullmatch(host) or not 1 <= port <= 65535:
        raise InputError(
            f"rpc {one_line(part)!r:.80}: expected HOST:PORT[,HOST:PORT], as 192.168.1.7:50052"
        )
    address = _resolved(host)
    if not trust and not any(address in network for network in _OWN):
        shown = host if host == str(address) else f"{host} ({address})"
        raise InputError(
            f"rpc {part}: {shown} is not a private address, and llama.cpp's protocol has no"
            " authentication and no encryption: use an ssh tunnel to 127.0.0.1, or --rpc-trust"
        )
    return Endpoint(part, str(address), port)


def _resolved(host: str) -> ipaddress.IPv4Address:
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
        return ipaddress.IPv4Address(found[0][4][0])
    except (OSError, UnicodeError, ValueError) as error:
        raise RuntimeUnavailable(
            f"rpc: no IPv4 address is found for {host!r:.80} ({one_line(str(error))}): check the"
            " name, or give the address"
        ) from None
