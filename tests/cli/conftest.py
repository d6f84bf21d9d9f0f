"""A tiny random pair in a real bundle, and two ways to call the command line."""

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click.testing
import pytest
import tiny_bundles
from tiny_checkpoints import noisy_checkpoint

from edgedec.cli import _progress, main
from edgedec.export import ExportOptions
from edgedec.library import Library
from edgedec.profiling import children
from edgedec.profiling.children import MeasurementJob, PlaceOutcome

TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] not in ['user', 'assistant', 'system'] %}"
    "{{ raise_exception('roles are user, assistant and system') }}{% endif %}"
    "{{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
CONTEXT = 4096
Run = Callable[..., click.testing.Result]


def checkpoint(folder: Path, *, noise: float, template: bool) -> Path:
    entries = {"eos_token": "<|end|>"} | ({"chat_template": TEMPLATE} if template else {})
    return noisy_checkpoint(folder, noise=noise, context=CONTEXT, entries=entries)


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``target`` and ``draft``, which is the target with some noise."""
    folder = tmp_path_factory.mktemp("pair")
    checkpoint(folder / "target", noise=0, template=True)
    checkpoint(folder / "draft", noise=0.01, template=True)
    return folder


@pytest.fixture(scope="session")
def bundle(checkpoints: Path) -> Path:
    """Target and draft, fp32."""
    return tiny_bundles.exact(checkpoints / "target", checkpoints / "draft")


@pytest.fixture(scope="session")
def plain_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target alone, int4, without a chat template."""
    folder = tmp_path_factory.mktemp("alone")
    target = checkpoint(folder / "target", noise=0, template=False)
    return tiny_bundles.kept(ExportOptions(target, folder / "bundle", parity=False))


@pytest.fixture(scope="session")
def exact_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Target and draft, int4, exported batch-invariant."""
    folder = tmp_path_factory.mktemp("exact")
    target = checkpoint(folder / "target", noise=0, template=False)
    draft = checkpoint(folder / "draft", noise=0.01, template=False)
    options = ExportOptions(target, folder / "bundle", draft, batch_invariant=True, parity=False)
    return tiny_bundles.kept(options)


@pytest.fixture(scope="session")
def outcomes() -> dict[MeasurementJob, PlaceOutcome]:
    """What was measured in children of this session's tests, by what was asked."""
    return {}


@pytest.fixture
def each_place_once(
    outcomes: dict[MeasurementJob, PlaceOutcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place that another test has measured is not measured again: it would be much the same."""
    measure = children.measure

    def measured(job: MeasurementJob, limit_s: float) -> PlaceOutcome:
        found = outcomes.get(job) or measure(job, limit_s)
        if found.measured.parity.usable:
            outcomes[job] = found
        return found

    monkeypatch.setattr(children, "measure", measured)


@pytest.fixture(autouse=True)
def no_lines_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes seconds on a busy machine prints nothing that it does not print elsewhere."""
    monkeypatch.setattr(_progress, "_EVERY_S", math.inf)


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    """The user's library, in a folder of the test's own."""
    monkeypatch.setenv("EDGEDEC_LIBRARY", str(tmp_path / "library"))
    return Library()


@pytest.fixture
def run() -> Run:
    """Call the command line in this process."""

    def call(*args: object, stdin: bytes | str | None = None) -> click.testing.Result:
        runner = click.testing.CliRunner()
        return runner.invoke(main, [str(arg) for arg in args], input=stdin, prog_name="edgedec")

    return call


@pytest.fixture
def start() -> Callable[..., "subprocess.Popen[bytes]"]:
    """Start the command line in a process of its own."""

    def call(*args: object, **options: Any) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "edgedec", *(str(arg) for arg in args)]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen(command, **{**pipes, **options})

    return call


def one_line(result: click.testing.Result, code: int = 2) -> str:
    """The single line of a refused command."""
    assert result.exit_code == code, (result.exit_code, result.output, result.exception)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("edgedec: error: ")
    return line


@pytest.fixture(name="one_line")
def one_line_fixture() -> Callable[..., str]:
    return one_line
