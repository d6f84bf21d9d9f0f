"""Every package that a Raspberry Pi installs comes as a wheel: nothing is compiled on the board."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# What the guide and README have a board install; `gguf` alone is built from source there.
EXTRAS = ("export", "grammar", "hub", "serve")
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux2014_aarch64")
PYTHONS = ("3.11", "3.13")  # of Raspberry Pi OS: Bookworm, Trixie
pytestmark = [pytest.mark.network, pytest.mark.slow]


def resolved(
    requirements: list[str], python: str, folder: Path
) -> subprocess.CompletedProcess[str]:
    """Ask pip what it would install on a board; nothing is installed or kept."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--retries=1",
           "--timeout=10", "install", "--dry-run", "--report=-", "--only-binary=:all:",
           f"--target={folder}", f"--python-version={python}",
           *(f"--platform={name}" for name in PLATFORMS)]  # fmt: skip
    return subprocess.run([*pip, *requirements], capture_output=True, text=True, check=False)


@functools.cache
def reachable(folder: Path) -> bool:
    return resolved(["click"], PYTHONS[0], folder).returncode == 0


@pytest.fixture(autouse=True)
def index(tmp_path_factory: pytest.TempPathFactory) -> None:
    if not reachable(tmp_path_factory.getbasetemp()):
        pytest.skip("no package index can be reached")


@pytest.fixture
def project(repository: Path) -> dict[str, list[str]]:
    """Requirements by extra; those of the plain installation under ""."""
    found = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))["project"]
    return {"": found["dependencies"], **found["optional-dependencies"]}


@pytest.mark.parametrize("python", PYTHONS)
def test_a_board_needs_no_compiler(
    project: dict[str, list[str]], tmp_path: Path, python: str
) -> None:
    own = re.compile(r"edgedec-runtime\[(\w+)\]")  # an extra with all of another one
    requirements = []
    for extra in ("", *EXTRAS):
        for one in project[extra]:
            if (found := own.fullmatch(one)) is None:
                requirements.append(one)
            else:
                assert found[1] in EXTRAS
    done = resolved(requirements, python, tmp_path)
    assert done.returncode == 0, done.stderr
    files = [one["download_info"]["url"] for one in json.loads(done.stdout)["install"]]
    assert all(file.endswith(("_aarch64.whl", "-any.whl")) for file in files), files
    for name in ("numpy", "onnxruntime", "tokenizers", "safetensors", "llguidance"):
        assert any(f"/{name}-" in file and "aarch64" in file for file in files), name


def test_a_package_without_a_wheel_is_noticed(
    project: dict[str, list[str]], tmp_path: Path
) -> None:
    """The control: llama.cpp has none, as the guide says."""
    done = resolved(project["gguf"], PYTHONS[0], tmp_path)
    assert done.returncode != 0
    assert "No matching distribution found for llama-cpp-python" in done.stderr
