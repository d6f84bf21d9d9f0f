"""Builds llama.cpp's speculative program from the sources inside llama-cpp-python.

The benchmarks compare with it. The version is that of the installed llama-cpp-python, so that
both sides have the same kernels. Needs cmake and a C++ compiler; takes about ten minutes on
two cores.

    python tools/build_llamacpp.py [--out build/llama.cpp]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PROGRAMS = ("llama-speculative-simple", "llama-bench")
OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=ON",
    "-DLLAMA_BUILD_TOOLS=ON",
)


# Built by gcc 12 the AMX kernels crash; no laptop has them.
WITHOUT_AMX = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"


def main() -> int:
    """Download, unpack, build."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/llama.cpp"))
    parser.add_argument("--jobs", type=int, default=2)
    chosen = parser.parse_args()
    try:
        package = f"llama-cpp-python=={version('llama-cpp-python')}"
    except PackageNotFoundError:
        print("llama-cpp-python is not installed: make gguf", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        source = _source(package, Path(name))
        cpu = Path("/proc/cpuinfo")
        amx = cpu.is_file() and "amx_tile" in cpu.read_text("ascii", errors="replace")
        flags = [f"-DCMAKE_{c}_FLAGS={WITHOUT_AMX}" for c in ("C", "CXX")] if amx else []
        subprocess.run(["cmake", "-S", source, "-B", chosen.out, *OPTIONS, *flags], check=True)
        build = ["cmake", "--build", chosen.out, "-j", str(chosen.jobs), "--target", *PROGRAMS]
        subprocess.run(build, check=True)
    print(f"built {', '.join(PROGRAMS)} in {chosen.out / 'bin'}")
    return 0


def _source(package: str, folder: Path) -> Path:
    """llama.cpp's sources, unpacked from the source package."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    subprocess.run(
        [*pip, "--no-binary", "llama-cpp-python", "--dest", str(folder), package], check=True
    )
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (source,) = folder.glob("*/vendor/llama.cpp")
    return source


if __name__ == "__main__":
    sys.exit(main())
