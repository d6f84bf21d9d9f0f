"""Workflows of the forge: linted, pinned, with few rights, and their steps run here."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tools.workflow_steps import Runner, matrix

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: extra docs")

PINNED = re.compile(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


@pytest.fixture(scope="module")
def workflows(repository: Path) -> dict[str, str]:
    folder = repository / ".github" / "workflows"
    return {file.name: file.read_text("utf-8") for file in sorted(folder.glob("*.yml"))}


def linted(text: str, folder: Path) -> str:
    """What actionlint finds in a workflow."""
    scripts = sysconfig.get_path("scripts")
    program = shutil.which("actionlint", path=scripts) or shutil.which("actionlint")
    if program is None:
        pytest.skip(
            "actionlint is not installed:"
            " go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"
        )
    file = folder / "workflow.yml"
    file.write_text(text, "utf-8")
    done = subprocess.run([program, "-no-color", str(file)], capture_output=True, text=True)
    return done.stdout + done.stderr


def test_actionlint_finds_nothing(workflows: dict[str, str], tmp_path: Path) -> None:
    assert set(workflows) == {"tests.yml", "release.yml", "nightly.yml"}
    for text in workflows.values():
        assert linted(text, tmp_path) == ""
    wrong = workflows["release.yml"].replace("needs: build", "needs: builds")
    assert "builds" in linted(wrong, tmp_path)


def careless(text: str) -> list[str]:
    """Actions that are not pinned, rights that nobody needs, and steps that take input as code."""
    uses = re.findall(r"uses: (.+)$", text, re.MULTILINE)
    found = [f"not pinned: {one}" for one in uses if not PINNED.fullmatch(one.strip())]
    workflow = yaml.safe_load(text)
    if workflow.get("permissions") != {"contents": "read"}:
        found.append("rights of all jobs")
    for name, job in workflow["jobs"].items():
        if "timeout-minutes" not in job:
            found.append(f"{name}: no limit of time")
        for step in job["steps"]:
            if "${{ github." in str(step.get("run", "")):
                found.append(f"{name}: an expression inside a script")
    return found


def test_workflows_are_careful(workflows: dict[str, str]) -> None:
    for name, text in workflows.items():
        assert careless(text) == [], name


def test_a_careless_workflow_would_be_seen() -> None:
    text = (
        "permissions: write-all\njobs:\n  a:\n    steps:\n      - uses: actions/checkout@v4\n"
        "      - run: echo ${{ github.head_ref }}\n"
    )
    assert careless(text) == [
        "not pinned: actions/checkout@v4", "rights of all jobs", "a: no limit of time",
        "a: an expression inside a script",
    ]  # fmt: skip


def test_the_token_of_publishing_is_nobody_elses(workflows: dict[str, str]) -> None:
    jobs = yaml.safe_load(workflows["release.yml"])["jobs"]
    with_token = {name for name, job in jobs.items() if "id-token" in job.get("permissions", {})}
    assert with_token == {"build", "publish"}
    assert jobs["publish"]["environment"] == "release"
    assert "run" not in {key for step in jobs["publish"]["steps"] for key in step}
    assert "password" not in workflows["release.yml"].split("publish:")[1].split("image:")[0]


def combinations(workflow: Any) -> set[tuple[str, str]]:
    """The systems and versions of Python that the tests run on."""
    found = workflow["jobs"]["tests"]["strategy"]["matrix"]
    crossed = {(system, python) for system in found["os"] for python in found["python"]}
    return crossed | {(one["os"], one["python"]) for one in found["include"]}


def test_the_tests_run_on_what_is_promised(repository: Path, workflows: dict[str, str]) -> None:
    ran = combinations(yaml.safe_load(workflows["tests.yml"]))
    assert {one.split("-")[0] for one, _ in ran} == {"ubuntu", "macos", "windows"}
    assert any(system.endswith("-arm") for system, _ in ran)
    project = (repository / "pyproject.toml").read_text("utf-8")
    named = set(re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project))
    assert {python for system, python in ran if system == "ubuntu-24.04"} == named
    oldest, newest = (sorted(named, key=lambda one: int(one[2:]))[at] for at in (0, -1))
    for system in {one for one, _ in ran}:
        assert {(system, oldest), (system, newest)} <= ran


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path, {"matrix.python": "3.12"})


def test_steps_run_as_a_forge_runs_them(
    runner: Runner, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert runner.run({"run": "echo $GIVEN ${{ matrix.python }}"}, {"GIVEN": "a"}) == 0
    assert "a 3.12" in capfd.readouterr().out
    # The first command that fails ends a step, also in front of a pipe.
    assert runner.run({"run": "false\ntouch made"}, {}) == 1
    assert runner.run({"run": "exit 3 | cat"}, {}) == 3
    assert not (tmp_path / "work" / "made").exists()


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ({"run": "sudo apt-get install x"}, "root"),
        ({"run": "git push origin main"}, "pushes"),
        ({"run": "echo x", "env": {"KEY": "${{ secrets.KEY }}"}}, "needs secrets.KEY"),
        ({"uses": "others/action@v1"}, "an action of others"),
    ],
)
def test_steps_that_reach_elsewhere_are_left_out(
    runner: Runner, step: dict[str, Any], why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert runner.run(step, {}) == 0
    said = capfd.readouterr().out
    assert "left out" in said
    assert why in said


def test_the_first_of_a_matrix_is_taken() -> None:
    job = {"strategy": {"matrix": {"os": ["a", "b"], "python": ["3.10"], "include": [{"os": "c"}]}}}
    assert matrix(job) == {"matrix.os": "a", "matrix.python": "3.10"}
    assert matrix({}) == {}


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.network
def test_the_package_job_passes_here(repository: Path) -> None:
    """Builds twice, checks the metadata, installs the wheel alone, and lets it answer."""
    reach = [sys.executable, "-m", "pip", "install", "--no-deps", "--ignore-installed",
             "--dry-run", "--quiet", "--retries=1", "--timeout=10", "click"]  # fmt: skip
    if subprocess.run(reach, capture_output=True).returncode:
        pytest.skip("no package index can be reached")
    command = [sys.executable, "-m", "tools.workflow_steps", "tests.yml", "package"]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "== install the wheel alone" in done.stdout
