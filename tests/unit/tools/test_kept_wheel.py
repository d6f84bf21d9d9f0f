"""A package that `.ci/run` builds from source is built once for each kind of machine."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

CPU = "processor : {}\nmodel name : some\nmodel : 25\ncpu MHz : {}\nflags : {}\n"
SETTINGS = {"python": "cpython-311 linux-x86_64", "CMAKE_ARGS": "-DGGML_RPC=on"}


@pytest.fixture
def program(repository: Path) -> ModuleType:
    file = repository / ".ci" / "kept_wheel.py"
    spec = importlib.util.spec_from_file_location("kept_wheel", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_folder_is_that_of_the_processor(program: ModuleType) -> None:
    def named(flags: str, mhz: int = 1000, name: str = "p>=1", **settings: str) -> str:
        cores = "\n".join(CPU.format(core, mhz + core, flags) for core in range(2))
        found: str = program.digest(name, cores, {**SETTINGS, **settings})
        return found

    one = named("fma avx2")
    # A digest that never changed, or changed with every start, would pass one half of this.
    assert named("avx2 fma", 3000) == one
    others = [
        named("fma avx2 avx512f"),
        named("fma avx2", CMAKE_ARGS=""),
        named("fma avx2", python="cpython-312 linux-x86_64"),
        named("fma avx2", name="p>=2"),
    ]
    assert len({one, *others}) == 5


def test_this_processor_has_features(program: ModuleType) -> None:
    if not Path("/proc/cpuinfo").exists():
        pytest.skip("no /proc/cpuinfo")
    settings = program.settings()
    assert program.digest("p", program.cpuinfo(), settings) != program.digest("p", "", settings)


SETUP = """
import os, setuptools
from setuptools.command.build import build

class Counted(build):
    def run(self):
        open(os.environ["BUILDS"], "a").write("one\\n")
        if os.environ.get("CFLAGS") == "wrong":
            raise SystemExit("no compiler")
        super().run()

setuptools.setup(name="native", version="{}", py_modules=[], cmdclass={{"build": Counted}})
"""


@pytest.mark.full
def test_it_is_built_once(program: ModuleType, tmp_path: Path) -> None:
    sources, cache, builds = tmp_path / "index", tmp_path / "cache", tmp_path / "builds"
    sources.mkdir()

    def publish(version: str) -> None:
        folder = tmp_path / version
        folder.mkdir()
        (folder / "setup.py").write_text(SETUP.format(version), "utf-8")
        command = [sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", str(sources)]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)

    def call(**settings: str) -> tuple[int, list[str], int]:
        """The exit code, the wheels of the folder that was printed, and the builds so far."""
        # pip's own switch: "no" to "no build isolation" is what turns it off.
        there = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(sources), "PIP_NO_BUILD_ISOLATION": "0"}
        command = (
            f"import sys; sys.path.insert(0, {str(Path(program.__file__).parent)!r})\n"
            f"from pathlib import Path\nimport kept_wheel\n"
            f"sys.exit(kept_wheel.main('native>=1', Path({str(cache)!r})))"
        )
        done = subprocess.run(
            [sys.executable, "-c", command], capture_output=True, text=True,
            env={**os.environ, **there, "BUILDS": str(builds), **settings},
        )  # fmt: skip
        folder = done.stdout.strip()
        wheels = sorted(file.name for file in Path(folder).glob("*.whl")) if folder else []
        count = len(builds.read_text("utf-8").splitlines()) if builds.exists() else 0
        return done.returncode, [name.split("-")[1] for name in wheels], count

    publish("1.0")
    assert call() == (0, ["1.0"], 1)
    assert call() == (0, ["1.0"], 1)
    assert call(CMAKE_ARGS="-DOTHER=on") == (0, ["1.0"], 2)
    assert call(CFLAGS="wrong") == (1, [], 3)
    publish("2.0")
    assert call() == (0, ["1.0", "2.0"], 4)
    assert call() == (0, ["1.0", "2.0"], 4)
    for number in range(program.FORMER + 1):
        assert call(CFLAGS=f"-DNUMBER={number}")[0] == 0
    assert len(list(cache.iterdir())) == program.FORMER + 1
