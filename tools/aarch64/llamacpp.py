"""llama.cpp for an emulated processor: its Python package, made by Debian's cross compiler."""

from __future__ import annotations

import shutil
import sys
import zipfile
from pathlib import Path

from tools.aarch64.debian import Cpu
from tools.aarch64.system import WORK, MissingError, do, requirements

_COMPILERS = {"C": "aarch64-linux-gnu-gcc", "CXX": "aarch64-linux-gnu-g++"}
_EXTRA = "gguf"


def built(cpu: Cpu) -> Path:
    """Return a folder with the package for a processor; made on first use, some ten minutes.

    Raises:
        MissingError: the compiler or the sources cannot be had.

    """
    folder = WORK.with_name(f"llamacpp-{cpu.name}")
    if folder.exists():
        return folder
    for program in _COMPILERS.values():
        if shutil.which(program) is None:
            what = f"g++-{program.rpartition('-')[0]}"
            raise MissingError(f"{program} is not installed: on Debian, apt install {what}")
    made = folder.with_suffix(".new")
    shutil.rmtree(made, ignore_errors=True)
    do([*_pip("wheel"), "--no-deps", "--no-binary=llama-cpp-python", f"--wheel-dir={made}",
         *requirements(_EXTRA, alone=True)], _options(cpu))  # fmt: skip
    (wheel,) = made.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        files.extractall(made)
    # What it imports beside what edgedec asks for.
    do([*_pip("install"), "--no-deps", f"--target={made}", "diskcache"])
    made.rename(folder)
    return folder


def _options(cpu: Cpu) -> dict[str, str]:
    chosen = {f"CMAKE_{name}_COMPILER": program for name, program in _COMPILERS.items()}
    chosen |= {"CMAKE_SYSTEM_NAME": "Linux", "CMAKE_SYSTEM_PROCESSOR": "aarch64"}
    chosen |= {"GGML_NATIVE": "OFF", "GGML_CPU_ARM_ARCH": cpu.compiled_for}
    chosen |= {"GGML_OPENMP": "OFF", "LLAVA_BUILD": "OFF"}
    words = ";".join(f"-D{name}={value}" for name, value in chosen.items())
    return {"SKBUILD_CMAKE_ARGS": words, "_PYTHON_HOST_PLATFORM": "linux-aarch64"}


def _pip(command: str) -> list[str]:
    # Without its cache: there is this machine's own wheel in it.
    return [sys.executable, "-m", "pip", command, "--quiet", "--no-cache-dir"]
