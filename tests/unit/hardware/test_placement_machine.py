"""The facts that measurements hold for."""

import hashlib
import itertools
import platform
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import edgedec
from edgedec.hardware import cgroup, machine
from edgedec.hardware.clusters import Cluster
from edgedec.hardware.machine import Memory, difference, machine_facts, memory, package_versions
from edgedec.runtimes import registry
from tools.aarch64.debian import A72, A76

GB = 1 << 30


def test_facts_are_words_and_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = machine_facts()
    assert facts == machine_facts()
    assert set(facts) == {"cpu", "cores", "memory", "system", "machine"}
    assert all(isinstance(value, str) for value in facts.values())
    # What comes and goes is no fact of the machine.
    monkeypatch.setattr(machine, "memory", lambda: Memory(memory().total, 1, None))
    assert facts == machine_facts()
    monkeypatch.setattr(machine, "memory", lambda: Memory(GB, 1, None))
    assert machine_facts()["memory"] == "1 GB" != facts["memory"]


def test_a_containers_share_is_a_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "processors", lambda: None)
    whole = machine_facts()
    monkeypatch.setattr(cgroup, "processors", lambda: 0.5)
    half = machine_facts()
    assert half["cores"] == f"{whole['cores']}; the time of 0.5 for this process"
    assert half["cores"] != whole["cores"]


@pytest.mark.parametrize(
    ("told", "sold"),
    [(3.71, "4 GB"), (7.63, "8 GB"), (15.4, "16 GB"), (15.6, "16 GB"), (11.5, "12 GB"),
     (23.54, "24 GB"), (0.45, "0.5 GB"), (62.7, "64 GB"), (5.6, "6 GB")],
)  # fmt: skip
def test_memory_as_it_is_sold(told: float, sold: str) -> None:
    """A new kernel keeps a little more or less; that is no other machine."""
    assert machine._rounded(int(told * GB)) == sold
    assert machine._rounded(int(told * 2 * GB)) != sold
    assert machine._rounded(None) == "unknown"


def test_nothing_private_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_machine_id", lambda: "3d1219c7c4c5404a")
    stored = machine_facts()["machine"]
    assert len(stored) == 16
    assert "3d1219c7c4c5404a" not in stored
    # Nor the plain hash, which could be looked up.
    assert stored != hashlib.sha256(b"3d1219c7c4c5404a").hexdigest()[:16]
    monkeypatch.setattr(machine, "_machine_id", lambda: "another")
    assert machine_facts()["machine"] != stored
    monkeypatch.setattr(machine, "_machine_id", lambda: "")
    assert machine_facts()["machine"] == ""


def test_the_maker_of_a_raspberry_pi_and_of_an_intel(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    file = tmp_path / "proc/cpuinfo"
    file.write_text(
        "processor\t: 0\nFeatures : asimd\n\nModel\t: Raspberry Pi 5 Model B\n", "utf-8"
    )
    assert machine.cpu_fields(tmp_path)["model"] == "Raspberry Pi 5 Model B"
    file.write_text("model\t\t: 167\nmodel name\t: Intel(R) Xeon(R)\nmodel name : x\n", "utf-8")
    assert machine.cpu_fields(tmp_path) == {"model name": "Intel(R) Xeon(R)"}


@pytest.mark.parametrize(
    ("name", "cpuinfo", "expected"),
    [
        ("x86_64", "flags : avx2 avx512_vnni\n", "x86-64"),
        ("AMD64", None, "x86-64"),
        ("aarch64", f"processor : 0\n{A76.info()}", "ARM with dot products"),
        ("aarch64", A72.info(), "ARM without dot products"),
        ("aarch64", "Features : fp asimd asimddpx\n", "ARM without dot products"),
        ("ARM64", None, "ARM"),
        ("riscv64", "isa : rv64imafdc\n", "riscv64"),
        ("", None, "unknown"),
    ],
)
def test_the_class_of_a_processor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, cpuinfo: str | None, expected: str
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: name)
    monkeypatch.setattr(sys, "platform", "linux")
    (tmp_path / "proc").mkdir()
    if cpuinfo is not None:
        (tmp_path / "proc" / "cpuinfo").write_text(cpuinfo, "utf-8")
    assert machine.cpu_class(tmp_path) == expected


def test_macs_with_arm_have_dot_products(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert machine.cpu_class(tmp_path) == "ARM with dot products"


def test_clusters_in_words() -> None:
    phone = Cluster((4, 5, 6), (4, 5, 6), 2420.0, 871, "middle")
    assert machine.describe(phone) == "3 middle cores at 2420 MHz"
    assert machine.describe(Cluster((0,), (0, 1), None, None, "all")) == "1 core of 2 threads"


PACKAGES = registry.packages()


def test_versions_name_what_computes() -> None:
    found = package_versions(PACKAGES)
    assert found["edgedec"]
    assert found["onnxruntime"].startswith(metadata.version("onnxruntime") + "+")
    assert found["numpy"].startswith(metadata.version("numpy"))
    assert list(found) == sorted(found)
    assert "click" not in found


class Installed:
    """A distribution on disk, in a folder as pip makes it, or another."""

    def __init__(self, name: str | None, version: str, record: str, folder: str = "") -> None:
        self.name, self.version, self.record = name, version, record
        self.folder = folder or f"{name}-{version}.dist-info"

    def write(self, place: Path) -> None:
        folder = place / self.folder
        folder.mkdir(parents=True)
        (folder / "RECORD").write_text(self.record, "utf-8")
        named = "" if self.name is None else f"Name: {self.name}\n"
        head = f"Metadata-Version: 2.1\n{named}Version: {self.version}\n"
        (folder / "METADATA").write_text(head, "utf-8")


@pytest.fixture
def versions_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
    """Return the versions where nothing but these is installed, each in a place of its own."""
    places = itertools.count()

    def call(*installed: Installed) -> dict[str, str]:
        path = [str(tmp_path / str(next(places))) for _ in installed]
        for one, place in zip(installed, path, strict=True):
            one.write(Path(place))
        monkeypatch.setattr(sys, "path", ["/nothing/here", *path])
        return package_versions(PACKAGES)

    return call


def test_another_build_under_one_version(versions_of: Callable[..., dict[str, str]]) -> None:
    name, version = "llama_cpp_python", "0.3.36"
    plain = versions_of(Installed(name, version, "lib/libggml.so,sha256=aa,1\n"))
    other = versions_of(Installed(name, version, "lib/libggml.so,sha256=bb,1\n"))
    assert plain["llama-cpp-python"].startswith("0.3.36+")
    assert plain != other
    compiled = Installed(name, version, "x.pyc,,\nlib/libggml.so,sha256=aa,1\n")
    assert versions_of(compiled) == plain


def test_eggs_count_and_what_cannot_be_read_does_not(
    versions_of: Callable[..., dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    egg = Installed("onnxruntime", "1.9", "", "onnxruntime-1.9-py3.11.egg/EGG-INFO")
    assert versions_of(egg)["onnxruntime"] == "1.9"
    path: list[Any] = [*sys.path, b"/of/bytes", None, "/a\0b"]
    monkeypatch.setattr(sys, "path", path)
    assert package_versions(PACKAGES)["onnxruntime"] == "1.9"


def test_which_packages_count(versions_of: Callable[..., dict[str, str]]) -> None:
    found = versions_of(
        Installed("onnxruntime-ep-openvino", "1.8.1", ""),  # a folder with hyphens
        Installed("onnxruntime_gpu", "1.31", ""),
        Installed("onnxruntime_gpu", "1.2", ""),  # an older one, further on the path
        Installed("llama.cpp-python", "2", "", "Llama_CPP_python.egg-info"),
        Installed("onnx", "1.23", ""),
        Installed("onnx", "1.23", "", "numpy-1.dist-info"),  # what it says itself counts
        Installed("edgedec", "0.4", ""),  # another project's
        Installed(None, "1", "", "numpy-2.dist-info"),
    )
    assert found.pop("edgedec") == edgedec.__version__
    assert found == {
        "llama-cpp-python": "2", "onnxruntime-ep-openvino": "1.8.1", "onnxruntime-gpu": "1.31",
    }  # fmt: skip


def test_difference_in_one_line() -> None:
    before = {"cpu": "A", "memory": "8 GB", "machine": "12", "old": "1"}
    assert difference(before, dict(before)) == ""
    now = {"cpu": "B", "memory": "8 GB", "machine": "34", "new": "2"}
    said = difference(before, now)
    assert said == "cpu was A, is B; another machine; new 2 is new; old 1 is gone"
    assert "memory" not in said
