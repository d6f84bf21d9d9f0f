"""A place where a model can run: runtime, device, cores, threads, and format of its files."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from edgedec._support.environment import variable
from edgedec.records.load import LoadOptions

CPU = "cpu"
# Begins the name of a device of other machines: llama.cpp's RPC servers follow, HOST:PORT[,...].
REMOTE = "rpc:"
# Set to 1, it lets servers stand at public addresses, for child processes as well.
RPC_TRUST = "EDGEDEC_RPC_TRUST"


def trusting(trust: bool) -> AbstractContextManager[None]:
    """Return a context that trusts every address, also in the child processes that it starts."""
    return variable(RPC_TRUST, "1" if trust else None)


def remote_device(load: LoadOptions) -> str | None:
    """Return the name of the servers that load options spread a model over, as a device."""
    servers = load.own.get("rpc")
    return f"{REMOTE}{servers}" if servers else None


@dataclass(frozen=True, slots=True)
class Place:
    """A way to run one model.

    Attributes:
        format: of the model's files; decides the runtime.
        device: ``cpu``, or a device's name as ``edgedec devices`` lists it.
        threads: number that compute; 0 if the device does not count them.
        cores: to which they are pinned; None is any this process may use.
        provider: an execution provider of the runtime; None is the runtime's own choice.
        weight_memory: most bytes of weights in memory at once; None is all of them.

    """

    format: str
    device: str = CPU
    threads: int = 0
    cores: tuple[int, ...] | None = None
    provider: str | None = None
    weight_memory: int | None = None

    @classmethod
    def of(cls, format: str, load: LoadOptions) -> Place:
        """Return the place that these load options select for a model of this format."""
        provider = next(iter(load.providers), None)
        held, device = load.own.get("weight_memory"), remote_device(load) or load.device or CPU
        return cls(format, device, load.threads or 0, load.cores, provider, held)

    @property
    def elsewhere(self) -> bool:
        """True if weights and caches are in the memory of other machines."""
        return self.device.startswith(REMOTE)

    @property
    def label(self) -> str:
        """Short name for tables, such as ``onnx cpu:0-1 x2``."""
        where = self.provider or self.device
        if self.cores is not None:
            where += ":" + ",".join(map(str, self.cores))
        where += f" x{self.threads}" if self.threads else ""
        if self.weight_memory is not None:
            where += f" streamed in {self.weight_memory / 1e6:.0f} MB"
        return f"{self.format} {where}"

    def load_options(self, **more: Any) -> LoadOptions:
        """Return the ``LoadOptions`` of this place; ``more`` are other choices."""
        return LoadOptions(
            threads=self.threads or None,
            cores=self.cores,
            providers=() if self.provider is None else (self.provider,),
            device=None if self.device == CPU else self.device,
            **{"weight_memory": self.weight_memory, **more},
        )

    def apart_from(self, other: Place) -> bool:
        """Return whether the two can compute at once without sharing cores or a device."""
        if self.device != CPU or other.device != CPU:
            return self.device != other.device
        if self.cores is None or other.cores is None:
            return False
        return not set(self.cores) & set(other.cores)
