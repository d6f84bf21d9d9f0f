"""Runs the steps of a workflow of .github/workflows on this machine, as far as they can.

    python -m tools.workflow_steps tests.yml package
    python -m tools.workflow_steps release.yml build --ref v0.2.0

A checkout is a copy of the files that git knows, setup-python a fresh environment of the present
interpreter. Other actions, and steps with secrets, with sudo or that push, are named and left out.
The exit code is that of the first step that fails.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tools.build_twice import ROOT, copy

_EXPRESSION = re.compile(r"\$\{\{\s*([\w.-]+)\s*\}\}")
# What is not done from here.
_ELSEWHERE = (
    ("sudo ", "needs the rights of root"),
    ("git push", "pushes"),
    ("--push", "pushes"),
    ("docker ", "needs a container engine"),
)


class Runner:
    """A folder with a copy of the repository, in which steps run.

    Args:
        folder: to use.
        known: values of expressions, such as ``matrix.python``.

    """

    def __init__(self, folder: Path, known: Mapping[str, str]) -> None:
        self._work, self._temp, self._env = folder / "work", folder / "temp", folder / "env"
        self._known = known
        self._temp.mkdir()
        self._work.mkdir()
        self._path = os.environ["PATH"]

    def run(self, step: Mapping[str, Any], inherited: Mapping[str, str]) -> int:
        """Run a step, or say why not; return its exit code."""
        name = str(step.get("name") or step.get("uses") or str(step["run"]).splitlines()[0])
        if "uses" in step:
            print(f"-- {name}: {self._use(str(step['uses']))}", flush=True)
            return 0
        env = {**inherited, **step.get("env", {})}
        text = "\n".join([str(step["run"]), *map(str, env.values())])
        if why := self._left_out(text):
            print(f"-- {name}: left out, it {why}", flush=True)
            return 0
        print(f"== {name}", flush=True)
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c",
                   self._filled(str(step["run"]))]  # fmt: skip
        return subprocess.run(command, cwd=self._work, env=self._environment(env)).returncode

    def _use(self, action: str) -> str:
        name = action.partition("@")[0]
        if name == "actions/checkout":
            copy(self._work)
            who = ["-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
            for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "A copy"]):
                subprocess.run(["git", *words], cwd=self._work, check=True)
            return "a copy of this clone, as one commit"
        if name == "actions/setup-python":
            venv.create(self._env, with_pip=True)
            self._path = f"{self._env / 'bin'}{os.pathsep}{self._path}"
            return f"an environment of Python {sys.version.split()[0]}"
        return "left out, an action of others"

    def _left_out(self, text: str) -> str:
        for word, why in _ELSEWHERE:
            if word in text:
                return why
        unknown = [one for one in _EXPRESSION.findall(text) if one not in self._known]
        return f"needs {unknown[0]}" if unknown else ""

    def _filled(self, text: str) -> str:
        return _EXPRESSION.sub(lambda found: self._known[found[1]], text)

    def _environment(self, env: Mapping[str, str]) -> dict[str, str]:
        own = {name: self._filled(str(value)) for name, value in env.items()}
        folders = {"PATH": self._path, "RUNNER_TEMP": str(self._temp), "HOME": str(self._temp)}
        kept = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
        return {**kept, "CI": "true", **folders, **own}


def matrix(job: Mapping[str, Any]) -> dict[str, str]:
    """Return the first combination of a job's matrix, as values of expressions."""
    found = job.get("strategy", {}).get("matrix", {})
    lists = {name: values for name, values in found.items() if name not in ("include", "exclude")}
    return {f"matrix.{name}": str(values[0]) for name, values in lists.items()}


def steps(workflow: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    """Yield a job's steps; SystemExit if there is no such job."""
    jobs = workflow["jobs"]
    if name not in jobs:
        raise SystemExit(f"no job {name}: there are {', '.join(jobs)}")
    yield from jobs[name]["steps"]


def main() -> int:
    """Run a job; return the exit code."""
    import yaml

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("workflow", help="a file of .github/workflows")
    parser.add_argument("job")
    parser.add_argument("--ref", default="main", help="name of the branch or tag")
    asked = parser.parse_args()
    text = (ROOT / ".github" / "workflows" / asked.workflow).read_text("utf-8")
    workflow = yaml.safe_load(text)
    job = workflow["jobs"].get(asked.job, {})
    known = {**matrix(job), "github.ref_name": asked.ref}
    inherited = {**workflow.get("env", {}), **job.get("env", {})}
    with tempfile.TemporaryDirectory(prefix="edgedec-workflow.") as folder:
        runner = Runner(Path(folder), known)
        for step in steps(workflow, asked.job):
            if code := runner.run(step, inherited):
                print(f"exit code {code}", file=sys.stderr)
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
