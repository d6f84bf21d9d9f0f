"""What is built depends on the source alone, and a clone without symbolic links builds as well."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from sources_copied import build, copy_sources

from edgedec._support.installation import requirements
from tools import build_backend
from tools.build_backend import LINKS, mend_links, normalise_sdist


def without_links(clone: Path) -> None:
    """Make the links what git writes where there are none."""
    for name, target in LINKS.items():
        (clone / name).unlink()
        (clone / name).write_text(target, "utf-8")


def digests(clone: Path) -> dict[str, str]:
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted((clone / "dist").iterdir())
    }


@pytest.mark.slow
def test_another_clone_builds_the_same_bytes(repository: Path, tmp_path: Path) -> None:
    """Later, with other modes, and without links."""
    one, two = tmp_path / "one", tmp_path / "two"
    for clone in (one, two):
        clone.mkdir()
        copy_sources(repository, clone)
    without_links(two)
    for file in two.rglob("*"):
        file.chmod(0o700 if file.is_dir() else 0o600)
        os.utime(file, (1, 1))
    for clone in (one, two):
        build(clone)
    assert len(digests(one)) == 2
    assert digests(two) == digests(one)

    # The control: what does decide is seen.
    build(two, environment={"SOURCE_DATE_EPOCH": "1700000000"})
    changed = digests(two)
    assert all(changed[name] != was for name, was in digests(one).items())


def packed(folder: Path, *, mode: int, when: int) -> Path:
    file = folder / "a.txt"
    file.write_text("text", "utf-8")
    file.chmod(mode)
    os.utime(file, (when, when))
    archive = folder / f"{when}.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(file, "a/a.txt")
    return archive


def test_an_archive_keeps_nothing_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000000000")
    both = [packed(tmp_path, mode=0o600, when=1), packed(tmp_path, mode=0o755, when=2)]
    assert both[0].read_bytes() != both[1].read_bytes()
    for archive in both:
        normalise_sdist(archive)
    assert both[0].read_bytes() == both[1].read_bytes()
    with tarfile.open(both[0]) as tar:
        (member,) = tar.getmembers()
        stream = tar.extractfile(member)
        assert stream is not None
        assert stream.read() == b"text"
    assert (member.mtime, member.mode, member.uname) == (1000000000, 0o644, "")


def test_only_files_that_stand_for_links_become_links(tmp_path: Path) -> None:
    for folder in ("src", "edgedec/models", "export", "runtimes"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "src/edgedec").write_text("../edgedec", "utf-8")
    (tmp_path / "edgedec/export").write_text("../export\n", "utf-8")
    (tmp_path / "edgedec/runtimes").write_text("my own notes", "utf-8")
    made: list[tuple[Path, str]] = []
    found = mend_links(tmp_path, lambda path, target: made.append((path, target)))
    assert found == ["src/edgedec", "edgedec/export"]
    assert made == [(tmp_path / name, LINKS[name]) for name in found]
    assert (tmp_path / "edgedec/runtimes").read_text("utf-8") == "my own notes"
    assert (tmp_path / "edgedec/models").is_dir()


def test_the_links_are_those_of_the_repository(repository: Path) -> None:
    assert {name: (repository / name).readlink().as_posix() for name in LINKS} == LINKS
    assert mend_links(repository, build_backend._link) == []


def test_a_clone_without_links_can_be_installed_editable(repository: Path, tmp_path: Path) -> None:
    clone, site = tmp_path / "clone", tmp_path / "site"
    clone.mkdir()
    copy_sources(repository, clone)
    without_links(clone)
    code = (
        "import sys; sys.path.insert(0, 'tools'); import build_backend as backend;"
        f" backend.get_requires_for_build_editable(); print(backend.build_editable({str(site)!r}))"
    )
    site.mkdir()
    done = subprocess.run([sys.executable, "-c", code], cwd=clone, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (clone / "src" / "edgedec" / "export" / "__init__.py").is_file()


def binding(folder: Path, version: str) -> None:
    """An empty wheel of llama.cpp's binding, as somebody may have built it."""
    name = f"llama_cpp_python-{version}"
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as wheel:
        about = f"Metadata-Version: 2.1\nName: llama-cpp-python\nVersion: {version}\n"
        wheel.writestr(f"{name}.dist-info/METADATA", about)
        tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{name}.dist-info/WHEEL", tags)
        wheel.writestr(f"{name}.dist-info/RECORD", "")


def test_the_extra_takes_a_prebuilt_binding(tmp_path: Path) -> None:
    (wanted,) = requirements("gguf")
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed",
               "--no-index", "--no-deps", "--only-binary=:all:", "--find-links", str(tmp_path),
               wanted]  # fmt: skip
    for version, taken in (("0.3.35", False), ("0.3.40", True)):
        binding(tmp_path, version)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) is taken, done.stderr
    assert "llama-cpp-python-0.3.40" in done.stdout
