"""What every test shares: markers that skip with a reason, and where data stands."""

import asyncio
import atexit
import functools
import gc
import importlib.util
import inspect
import math
import os
import shutil
import signal
import ssl
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import kinds
import pytest
import suites
from hypothesis import settings
from time_left import pytest_addoption, pytest_runtest_setup  # noqa: F401
from waiting import LIMIT_S

Measurements = dict[tuple[ModuleType, str], Any]

# No deadline for an example: a loaded machine is no failure. `.ci/run` takes the profile full.
settings.register_profile("full", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=20)
settings.load_profile("quick")

# Products of tiny matrices take a thread each: others of numpy's, which wait for work on cores that
# the other workers need, would double the time. Before numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Hundreds of children would compile each module that they import, each for itself.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# What a developer measured on this machine must not decide how a test decodes.
os.environ["EDGEDEC_CACHE"] = tempfile.mkdtemp(prefix="edgedec-tests-")
atexit.register(shutil.rmtree, os.environ["EDGEDEC_CACHE"], ignore_errors=True)

for _name, _file in (("LIBRARY", "library"), ("CONFIG", "config.toml"), ("HISTORY", "history")):
    os.environ[f"EDGEDEC_{_name}"] = str(Path(os.environ["EDGEDEC_CACHE"]) / "user" / _file)

# An HTTP client loads the certificate authorities of the machine; those of tests need none.
ssl.create_default_context = functools.cache(ssl.create_default_context)  # type: ignore[assignment]

# A shell that starts a run in the background has it ignore Ctrl-C, and every child inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine: within a limit, or as its module's ``runs`` does."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    test = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    runs = getattr(pyfuncitem.module, "runs", None)
    asyncio.run(asyncio.wait_for(test, LIMIT_S)) if runs is None else runs(test)
    return True


@pytest.fixture(scope="session", autouse=True)
def short_exports() -> Iterator[Measurements]:
    """Random weights need few tokens; tests of what an export gains ask for ``full_exports``."""
    from tiny_bundles import SHORT

    full = {(module, name): getattr(module, name) for module, name in SHORT}
    with pytest.MonkeyPatch.context() as patch:
        for (module, name), value in SHORT.items():
            patch.setattr(module, name, value)
        yield full


@pytest.fixture
def full_exports(short_exports: Measurements, monkeypatch: pytest.MonkeyPatch) -> None:
    """An export reads and tries what it does for users."""
    for (module, name), value in short_exports.items():
        monkeypatch.setattr(module, name, value)


@pytest.fixture
def exports_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library takes what it exported of the same files in another test."""
    from tiny_bundles import once

    from edgedec.library import making

    monkeypatch.setattr(making, "export_bundle", once)


@pytest.fixture(scope="session", autouse=True)
def one_llama_child() -> Iterator[Callable[..., Any]]:
    """Exports to GGUF ask one child, which stays, while the current folder does.

    Each task would start one of its own, which imports for half a second. Tests of the child
    ask for ``llama_children``.
    """
    from edgedec._support.sandbox import Sandbox
    from edgedec.export.gguf import child

    kept = Sandbox(child.__name__, idle_s=3600, environment=child._QUIET, telling=child._reason)
    honest, folder = child.ask_once, [Path.cwd()]

    def ask(
        module: str, task: Any, limits: Any, environment: Any, telling: Any, **heard: Any
    ) -> Any:
        if folder != [Path.cwd()]:
            kept.close()
            folder[:] = [Path.cwd()]
        return kept.ask(task, limits, **heard)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(child, "ask_once", ask)
        yield honest
    kept.close()


@pytest.fixture
def llama_children(one_llama_child: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task of llama.cpp has a child of its own, as for users."""
    monkeypatch.setattr("edgedec.export.gguf.child.ask_once", one_llama_child)


@pytest.fixture(scope="session", autouse=True)
def short_measurements() -> Iterator[Measurements]:
    """Opening measures the passes of few widths, three sweeps of them whether they agree or not.

    Models here are so small that sweeps seldom agree beside other work, and half a second goes by.
    Nor does it list what this process has mapped, which is long after thousands of tests.
    Tests of what is measured ask for ``full_measurements``.
    """
    from edgedec.decoding import pass_times
    from edgedec.decoding.policy import cost
    from edgedec.loading import engine, sessions

    full = {
        (cost, "_AGREE"): cost._AGREE,
        (engine, "WIDTHS"): cost.WIDTHS,
        (sessions, "unread_bytes"): sessions.unread_bytes,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "_AGREE", math.inf)
        patch.setattr(engine, "WIDTHS", cost.WIDTHS[: pass_times._FEWEST_WIDTHS])
        patch.setattr(sessions, "unread_bytes", lambda: 0)
        yield full


@pytest.fixture
def full_measurements(short_measurements: Measurements, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening measures what it measures for users."""
    for (module, name), value in short_measurements.items():
        monkeypatch.setattr(module, name, value)


@pytest.fixture(scope="session", autouse=True)
def bundles_hashed_once() -> Iterator[None]:
    """Bundles that no test changes are compared with their hashes once, not at every opening."""
    from tiny_bundles import KEPT

    from edgedec.bundle import folder, manifest

    honest, shipped, known = folder.check_file, REPOSITORY / "models" / "demo", set[Any]()
    digest = manifest.sha256_of_stream

    def check(root: Path, name: str, fact: Any, *, hashed: bool) -> None:
        looked_at = manifest.sha256_of_stream is not digest  # by a test that counts
        new = looked_at or (root, name, fact) not in known
        honest(root, name, fact, hashed=hashed and new)
        if hashed and any(root.resolve().is_relative_to(read) for read in (KEPT, shipped)):
            known.add((root, name, fact))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder, "check_file", check)
        yield


@pytest.fixture(scope="session")
def longer_messages() -> Iterator[list[str]]:
    """The messages of errors, wherever they were made, that are not one line."""
    from edgedec.errors import EdgedecError

    found: list[str] = []

    def made(error: EdgedecError, *arguments: object) -> None:
        found.extend(str(one) for one in arguments if "\n" in str(one))
        Exception.__init__(error, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EdgedecError, "__init__", made)
        yield found


@pytest.fixture(autouse=True)
def every_message_is_one_line(longer_messages: list[str]) -> Iterator[None]:
    """No error of a test, caught or not, has a message of several lines."""
    longer_messages.clear()
    yield
    assert longer_messages == []


REPOSITORY = Path(__file__).resolve().parents[1]
SHARED_DATA = Path(os.environ.get("EDGEDEC_SHARED_DATA", REPOSITORY.parent / "shared" / "data"))


def missing_torch(*more: str) -> str | None:
    wanted = ("torch", "transformers", *more)
    absent = [name for name in wanted if importlib.util.find_spec(name) is None]
    return f"{' and '.join(absent)} not installed" if absent else None


def missing_optimum() -> str | None:
    return missing_torch("optimum")


def missing_coremltools() -> str | None:
    found = importlib.util.find_spec("coremltools")
    return None if found else "coremltools not installed (extra `coreml`)"


def missing_ray() -> str | None:
    return None if importlib.util.find_spec("ray") else "ray not installed (extra `ray`)"


def missing_shared_data() -> str | None:
    return None if SHARED_DATA.is_dir() else "no shared data: set EDGEDEC_SHARED_DATA to its folder"


def missing_cgroup() -> str | None:
    """A memory cgroup is made and removed again: a writable mount alone does not say it works."""
    root = Path("/sys/fs/cgroup")
    parent = root / "memory" if (root / "memory").is_dir() else root
    child = parent / f"edgedec-probe-{os.getpid()}"
    try:
        child.mkdir()
    except OSError as error:
        return f"no memory cgroup can be made: {error.strerror}"
    limits = [child / "memory.max", child / "memory.limit_in_bytes"]
    limited = any(limit.exists() for limit in limits)
    child.rmdir()
    return None if limited else "cgroups here do not limit memory"


def missing_chromium() -> str | None:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    return None if found else "no Chromium here (on Debian: apt install chromium)"


def missing_android() -> str | None:
    from android_demo.apk import tools

    try:
        tools.require()
    except tools.MissingError as error:
        return str(error)
    return None


NEEDS = {
    "android": missing_android,
    "chromium": missing_chromium,
    "torch": missing_torch,
    "optimum": missing_optimum,
    "coreml": missing_coremltools,
    "ray": missing_ray,
    "shared_data": missing_shared_data,
    "cgroup": missing_cgroup,
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return a worker more than cores, since many a test waits for a program that it started."""
    return (os.cpu_count() or 1) + 1


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files, and folders of files, that the markers would deselect whole are not imported."""
    path = collection_path.relative_to(REPOSITORY)
    path = path / "test_any.py" if collection_path.is_dir() else path
    return True if "not full" in config.option.markexpr and suites.left_out(path) else None


# First, because pytest's own hook deselects by markers.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reasons: dict[str, str | None] = {}
    left_out = functools.cache(lambda path: suites.left_out(path.relative_to(REPOSITORY)))
    for item in items:
        if own := left_out(item.path):
            item.add_marker(pytest.mark.own_files)
        if own or kinds.only_in_full_runs(item):
            item.add_marker(pytest.mark.full)
        for need in NEEDS.keys() & {mark.name for mark in item.iter_markers()}:
            if need not in reasons:
                reasons[need] = NEEDS[need]()
            reason = reasons[need]
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True, scope="module")
def collected_once() -> None:
    """What is alive lives long, as the tests do: the collector looks at what a file adds alone."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the reasons of all skipped tests in one line."""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.getreports("skipped")
        if isinstance(report.longrepr, tuple)
    )
    if reasons:
        said = "; ".join(f"{count} {reason}" for reason, count in reasons.most_common())
        terminalreporter.write_line(f"skipped: {said}")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of public prompts; mark the test `shared_data`."""
    return SHARED_DATA


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB, which a test may fill."""
    from small_disk import mounted

    with mounted(tmp_path / "disk") as folder:
        yield folder


@pytest.fixture(autouse=True, scope="session")
def cache_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither read nor write what the user's edgedec remembers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def forget(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], bool]], None]:
    """Modules are imported anew during a test, and are the old ones again after it.

    Their parents hold them as attributes too: without that the next test that patches one by
    its path would patch the new module, while its functions are the old one's.
    """

    def call(which: Callable[[str], bool]) -> None:
        for name in [name for name in sys.modules if which(name)]:
            parent, _, child = name.rpartition(".")
            if hasattr(sys.modules.get(parent), child):
                monkeypatch.delattr(sys.modules[parent], child)
        for name in [name for name in sys.modules if which(name)]:
            monkeypatch.delitem(sys.modules, name)

    return call
