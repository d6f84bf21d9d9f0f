"""Device cards: descriptions of other machines, every figure with its source.

A card is a TOML file. Its figures are values or ranges with their sources::

    [devices.gpu.bandwidth]
    value = 112e9  # or range = [low, high]
    kind = "datasheet"  # or measured, derived, estimate
    source = "NVIDIA GeForce GTX 1050 (laptop), specifications"
    url = "https://..."  # of data sheets and measurements
    note = "128 bits at 7 Gbit/s"  # how it was derived, or why it is thought to be so
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.simulation.figures import CardFields, Figure
from edgedec._support.fields import one_line
from edgedec.errors import InputError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PRECISIONS = ("fp32", "fp16", "int8")
PACKED = ("int8", "int4")
MOST_BYTES = 1 << 17
# Figures beyond these are unit errors; within them seconds stay finite. Bytes or operations per
# second and bytes, shares of a peak, seconds.
_RATE = {"least": 1e3, "most": 1e18}
_SHARE = {"least": 1e-3, "most": 1.0}
_TIME = {"least": 1e-12, "most": 60.0}
_FOLDER = Path(__file__).parent / "cards"


@dataclass(frozen=True, slots=True)
class DeviceCard:
    """One device of a machine.

    Attributes:
        name: on its card.
        kind: ``cpu``, ``gpu`` or ``npu``.
        description: the vendor's name for it.
        shared: its memory is the machine's; else its own.
        memory_bytes: that it can use.
        bandwidth: of its memory, bytes per second, peak.
        bandwidth_share: of that peak which a pass over one row reaches, 0..1.
        flops: multiplications and additions per second, peak, by precision.
        flops_share: of that peak which a pass over many rows reaches, 0..1.
        launch_s: per-pass overhead, in seconds.
        unpacked: weights per second that kernels turn into numbers to compute with, once a pass
            whatever its rows, by the weights' format; not named where products read packed weights.

    """

    name: str
    kind: str
    description: str
    shared: bool
    memory_bytes: Figure
    bandwidth: Figure
    bandwidth_share: Figure
    flops: Mapping[str, Figure]
    flops_share: Figure
    launch_s: Figure
    unpacked: Mapping[str, Figure] = field(default_factory=dict)

    def figures(self) -> dict[str, Figure]:
        """Return all figures by name; those of ``flops`` as ``flops.fp16``."""
        found = {name: getattr(self, name) for name in DEVICE_FIGURES}
        for table in ("flops", "unpacked"):
            found |= {f"{table}.{name}": at for name, at in getattr(self, table).items()}
        return found

    def replaced(self, figures: Mapping[str, Figure]) -> DeviceCard:
        """Return the same device with these figures, by name, instead of its own."""
        get = figures.get
        return replace(
            self,
            memory_bytes=get("memory_bytes", self.memory_bytes),
            bandwidth=get("bandwidth", self.bandwidth),
            bandwidth_share=get("bandwidth_share", self.bandwidth_share),
            flops={name: get(f"flops.{name}", own) for name, own in self.flops.items()},
            unpacked={name: get(f"unpacked.{name}", own) for name, own in self.unpacked.items()},
            flops_share=get("flops_share", self.flops_share),
            launch_s=get("launch_s", self.launch_s),
        )


DEVICE_FIGURES = ("memory_bytes", "bandwidth", "bandwidth_share", "flops_share", "launch_s")


@dataclass(frozen=True, slots=True)
class Link:
    """The connection between two devices of a machine.

    Attributes:
        between: their names.
        bandwidth: bytes per second, one way.
        latency_s: seconds of the smallest transfer, including its start.

    """

    between: tuple[str, str]
    bandwidth: Figure
    latency_s: Figure

    @property
    def label(self) -> str:
        """Name of its two ends."""
        return "-".join(self.between)


@dataclass(frozen=True, slots=True)
class Card:
    """A machine.

    Attributes:
        name: of the card.
        description: the machine in words.
        devices: by name.
        links: between devices.
        storage: bytes per second read from its disk or flash; None if not needed.

    """

    name: str
    description: str
    devices: Mapping[str, DeviceCard]
    links: tuple[Link, ...] = ()
    storage: Figure | None = field(default=None)

    def device(self, name: str) -> DeviceCard:
        """Return one of its devices; InputError if there is none of this name."""
        if name not in self.devices:
            raise InputError(
                f"card {self.name} has no device {name!r}: it has {', '.join(self.devices)}"
            )
        return self.devices[name]

    def link(self, one: str, other: str) -> Link:
        """Return the link between two devices; InputError if the card has none."""
        for link in self.links:
            if set(link.between) == {one, other}:
                return link
        raise InputError(f"card {self.name} has no link between {one} and {other}")

    def figures(self) -> dict[str, Figure]:
        """Return all figures, by their path on the card."""
        found = {
            f"devices.{device.name}.{name}": figure
            for device in self.devices.values()
            for name, figure in device.figures().items()
        }
        for link in self.links:
            where = f"links.{link.label}"
            found |= {f"{where}.bandwidth": link.bandwidth, f"{where}.latency_s": link.latency_s}
        return found | ({} if self.storage is None else {"storage": self.storage})

    def fixed(self, values: Mapping[str, float]) -> Card:
        """Return the same machine with some figures known exactly, such as a corner of their
        ranges.

        Args:
            values: by their path on the card, as in ``figures``.

        Raises:
            InputError: there is no such figure.

        """
        own = self.figures()
        for where in values:
            if where not in own:
                raise InputError(f"card {self.name} has no figure {where!r}")
        own |= {where: own[where].fixed(value) for where, value in values.items()}

        def below(where: str) -> dict[str, Figure]:
            return {name[len(where) :]: own[name] for name in own if name.startswith(where)}

        devices = {
            name: device.replaced(below(f"devices.{name}."))
            for name, device in self.devices.items()
        }
        links = tuple(
            replace(
                link,
                bandwidth=own[f"links.{link.label}.bandwidth"],
                latency_s=own[f"links.{link.label}.latency_s"],
            )
            for link in self.links
        )
        return replace(self, devices=devices, links=links, storage=own.get("storage"))


def names() -> list[str]:
    """Return the names of the cards in the package."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def load(name_or_path: str | Path) -> Card:
    """Return a card of the package by its name, or one from a file.

    Raises:
        InputError: there is none, it is too large, or an entry is missing, unknown or not a figure.

    """
    path = Path(name_or_path)
    if str(name_or_path) in names():
        path = _FOLDER / f"{name_or_path}.toml"
    elif path.suffix != ".toml":
        raise InputError(
            f"no device card {str(name_or_path)[:80]!r}: expected {', '.join(names())}, "
            "or a .toml file"
        )
    return _card(CardFields(_parse(path), one_line(path.name)))


def _parse(path: Path) -> dict[str, object]:
    if not path.is_file():  # a pipe would block
        raise InputError(f"cannot read the card {one_line(str(path))}: there is no such file")
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read the card {one_line(str(path))}: {error.strerror}") from None
    if len(raw) > MOST_BYTES:
        raise InputError(
            f"{one_line(path.name)} is larger than a device card can be ({MOST_BYTES} bytes)"
        )
    try:
        found: dict[str, object] = tomllib.loads(raw.decode("utf-8"))
    # Deeply nested brackets exceed the parser's recursion limit.
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{one_line(path.name)} is not a device card: {one_line(reason)}"
        ) from None
    return found


def _card(reader: CardFields) -> Card:
    reader.only("name", "description", "devices", "links", "storage")
    devices = {name: _device(name, inner) for name, inner in reader.tables("devices")}
    if not devices:
        raise reader.wrong("devices", "at least one")
    links = reader.tables("links") if reader.has("links") else []
    return Card(
        name=reader.line("name"),
        description=reader.line("description"),
        devices=devices,
        links=tuple(_link(inner, devices) for _, inner in links),
        storage=reader.figure("storage", **_RATE) if reader.has("storage") else None,
    )


def _device(name: str, reader: CardFields) -> DeviceCard:
    reader.only("kind", "description", "memory", "flops", "unpacked", *DEVICE_FIGURES)
    peaks = _rates(reader.object("flops"), PRECISIONS)
    if not peaks:
        raise reader.wrong("flops", f"one or more of {', '.join(PRECISIONS)}")
    return DeviceCard(
        name=name,
        kind=reader.choice("kind", ("cpu", "gpu", "npu")),
        description=reader.line("description"),
        shared=reader.choice("memory", ("own", "shared")) == "shared",
        memory_bytes=reader.figure("memory_bytes", **_RATE),
        bandwidth=reader.figure("bandwidth", **_RATE),
        bandwidth_share=reader.figure("bandwidth_share", **_SHARE),
        flops=peaks,
        flops_share=reader.figure("flops_share", **_SHARE),
        launch_s=reader.figure("launch_s", **_TIME),
        unpacked=_rates(reader.object("unpacked"), PACKED) if reader.has("unpacked") else {},
    )


def _rates(reader: CardFields, known: Sequence[str]) -> dict[str, Figure]:
    reader.only(*known)
    return {name: reader.figure(name, **_RATE) for name in known if reader.has(name)}


def _link(reader: CardFields, devices: Mapping[str, DeviceCard]) -> Link:
    reader.only("between", "bandwidth", "latency_s")
    ends = reader.texts("between")
    if len(ends) != 2 or ends[0] == ends[1] or not set(ends) <= set(devices):
        raise reader.wrong("between", f"two of {', '.join(devices)}")
    return Link(
        between=(ends[0], ends[1]),
        bandwidth=reader.figure("bandwidth", **_RATE),
        latency_s=reader.figure("latency_s", **_TIME),
    )
