"""Classes of x86-64 processors, by what their kernels of products ask for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

EAX, EBX, ECX, EDX = range(4)
# Leaf, subleaf, register and bit of cpuid, by the name in /proc/cpuinfo.
_BITS = {
    "avx512f": (7, 0, EBX, 16), "avx512dq": (7, 0, EBX, 17), "avx512ifma": (7, 0, EBX, 21),
    "avx512cd": (7, 0, EBX, 28), "avx512bw": (7, 0, EBX, 30), "avx512vl": (7, 0, EBX, 31),
    "avx512vbmi": (7, 0, ECX, 1), "avx512_vbmi2": (7, 0, ECX, 6), "avx512_vnni": (7, 0, ECX, 11),
    "avx512_bitalg": (7, 0, ECX, 12), "avx512_vpopcntdq": (7, 0, ECX, 14),
    "avx512_vp2intersect": (7, 0, EDX, 8), "avx512_fp16": (7, 0, EDX, 23),
    "amx_bf16": (7, 0, EDX, 22), "amx_tile": (7, 0, EDX, 24), "amx_int8": (7, 0, EDX, 25),
    "avx_vnni": (7, 1, EAX, 4), "avx512_bf16": (7, 1, EAX, 5), "amx_fp16": (7, 1, EAX, 21),
    "avx_ifma": (7, 1, EAX, 23), "avx_vnni_int8": (7, 1, EDX, 4), "avx_ne_convert": (7, 1, EDX, 5),
    "avx_vnni_int16": (7, 1, EDX, 10), "avx10": (7, 1, EDX, 19),
    "sse4_2": (1, 0, ECX, 20),
}  # fmt: skip
_AVX512_CORE = ("avx512f", "avx512bw", "avx512dq", "avx512vl")
_AMX = tuple(name for name in _BITS if name.startswith("amx"))
_VNNI = ("avx_vnni", "avx_ifma", "avx_vnni_int8", "avx_ne_convert", "avx_vnni_int16")


@dataclass(frozen=True, slots=True)
class ProcessorClass:
    """A class of processors.

    Attributes:
        name: of the class.
        has: features that make it, as /proc/cpuinfo names them.
        lacks: features that its processors do not have.

    """

    name: str
    has: tuple[str, ...]
    lacks: tuple[str, ...]

    def holds(self, features: Collection[str]) -> bool:
        """Return whether a processor with these features is of this class."""
        return set(self.has) <= set(features) and not set(self.lacks) & set(features)

    def hidden(self) -> str:
        """Return its ``EDGEDEC_CPUID_HIDDEN``, see cpuid.c."""
        cleared: dict[tuple[int, int], list[int]] = {}
        for name in self.lacks:
            leaf, subleaf, register, bit = _BITS[name]
            cleared.setdefault((leaf, subleaf), [0, 0, 0, 0])[register] |= 1 << bit
        rows = ((*key, *bits) for key, bits in cleared.items())
        return ";".join(",".join(f"{number:x}" for number in row) for row in rows)

    def cpuinfo(self, here: str) -> str:
        """Return what Linux says of such a processor, given what it says of this one."""
        lines = here.splitlines(keepends=True)
        return "".join(
            " ".join(word for word in line.split(" ") if word.strip() not in self.lacks).rstrip()
            + "\n"
            if line.startswith("flags")
            else line
            for line in lines
        )


_AVX512 = tuple(name for name in _BITS if name.startswith(("avx512", "avx10", "amx")))
# AMD's Zen 1 to 3 and Intel's up to the tenth generation; Intel's for laptops and desktops since
# the twelfth; Intel's first with AVX-512; its servers since Cascade Lake, and AMD's since Zen 4.
CLASSES = {
    one.name: one
    for one in (
        ProcessorClass("avx2", ("avx2", "fma"), (*_AVX512, *_VNNI)),
        ProcessorClass("avx_vnni", ("avx2", "fma", "avx_vnni"), _AVX512),
        ProcessorClass(
            "avx512",
            ("avx2", "fma", *_AVX512_CORE),
            tuple(name for name in (*_AVX512, *_VNNI) if name not in (*_AVX512_CORE, "avx512cd")),
        ),
        ProcessorClass("avx512_vnni", ("avx2", "fma", *_AVX512_CORE, "avx512_vnni"), _AMX),
    )
}


def class_of(features: Collection[str]) -> ProcessorClass | None:
    """Return the class of a processor with these features, if it is of one."""
    return next((one for one in CLASSES.values() if one.holds(features)), None)


def features(cpuinfo: Path = Path("/proc/cpuinfo")) -> Collection[str]:
    """Return this processor's features; empty if Linux does not say."""
    try:
        lines = cpuinfo.read_text("utf-8").splitlines()
    except OSError:
        return frozenset()
    found = next((line for line in lines if line.startswith("flags")), "")
    return frozenset(found.partition(":")[2].split())
