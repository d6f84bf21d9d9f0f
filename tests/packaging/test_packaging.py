"""The wheel holds what the repository promises, and nothing else."""

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from sources_copied import MAPPED, build, copy_sources

import edgedec
from edgedec._support.installation import DISTRIBUTION

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EXTRAS = ("ml_dtypes", "onnx", "pytest", "safetensors", "scipy", "torch", "transformers")
# What a wheel's file name makes of the distribution's.
DIST = DISTRIBUTION.replace("-", "_")
MEGABYTE = 1_000_000


@pytest.fixture(scope="module")
def configuration(repository: Path) -> dict[str, Any]:
    return tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))


def packages_on_disk(repository: Path) -> set[str]:
    """Dotted names of all folders with an __init__.py, the mapped ones under edgedec."""
    found = set()
    for top in ("edgedec", *MAPPED):
        prefix = "" if top == "edgedec" else "edgedec."
        for init in (repository / top).rglob("__init__.py"):
            folder = init.parent.relative_to(repository)
            # rglob follows no symlink from 3.13 on, and does before: count each folder once.
            if folder.parts[0] == "edgedec" and len(folder.parts) > 1 and folder.parts[1] in MAPPED:
                continue
            found.add(prefix + ".".join(folder.parts))
    return found


@pytest.fixture(scope="module")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    sources = tmp_path_factory.mktemp("sources")
    copy_sources(repository, sources)
    build(sources, "--wheel")
    (built,) = (sources / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the wheel's packages and nothing else."""
    target = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*command, "--target", str(target), str(wheel)], check=True)
    return target


def run_installed(installed: Path, code: str) -> str:
    """Run code where the wheel is installed.

    -I -S: neither this checkout nor the .pth of its editable install is seen; the dependencies
    of the present environment are put back by name.
    """
    dependencies = sysconfig.get_path("purelib")
    prelude = f"import sys; sys.path[:0] = [{str(installed)!r}]; sys.path.append({dependencies!r})"
    command = [sys.executable, "-I", "-S", "-c", f"{prelude}\n{code}"]
    done = subprocess.run(command, cwd=installed, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_packages_are_listed(repository: Path, configuration: dict[str, Any]) -> None:
    listed = configuration["tool"]["setuptools"]["packages"]
    assert sorted(listed) == listed
    assert set(listed) == packages_on_disk(repository)


def test_a_forgotten_package_would_be_seen(tmp_path: Path) -> None:
    for folder in ("edgedec", "edgedec/forgotten", "models/also"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "__init__.py").touch()
    assert packages_on_disk(tmp_path) == {"edgedec", "edgedec.forgotten", "edgedec.models.also"}


def test_symlinks_lead_to_the_mapped_folders(
    repository: Path, configuration: dict[str, Any]
) -> None:
    assert configuration["tool"]["setuptools"]["package-dir"] == {"": "src"}
    assert [(link.name, link.readlink()) for link in (repository / "src").iterdir()
            if link.is_symlink()] == [("edgedec", Path("..") / "edgedec")]  # fmt: skip
    for name in MAPPED:
        assert (repository / "edgedec" / name).readlink() == Path("..") / name


def import_above(clone: Path, to: Path) -> subprocess.CompletedProcess[str]:
    """Import an editable install of a clone in the folder above it, as a new user does."""
    hook = "import sys; from setuptools import build_meta; build_meta.build_editable(sys.argv[1])"
    made = subprocess.run(
        [sys.executable, "-c", hook, str(to)], cwd=clone, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    (editable,) = to.glob("*.whl")
    with zipfile.ZipFile(editable) as archive:
        archive.extractall(to)
    code = (
        f"import site, sys; site.addsitedir({str(to)!r});"
        f" sys.path.append({sysconfig.get_path('purelib')!r})\n"
        "import edgedec, edgedec.export; from edgedec import Pipeline; print(edgedec.__file__)"
    )
    return subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=clone.parent, capture_output=True, text=True
    )


def test_an_editable_install_is_found_in_the_folder_above_the_clone(
    repository: Path, tmp_path: Path
) -> None:
    clone = tmp_path / "above" / "edgedec"
    clone.mkdir(parents=True)
    copy_sources(repository, clone)
    found = import_above(clone, tmp_path / "site")
    assert found.returncode == 0, found.stderr
    assert Path(found.stdout.strip()).resolve() == clone / "edgedec" / "__init__.py"

    # As it was: a finder, which comes after the folder of the same name.
    project = clone / "pyproject.toml"
    mapped = "".join(f'"edgedec.{name}" = "{name}"\n' for name in MAPPED)
    former = project.read_text("utf-8").replace('"" = "src"\n', mapped)
    project.write_text(former, "utf-8")
    lost = import_above(clone, tmp_path / "former")
    assert lost.returncode != 0
    assert "edgedec" in lost.stderr.splitlines()[-1]


def test_version_is_the_same_everywhere(
    repository: Path, configuration: dict[str, Any], wheel: Path
) -> None:
    assert configuration["project"]["version"] == edgedec.__version__
    assert version(DISTRIBUTION) == edgedec.__version__
    assert wheel.name.startswith(f"{DIST}-{edgedec.__version__}-")
    assert f"{edgedec.__version__}" in (repository / "CHANGELOG.md").read_text("utf-8")


def test_wheel_holds_every_module(repository: Path, wheel: Path) -> None:
    expected = set()
    for package in packages_on_disk(repository):
        folder = repository.joinpath(*package.split("."))
        expected |= {f"{package.replace('.', '/')}/{file.name}" for file in folder.glob("*.py*")}
    held = {name for name in names(wheel) if name.endswith((".py", ".pyi"))}
    assert held == expected


def test_wheel_holds_the_bundle_and_no_checkpoint(repository: Path, wheel: Path) -> None:
    held = [name for name in names(wheel) if ".dist-info/" not in name]
    data = {name for name in held if not name.endswith((".py", ".pyi"))} - {"edgedec/py.typed"}
    demo = repository / "models" / "demo"
    shipped = [file for file in (demo / "bundle").rglob("*") if file.is_file()]
    shipped += [demo / "heldout.txt"] if (demo / "heldout.txt").exists() else []
    expected = {f"edgedec/{file.relative_to(repository).as_posix()}" for file in shipped}
    page = repository / "edgedec" / "serve" / "static"
    shown = [file for file in page.rglob("*") if file.is_file()]
    expected |= {file.relative_to(repository).as_posix() for file in shown}
    assert data == expected | {"edgedec/library/published.toml"}
    assert not [name for name in held if name.endswith((".safetensors", ".pt", ".bin"))]


def test_wheel_is_small(wheel: Path) -> None:
    assert wheel.stat().st_size < 30 * MEGABYTE


def test_wheel_installs_one_name_only(wheel: Path, installed: Path) -> None:
    tops = {name.split("/")[0] for name in names(wheel)}
    assert tops == {"edgedec", f"{DIST}-{edgedec.__version__}.dist-info"}
    found = run_installed(
        installed,
        "from importlib.util import find_spec\n"
        f"print([name for name in {MAPPED!r} if find_spec(name) is not None])",
    )
    assert found.strip() == "[]"


def test_wheel_imports(installed: Path, configuration: dict[str, Any]) -> None:
    listed = configuration["tool"]["setuptools"]["packages"]
    # The adapter of a runtime that is not installed says so, and is there all the same.
    files = run_installed(
        installed,
        "from importlib import import_module\n"
        "from importlib.util import find_spec\n"
        f"for name in {listed!r}:\n"
        "    try:\n"
        "        print(import_module(name).__file__)\n"
        "    except ModuleNotFoundError as error:\n"
        "        assert error.name == 'llama_cpp', error\n"
        "        print(find_spec(name).origin)",
    )
    assert all(Path(file).is_relative_to(installed) for file in files.split())
    assert len(files.split()) == len(listed)


def test_runtime_needs_no_extra(installed: Path) -> None:
    """The command line and the package import where only the runtime dependencies are."""
    run_installed(
        installed,
        f"sys.modules.update(dict.fromkeys({EXTRAS!r}))\n"
        "import edgedec, edgedec.cli, edgedec.export, edgedec.runtimes, edgedec.models.demo\n"
        "for name in edgedec.__all__: getattr(edgedec, name)",
    )


def test_import_is_cheap(installed: Path) -> None:
    """Only the version is read; what is used is imported when it is first asked for."""
    loaded = run_installed(
        installed,
        # A name without a module is one that is kept from being imported.
        "before = set(sys.modules)\nimport edgedec\n"
        "print(*(name for name in set(sys.modules) - before if sys.modules[name]))",
    ).split()
    own = {"edgedec", "edgedec._version", "edgedec._support", "edgedec._support.telemetry"}
    standard = {"__future__", "_typing", "typing", "collections", "functools", "re", "_collections"}
    assert own <= set(loaded)
    foreign = {name for name in loaded if name.split(".")[0] not in sys.stdlib_module_names}
    assert foreign == own
    # typing is the one module of weight, and nearly every program has it.
    assert {name.split(".")[0] for name in loaded} - own <= standard | typing_needs()


def typing_needs() -> set[str]:
    """What ``typing`` imports in this version of Python."""
    code = "import sys; before = set(sys.modules); import typing; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, check=True)
    return {name.split(".")[0] for name in done.stdout.decode().split()}


SAMPLE = """
from pathlib import Path

import edgedec
from edgedec import GenerateOptions, Generation, Pipeline, SamplingParams, Stream

with Pipeline.open("demo", drafter="lookup", memory="2GB", provider="X") as pipeline:
    found: Generation = pipeline.generate("x", max_new_tokens=10, temperature=0.8, stop="end")
    stream: Stream = pipeline.stream([1, 2], GenerateOptions(), stop=("a", "b"), seed=3)
    pipeline.chat([{"role": "user", "content": "Hi"}], top_p=0.9, logit_bias={3: 1.5})
    text: str = found.text
    ids: list[int] = found.token_ids
    rate: float = found.metrics.acceptance_rate
    reveal_type(next(stream).token)
    pipeline.generate("x", max_tokens=10)  # WRONG
    pipeline.generate("x", temperature="hot")  # WRONG
    pipeline.stream("x", stop=3)  # WRONG
    found.no_such_field  # WRONG
    Pipeline.open("demo", n_threads=2)  # WRONG
    Pipeline.open("demo", memory=1.5)  # WRONG
    pipeline.generate(messages=[{"role": "user", "content": "Hi"}], timeout=2.5, wait=False)
    pipeline.generate("x", wait="long")  # WRONG
    scores: list[float] | None = found.logprobs
SamplingParams(temperature="hot")  # WRONG


async def later(pipeline: Pipeline) -> str:
    whole: Generation = await pipeline.agenerate("x", max_new_tokens=10)
    async with pipeline.astream("x", seed=3) as events:
        async for event in events:
            kept: str = event.text
    await pipeline.agenerate("x", max_tokens=10)  # WRONG
    return whole.text


path: Path = edgedec.pull("org/name", progress=print).path
edgedec.convert(path, "out", weights="int8", format=["onnx", "gguf"], progress=print)
edgedec.convert(path, "out", weight="int8")  # WRONG
label: str = edgedec.plan("demo", memory="2GB").chosen.plan.label
edgedec.plan("demo", memory=[1])  # WRONG
names: list[str] = [model.name for model in edgedec.Library().models()]
version: str = edgedec.__version__
"""


@pytest.mark.slow
def test_the_wheel_is_typed(installed: Path, tmp_path: Path) -> None:
    """A user's program under mypy --strict: each of its mistakes is found, and nothing else."""
    sample = tmp_path / "sample.py"
    sample.write_text(SAMPLE, "utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--hide-error-context", "sample.py"]
    environment = {**os.environ, "MYPYPATH": str(installed)}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    # mypy is silent about what site-packages holds; on its own path it lists what has no types.
    own = [line for line in done.stdout.splitlines() if line.startswith("sample.py:")]
    errors = {int(line.split(":")[1]) for line in own if ": error:" in line}
    wrong = [number for number, line in enumerate(SAMPLE.split("\n"), 1) if "# WRONG" in line]
    assert sorted(errors) == wrong, done.stdout
    assert 'Revealed type is "int"' in done.stdout.replace("builtins.", "")


def test_console_script(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (entry,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        for name in ("edgedec", DISTRIBUTION):
            assert f"\n{name} = edgedec.__main__:main" in archive.read(entry).decode()
        assert [name for name in archive.namelist() if name.endswith("licenses/LICENSE")]


@pytest.mark.slow
def test_wheel_from_the_sdist_is_the_same(repository: Path, wheel: Path, tmp_path: Path) -> None:
    copy_sources(repository, tmp_path)
    build(tmp_path)
    (again,) = (tmp_path / "dist").glob("*.whl")
    assert sorted(names(again)) == sorted(names(wheel))


def test_all_is_what_is_exported() -> None:
    for name in edgedec.__all__:
        assert hasattr(edgedec, name), name
    own_use = {"TYPE_CHECKING", "Any", "annotations"}
    public = {
        name
        for name, value in vars(edgedec).items()
        if not name.startswith("_") and not isinstance(value, type(sys)) and name not in own_use
    }
    assert public <= set(edgedec.__all__)
    # Completion in a shell or a notebook shows what is there before it is imported.
    assert set(edgedec.__all__) <= set(dir(edgedec))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = edgedec.no_such_name


def test_core_decides_with_numpy_alone(repository: Path) -> None:
    """The import contracts name what is forbidden; this names what is allowed."""
    allowed = {*sys.stdlib_module_names, "numpy", "edgedec"}
    for folder in ("decoding", "hardware", "memory", "overlap", "planning", "records"):
        for file in (repository / "edgedec" / folder).rglob("*.py"):
            foreign = imported_names(file) - allowed
            assert not foreign, f"{file.relative_to(repository)} imports {sorted(foreign)}"


def imported_names(file: Path) -> set[str]:
    """Top-level names a module imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            found.add(node.module.split(".")[0])
    return found


# An absolute path to somebody's folder, at the start of a path only: not some/root/.
MACHINE_PATH = re.compile(rb"(?<![\w.\-/*])/(?:work|root|home/\w+|Users/\w+)/")


def test_no_machine_paths(repository: Path) -> None:
    if shutil.which("git") is None or not (repository / ".git").exists():
        pytest.skip("not a git checkout")
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=repository, capture_output=True, check=True
    )
    files = [repository / name for name in listing.stdout.decode().split("\0") if name]
    guilty = [file for file in files if file.is_file() and MACHINE_PATH.search(file.read_bytes())]
    assert not guilty


def test_a_machine_path_would_be_seen() -> None:
    assert MACHINE_PATH.search(b'open("' + b"/" + b'root/data")')
    assert not MACHINE_PATH.search(b"some/root/")
