"""Copies of runtimes whose cpuid instructions trap, and the environment that answers the traps.

A runtime chooses its kernels by cpuid, which a process cannot have emulated on every machine. So
each cpuid of its libraries is overwritten with a trap of the same length, and a preloaded library
(cpuid.c) answers. All other instructions run as they are, at full speed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

from tools.processor_class.classes import ProcessorClass, features

REPOSITORY = Path(__file__).resolve().parents[2]
WORK = REPOSITORY / "build" / "processor_class"
PACKAGES = ("onnxruntime", "openvino")
# Devices that compute nothing here.
_LEFT_OUT = shutil.ignore_patterns("*_gpu_plugin*", "*_npu_plugin*", "*_auto_*", "__pycache__")
_SOURCE = Path(__file__).with_name("cpuid.c")
_PROGRAMS = {"gcc": "gcc", "objdump": "binutils"}
_CPUID, _TRAP = b"\x0f\xa2", b"\xcc\x90"
_LOAD, _EXECUTABLE = 1, 1


class MissingError(Exception):
    """A program or a feature that cannot be had here; the message says which."""


def seen_as(wanted: ProcessorClass) -> dict[str, str]:
    """Return what to add to the environment of a program that shall see a class of processors.

    Nothing on a processor of that class. The copies are made on first use, in about a minute.

    Raises:
        MissingError: this processor has too little, or something is not installed.

    """
    here = features()
    if platform.machine().lower() not in ("x86_64", "amd64") or not here:
        raise MissingError(f"this is {platform.system()} on {platform.machine()}, not x86-64 Linux")
    if missing := set(wanted.has) - set(here):
        raise MissingError(f"this one lacks {', '.join(sorted(missing))}")
    return {} if wanted.holds(here) else masked(wanted, WORK)


def masked(wanted: ProcessorClass, work: Path) -> dict[str, str]:
    """Return ``seen_as`` of a class whose processors have less, with the copies in a folder."""
    for program, package in _PROGRAMS.items():
        if shutil.which(program) is None:
            raise MissingError(f"{program} is not installed: on Debian, apt install {package}")
    preloaded, copies = _library(work), _copies(work)
    own = work / wanted.name
    own.mkdir(parents=True, exist_ok=True)
    cpuinfo = own / "cpuinfo"
    cpuinfo.write_text(wanted.cpuinfo(Path("/proc/cpuinfo").read_text("utf-8")), "utf-8")
    before = os.environ.get("PYTHONPATH")
    return {
        "LD_PRELOAD": str(preloaded),
        "EDGEDEC_CPUID_HIDDEN": wanted.hidden(),
        "EDGEDEC_CPUINFO": str(cpuinfo),
        "PYTHONPATH": os.pathsep.join([str(copies), *([before] if before else [])]),
        "XDG_CACHE_HOME": str(own / "cache"),
    }


def trap(file: Path) -> int:
    """Overwrite the cpuid instructions of a library or program; return how many there were."""
    data = bytearray(file.read_bytes())
    if _CPUID not in data:
        return 0
    segments = list(_segments(data))
    found = 0
    for address in _instructions(file):
        for offset, start, size in segments:
            if start <= address < start + size:
                at = address - start + offset
                if data[at : at + 2] != _CPUID:
                    raise MissingError(f"{file.name}: no cpuid where objdump sees one")
                data[at : at + 2] = _TRAP
                found += 1
    if found:
        file.write_bytes(data)
    return found


def _instructions(file: Path) -> Iterator[int]:
    """Yield the addresses of a file's cpuid instructions."""
    words = ["objdump", "--disassemble", "--no-show-raw-insn", str(file)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.match(r"\s*([0-9a-f]+):\s+cpuid\b", line):
                yield int(found[1], 16)
    if process.returncode:
        raise MissingError(f"objdump cannot read {file.name}")


def _segments(data: bytes | bytearray) -> Iterator[tuple[int, int, int]]:
    """Yield offset, address and size of what an ELF file of 64 bits maps as executable."""
    table, size, count = *struct.unpack_from("<Q", data, 32), *struct.unpack_from("<HH", data, 54)
    for index in range(count):
        kind, flags, offset, address, _, length = struct.unpack_from(
            "<IIQQQQ", data, table + index * size
        )
        if kind == _LOAD and flags & _EXECUTABLE:
            yield offset, address, length


def _library(work: Path) -> Path:
    """Compile the library to preload."""
    out = work / f"cpuid-{hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:12]}.so"
    if not out.exists():
        work.mkdir(parents=True, exist_ok=True)
        part = out.with_suffix(f".{os.getpid()}")
        words = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        done = subprocess.run(
            [*words, "-o", part, _SOURCE, "-ldl"], capture_output=True, text=True, check=False
        )
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:]
            raise MissingError(f"gcc failed: {''.join(last)}")
        part.replace(out)
    return out


def _copies(work: Path) -> Path:
    """Copy the packages that are installed, with traps; return the folder that holds them."""
    found = dict(_installed())
    if not found:
        raise MissingError(f"none of {', '.join(PACKAGES)} is installed")
    state = [sorted(_versions(found).items()), Path(__file__).read_text("utf-8")]
    out = work / hashlib.sha256(repr(state).encode()).hexdigest()[:12]
    if not out.exists():
        part = work / f"{out.name}.{os.getpid()}"
        for name, folder in found.items():
            shutil.copytree(folder, part / name, ignore=_LEFT_OUT)
        libraries = [file for file in part.rglob("*.so*") if file.is_file()]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            if not sum(pool.map(trap, libraries)):
                raise MissingError(f"no library of {', '.join(found)} asks the processor")
        part.rename(out)
    return out


def _installed() -> Iterator[tuple[str, Path]]:
    for name in PACKAGES:
        if (spec := importlib.util.find_spec(name)) is not None and spec.origin:
            yield name, Path(spec.origin).parent


def _versions(found: Mapping[str, Path]) -> dict[str, str]:
    return {name: metadata.version(name) for name in found}
