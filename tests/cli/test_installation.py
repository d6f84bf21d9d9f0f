"""Commands that install: each names this distribution, not the stranger that has its old name."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

import edgedec
from edgedec._support import installation
from edgedec._support.fields import Fields
from edgedec.bundle.manifest import SCHEMA_VERSION, check_version
from edgedec.cli._group import check_package
from edgedec.errors import BundleError, RuntimeUnavailable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CODE = ("edgedec", "export", "models", "runtimes")
TEXTS = ("*.py", "*.md", "*.toml", "Makefile", "run", "*.yml")
# A distribution's name with its extras; not edgedec.egg-info or a folder's path.
OLD_NAME = re.compile(r"(?<![\w./-])edgedec\[")
OWN = re.compile(r"(edgedec-runtime|(?<!\\)\.)\[([\w,-]+)\]")
# An install line: what follows, up to the end of the code or of the line.
INSTALL = re.compile(r"(?<!un)install((?: +[-\w.'\"\[\],=<>]+)+)")


def texts(repository: Path) -> Iterator[tuple[Path, str]]:
    """Every file of the repository that may tell somebody to install something."""
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=repository, capture_output=True, check=False
    )
    if listing.returncode:
        pytest.skip("not a git checkout")
    for name in listing.stdout.decode().split("\0"):
        path = repository / name
        if name and path.is_file() and any(path.match(pattern) for pattern in TEXTS):
            yield path.relative_to(repository), path.read_text("utf-8")


def wrong_hints(path: Path, text: str, extras: set[str]) -> list[str]:
    """What would install a stranger's code, an extra that does not exist, or is written by hand."""
    if path == Path("tests/cli/test_installation.py"):
        return []
    found = [f"{path}: the old name" for _ in OLD_NAME.finditer(text)]
    found += [
        f"{path}: no extra {extra}"
        for match in OWN.finditer(text)
        for extra in match[2].split(",")
        if extra not in extras
    ]
    lines = [match[1] for match in INSTALL.finditer(text)]
    found += [
        f"{path}: not on the package index" for line in lines if re.search(r"\bedgedec\b", line)
    ]
    if path.suffix == ".md" and "clone" not in text:
        found += [
            f"{path}: does not say where" for line in lines if re.search(r" '?\.(\W|$)", line)
        ]
    if path.parts[0] in CODE and path.suffix == ".py" and path.name != "installation.py":
        found += [f"{path}: by hand" for _ in re.finditer(r"pip3? +install", text)]
    return found


def extras(repository: Path) -> set[str]:
    project = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == installation.DISTRIBUTION
    return set(project["optional-dependencies"])


def test_every_hint_names_this_distribution(repository: Path) -> None:
    known = extras(repository)
    seen = dict(texts(repository))
    assert len(seen) > 300
    assert not [wrong for path, text in seen.items() for wrong in wrong_hints(path, text, known)]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("README.md", "`pip install 'edgedec[gguf]'`"),
        ("docs/cli.md", "pip install --upgrade edgedec"),
        ("docs/cli.md", "uv pip install edgedec"),
        ("README.md", "pip install 'edgedec-runtime[gguf]'"),
        ("docs/errors.md", "`pip install --upgrade edgedec-runtime`"),
        ("README.md", "in a clone, pip install '.[gguf,tpu]'"),
        ("docs/gguf.md", "pip install '.[gguf]'"),
        ("docs/guides/raspberry-pi.md", "pip install . && edgedec demo"),
        ("edgedec/doctor/report.py", '"pip install edgedec-runtime"'),
        ("runtimes/registry.py", '"pip install coremltools"'),
    ],
)
def test_a_wrong_hint_would_be_seen(path: str, text: str) -> None:
    assert wrong_hints(Path(path), text, {"gguf"})
    right = "in a clone, pip install --editable '.[gguf]' and pip install onnx"
    assert not wrong_hints(Path("README.md"), right, {"gguf"})


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone, run by an interpreter whose pip is the first."""
    root = tmp_path / "a clone"
    (root / ".git").mkdir(parents=True)
    (root / "pyproject.toml").write_text('[project]\nname = "edgedec-runtime"\n', "utf-8")
    monkeypatch.setattr(installation, "_ROOT", root)
    monkeypatch.setattr(installation, "_editable", list)
    scripts = tmp_path / "bin"
    monkeypatch.setattr(sys, "executable", str(scripts / "python"))
    monkeypatch.setattr("shutil.which", lambda name: str(scripts / name))
    return root


def test_hints_in_a_clone_name_its_folder(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (clone, clone.parent):  # a hint that is kept works from any folder
        monkeypatch.chdir(folder)
        assert installation.install(extra="gguf") == f"pip install '{clone}[gguf]'"
        assert installation.upgrade() == f"`git -C '{clone}' pull`"
    monkeypatch.setattr(installation, "_editable", lambda: ["--editable"])
    assert installation.install(extra="gguf") == f"pip install --editable '{clone}[gguf]'"


def test_hints_where_the_current_folder_was_removed(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert installation.install(extra="gguf").endswith(f"{clone}[gguf]'")
    assert installation.upgrade()


def distribution(folder: Path, *lines: str, origin: str | None = None) -> None:
    """The metadata of this distribution, with requirements, and pip's note on its source."""
    info = folder / "edgedec_runtime-0.1.0.dist-info"
    info.mkdir(exist_ok=True)
    about = ["Metadata-Version: 2.1", "Name: edgedec-runtime", "Version: 0.1.0"]
    required = [f"Requires-Dist: {line}" for line in lines]
    (info / "METADATA").write_text("\n".join([*about, *required, ""]), "utf-8")
    if origin is not None:
        (info / "direct_url.json").write_text(origin, "utf-8")


REQUIRED = (
    "numpy>=1.26",
    "onnx>=1.17; extra == 'export'",
    "no-such-thing>=2; extra == 'export'",
    'absent; extra == "hub"',
    "edgedec-runtime[export,hub]; extra == 'dev'",
)


def test_hints_without_a_source_name_the_packages(only: Path, clone: Path) -> None:
    """No package index has edgedec: a wheel that is gone leaves the packages of the extra."""
    (clone / "pyproject.toml").unlink()
    distribution(only, *REQUIRED)
    packages = "pip install 'onnx>=1.17' 'no-such-thing>=2'"
    assert installation.install(extra="export") == packages
    assert installation.install(extra="dev") == f"{packages} absent"
    assert installation.install("rich", "click") == "pip install rich click"
    assert installation.upgrade() == installation.UPGRADE


def test_a_hint_names_every_missing_package(
    only: Path, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution(only, *REQUIRED)
    how = f"pip install '{clone}[export]'"
    needs = installation.needs("exporting", "export", "onnx")
    assert needs == (
        f"exporting needs onnx and no-such-thing, which are not installed: `{how}`"
    )  # onnx itself is not in the folder that `only` leaves
    both = installation.needs("fetching", "hub,export", "absent")
    assert "needs onnx, no-such-thing and absent, which are" in both
    assert "[hub,export]" in both
    unknown = installation.needs("a plot", "report", "matplotlib")
    assert unknown == (
        f"a plot needs matplotlib, which is not installed: `pip install '{clone}[report]'`"
    )
    (clone / "pyproject.toml").unlink()
    assert installation.needs("a plot", "report", "matplotlib").endswith("`pip install matplotlib`")


def test_what_makes_the_demo_brings_what_readme_runs(repository: Path, tmp_path: Path) -> None:
    """`edgedec run ./Qwen3-8B`, `run org/name` and `serve` work after `make demo`."""
    command = ["make", "-n", "demo", f"VENV={tmp_path}"]
    shown = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True)
    (brought,) = re.findall(r"--editable '\.\[([\w,]+)\]'", shown.stdout)
    use = (repository / "README.md").read_text("utf-8").split("## Use")[1].split("## ")[0]
    for words, extra in (("edgedec run ./Q", "export"), ("on a hub", "hub"), ("serve", "serve")):
        assert words in use
        assert extra in brought.split(",")


def test_another_pip_is_not_asked(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `make demo` without an activation, `pip` is the system's."""
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/pip" if name == "pip" else None)
    monkeypatch.chdir(clone)
    monkeypatch.setattr(sys, "executable", str(clone / ".venv" / "bin" / "python"))
    python = f"'{clone}/.venv/bin/python'"
    assert installation.install("rich") == f"{python} -m pip install rich"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/uv" if name == "uv" else None)
    assert installation.install("rich") == f"uv pip install --python {python} rich"


def test_a_newer_bundle_asks_for_this_distribution() -> None:
    newer = Fields({"schema_version": SCHEMA_VERSION + 1}, "manifest.json")
    with pytest.raises(BundleError) as caught:
        check_version(newer)
    assert f"upgrade with {installation.upgrade()}" in str(caught.value)


def foreign(folder: Path, *, summary: str = "UNKNOWN", record: bool = True) -> None:
    """The metadata of a distribution `edgedec`, as the one on the package index has it."""
    info = folder / "edgedec-0.4.dist-info"
    info.mkdir()
    about = f"Metadata-Version: 2.1\nName: edgedec\nVersion: 0.4\nSummary: {summary}\n"
    (info / "METADATA").write_text(about, "utf-8")
    if record:
        (info / "RECORD").write_text("edgedec/__init__.py,,\n", "utf-8")


@pytest.fixture
def only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the only one where distributions are found."""
    found = tmp_path / "installed"
    found.mkdir()

    def distribution(name: str) -> metadata.Distribution:
        for one in metadata.Distribution.discover(name=name, path=[str(found)]):
            return one
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", distribution)
    return found


def test_a_stranger_is_named(only: Path, clone: Path) -> None:
    assert installation.stranger() is None
    foreign(only)
    told = installation.stranger()
    assert told is not None
    assert "edgedec 0.4" in told
    assert "another project's" in told
    assert "`pip uninstall edgedec`" in told


def test_what_was_installed_from_a_file_is_installed_from_it_again(
    only: Path, clone: Path, tmp_path: Path
) -> None:
    (clone / "pyproject.toml").unlink()
    foreign(only)
    wheel = tmp_path / "a wheel.whl"
    wheel.touch()
    for noted in ("[", "[]", json.dumps({"url": wheel.as_uri(), "archive_info": {}})):
        distribution(only, origin=noted)
        known = noted.startswith("{")
        source = f"--no-deps '{wheel}'`" if known else "its folder or wheel once more"
        assert source in str(installation.stranger())
    assert installation.install(extra="export") == f"pip install '{wheel}[export]'"


def test_what_a_build_left_in_a_folder_is_no_stranger(only: Path) -> None:
    foreign(only, record=False)
    assert installation.stranger() is None


def test_the_former_name_is_told_apart(only: Path) -> None:
    foreign(only, summary="Lossless speculative decoding on small devices.")
    assert "former name" in str(installation.stranger())


def test_doctor_names_a_stranger(only: Path, run) -> None:
    foreign(only)
    shown = run("doctor", "--json")
    assert shown.exit_code == 1
    (problem,) = [p for p in json.loads(shown.stdout)["problems"] if "edgedec 0.4" in p]
    assert "another project's" in problem


def test_the_commands_refuse_a_strangers_package(monkeypatch: pytest.MonkeyPatch, run) -> None:
    check_package()
    monkeypatch.setattr(edgedec, "__all__", ["detect_edges"])
    with pytest.raises(RuntimeUnavailable, match="belongs to another project"):
        check_package()
    assert "belongs to another project" in run("doctor").stderr
