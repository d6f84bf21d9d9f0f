"""Estimates pass times on a device from its bandwidth, its peak and the bytes of a pass.

A pass reads all weights and the cache once, whatever its rows, and computes each row (Williams,
Waterman and Patterson, 2009)::

    launch + max((weights + cache) / bandwidth, unpacking + rows * operations / peak) + transfer

Kernels that compute with packed weights unpack none; others unpack all of them once a pass.
If the weights do not fit in a device's memory, every pass first reads the rest from storage
(2309.04255).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from benchmarks.simulation.cards import Card, DeviceCard
from edgedec.errors import InputError
from edgedec.records.place import CPU, Place
from edgedec.records.profile import Contention, Measured, Parity, PassTimes

# Bits of a stored weight with its share of scales, and the precision of its products.
FORMATS = {
    "fp32": (32.0, "fp32"),
    "fp16": (16.0, "fp16"),
    "int8": (8.5, "int8"),
    "int4": (4.5, "int8"),
}
# Stands for a runtime in places of a card.
FORMAT = "card"
_COMPUTED = {"int8": ("int8", "fp16", "fp32"), "fp16": ("fp16", "fp32"), "fp32": ("fp32",)}
_PARAMETERS = re.compile(r"(\d+(?:\.\d+)?)\s*([BM])", re.IGNORECASE)
_WIDTHS = (*range(1, 18), 20, 24, 28, 32, 48, 64)
_CONTEXTS = (32, 512, 2048, 8192, 32768)
_PREFILL_CHUNK = 256
_VOCABULARY, _CONTEXT = 32000, 4096
# Best tokens and their logits, which are all that is returned per row.
_ROW_BYTES = 64
# A decoder has about 12 h^2 parameters a layer, and models of all sizes are about 128 times as
# wide as they are deep (LLaMA, 2302.13971, table 2).
_PER_LAYER, _WIDE = 12, 128


@dataclass(frozen=True, slots=True)
class ModelSize:
    """The bytes that a pass over a model moves and the operations it computes.

    Attributes:
        name: of the model.
        parameters: number that a row is multiplied with.
        weight_bytes: as stored.
        kv_bytes_per_token: of all layers.
        layers, hidden: of the decoder.
        weights: their format, one of ``FORMATS``.
        vocab_size, max_context: as ``ModelInfo``.

    """

    name: str
    parameters: int
    weight_bytes: int
    kv_bytes_per_token: int
    layers: int
    hidden: int
    weights: str
    vocab_size: int = _VOCABULARY
    max_context: int = _CONTEXT

    @property
    def precision(self) -> str:
        """Precision of its products; a device that lacks it uses the next wider one."""
        return FORMATS[self.weights][1]

    def operations(self, context: int) -> float:
        """Return a row's multiplications and additions with ``context`` tokens in the cache."""
        return 2.0 * self.parameters + 4.0 * self.layers * self.hidden * context


def parse(text: str) -> ModelSize:
    """Parse a size as ``7B int4``; layers and cache are the usual ones, with 16 bits per number.

    Raises:
        InputError: there is no size, or the format is unknown.

    """
    words = text.split()
    found = _PARAMETERS.fullmatch(words[0]) if len(words) == 2 else None
    if found is None or words[1].lower() not in FORMATS:
        raise InputError(
            f"model {text[:40]!r}: expected a size and a format of {', '.join(FORMATS)}, "
            "as in '7B int4'"
        )
    count = float(found[1]) * {"B": 1e9, "M": 1e6}[found[2].upper()]
    if not 1e6 <= count <= 1e13:
        raise InputError(f"model {text[:40]!r}: expected 1M to 10000B parameters")
    weights = words[1].lower()
    bits = FORMATS[weights][0]
    layers = max(1, round((count / (_PER_LAYER * _WIDE**2)) ** (1 / 3)))
    hidden = round(math.sqrt(count / (_PER_LAYER * layers)))
    return ModelSize(
        name=text,
        parameters=int(count),
        weight_bytes=int(count * bits / 8),
        kv_bytes_per_token=4 * layers * hidden,
        layers=layers,
        hidden=hidden,
        weights=weights,
    )


class Roofline:
    """One model on one device of a card.

    Args:
        card: the machine. Ranges count with their middle; a card with ``fixed`` figures gives any
            other corner.
        device: a device's name.
        size: of the model.
        host: the device that the engine runs on, to which results return. None is the processor, or
            the card's first device if it has none.

    Raises:
        InputError: the card has no such device, or no link to it.

    """

    def __init__(self, card: Card, device: str, size: ModelSize, host: str | None = None) -> None:
        self.card, self.size = card, size
        self.device = card.device(device)
        self._latency_s = self._row_s = 0.0
        host = host or (CPU if CPU in card.devices else next(iter(card.devices)))
        if device != host:
            link = card.link(device, host)
            # Tokens are sent, and choices return.
            self._latency_s = 2 * link.latency_s.middle
            self._row_s = _ROW_BYTES / link.bandwidth.middle
        self._bandwidth = self.device.bandwidth.middle * self.device.bandwidth_share.middle
        self._peak = peak(self.device, size.precision) * self.device.flops_share.middle
        unpacked = self.device.unpacked.get(size.weights)
        self._unpacking_s = size.parameters / unpacked.middle if unpacked else 0.0

    @property
    def missing_bytes(self) -> int:
        """Bytes of the weights that do not fit in the device's memory."""
        return max(0, int(self.size.weight_bytes - self.device.memory_bytes.middle))

    @property
    def loading_s(self) -> float:
        """Seconds of each pass in which weights load from storage; inf without storage."""
        if not self.missing_bytes:
            return 0.0
        return math.inf if self.card.storage is None else self.missing_bytes / self.storage

    @property
    def storage(self) -> float:
        """Bandwidth of the storage, in bytes per second; 0 without storage."""
        return 0.0 if self.card.storage is None else self.card.storage.middle

    def seconds(self, rows: int, context: int) -> float:
        """Return the seconds of a pass over ``rows`` rows after ``context`` tokens."""
        size = self.size
        moved = size.weight_bytes + size.kv_bytes_per_token * context
        computed_s = self._unpacking_s + rows * size.operations(context) / self._peak
        busy = max(moved / self._bandwidth, computed_s)
        transfer = self._latency_s + rows * self._row_s
        return self.device.launch_s.middle + busy + transfer + self.loading_s

    def measured(self, role: str) -> Measured:
        """Return pass times as in a profile; unusable if the weights do not fit."""
        size, usable = self.size, math.isfinite(self.loading_s)
        contexts = [c for c in _CONTEXTS if c <= max(size.max_context, _CONTEXTS[0])]
        times = tuple(
            PassTimes(
                context,
                _WIDTHS,
                tuple(self.seconds(rows, context) for rows in _WIDTHS),
                (0.0,) * len(_WIDTHS),
            )
            for context in contexts
            if usable
        )
        chunk_s = self.seconds(_PREFILL_CHUNK, _PREFILL_CHUNK // 2) if usable else 0.0
        return Measured(
            role=role,
            name=size.name,
            place=Place(FORMAT, self.device.name),
            times=times,
            prefill_s=chunk_s / _PREFILL_CHUNK,
            load_s=size.weight_bytes / self.storage if self.storage else 0.0,
            rss_bytes=size.weight_bytes - self.missing_bytes,
            weight_bytes=size.weight_bytes,
            kv_bytes_per_token=size.kv_bytes_per_token,
            max_context=size.max_context,
            vocab_size=size.vocab_size,
            row_widths=None,
            branches=None,
            parity=Parity(1.0, 0.0, usable, "" if usable else self._too_large()),
            steady=True,
        )

    def _too_large(self) -> str:
        return (
            f"its weights take {self.size.weight_bytes / 1e9:.1f} GB, the {self.device.name} has "
            f"{self.device.memory_bytes.middle / 1e9:.1f} GB, and the card names no storage"
        )


def peak(device: DeviceCard, precision: str) -> float:
    """Return operations per second in this precision or the next wider one; else InputError."""
    for name in _COMPUTED[precision]:
        if name in device.flops:
            return device.flops[name].middle
    raise InputError(
        f"the {device.name} computes in {', '.join(device.flops)}: nothing wide enough for "
        f"{precision} weights"
    )


def contention(card: Card, target: str, draft: str) -> Contention:
    """Return how two devices of a card slow each other through the memory they share."""
    one, other = card.device(target), card.device(draft)
    factor = 1.0
    if target != draft and one.shared and other.shared:
        wanted = sum(d.bandwidth.middle * d.bandwidth_share.middle for d in (one, other))
        factor = max(1.0, wanted / max(one.bandwidth.middle, other.bandwidth.middle))
    labels = [Place(FORMAT, name).label for name in (target, draft)]
    return Contention(labels[0], labels[1], factor, factor)
