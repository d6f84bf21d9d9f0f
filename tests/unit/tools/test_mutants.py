"""`make mutants` on a package of three functions: what is noticed, what is not, what never ran."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("coverage")

TOOLS = Path(__file__).resolve().parents[3] / "tools"
RECORDS = "build/mutants/records.jsonl"
SOURCE = '''"""Three functions."""


def larger(a, b):
    return a > b


def unseen(number):
    return number + 1


def never(number):
    return -number
'''
TESTS = """
import pytest
from small import larger, unseen


@pytest.mark.parametrize(("a", "b", "so"), [(1, 2, False), (2, 1, True), (1, 1, False)])
def test_larger(a, b, so):
    assert larger(a, b) is so


def test_unseen():
    assert unseen(1) != 1
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for name, text in (("small/__init__.py", SOURCE), ("tests/test_small.py", TESTS)):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(text)
    (root / "pytest.ini").write_text("[pytest]\n")  # else one of a folder above counts
    return root


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(TOOLS))
    return importlib.import_module("mutations")


def mutants(root: Path, *more: str) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """What is printed, and the records so far by what stands there after the mutation."""
    command = [sys.executable, str(TOOLS / "mutants.py"), "--paths", "small", "--tests", "tests"]
    done = subprocess.run(
        [*command, *more],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in (root / RECORDS).read_text().splitlines()]
    return done.stdout.splitlines(), {record["after"]: record for record in records}


@pytest.mark.slow
@pytest.mark.nightly
def test_survivors_are_told_from_what_is_killed_and_a_second_run_goes_on(tree: Path) -> None:
    printed, first = mutants(tree, "--count", "2")
    assert printed[0].startswith("map  tests/test_small.py: passed")
    assert len(first) == 2
    printed, records = mutants(tree)
    assert not any(line.startswith("map") for line in printed), "nothing has changed since"
    assert {after: record["verdict"] for after, record in records.items()} == {
        "a >= b": "killed",
        "number - 1": "survived",
        "2": "survived",
        "number": "uncovered",
    }
    assert records["a >= b"]["why"] == "tests/test_small.py::test_larger[1-1-False]"
    assert all(records[after] == record for after, record in first.items())
    assert (tree / "small/__init__.py").read_text() == SOURCE, "only copies are changed"
    assert len((tree / RECORDS).read_text().splitlines()) == 4, "each is run once"
    # A test that notices: its file is mapped anew.
    (tree / "tests/test_small.py").write_text(TESTS.replace("unseen(1) != 1", "unseen(1) == 2"))
    (tree / RECORDS).unlink()
    printed, records = mutants(tree)
    assert printed[0].startswith("map  tests/test_small.py")
    assert "3 killed, 1 uncovered" in printed


EVERYTHING = '''
"""Words."""
import typing
LIMIT: int = 3 - 1
__all__ = ["f", "g"]

class C:
    size = -2.5

def f(a, b=1, *, c: int = 2):
    """More words."""
    if a is None or not b:
        raise ValueError(f"{a + 1} is {b}")
    assert isinstance(a, int) and True
    a.b = min(a, b)
    a += 4
    for x in range(a, b):
        if x in (a, b) and x:
            continue
        print(x % 2)
    d = "text" + a
    return g(a, b) if all(c) else "ü" and a << b

lambda: [x for x in y if x]
'''


def test_every_mutation_is_another_program(tool: ModuleType) -> None:
    found = tool.mutations("some.py", EVERYTHING)
    dumps = [ast.dump(ast.parse(tool.mutated(EVERYTHING, one.number))) for one in found]
    assert ast.dump(ast.parse(EVERYTHING)) not in dumps
    assert len(set(dumps)) == len(dumps)
    assert len({mutation.name for mutation in found}) == len(found)
    changes = {(mutation.before, mutation.after) for mutation in found}
    assert changes >= {
        ("3 - 1", "3 + 1"),
        ("-2.5", "2.5"),
        ("a is None", "a is not None"),
        ("a is None or not b", "a is None and (not b)"),
        ("a.b = min(a, b)", "pass"),
        ("min(a, b)", "max(a, b)"),
        ("a += 4", "pass"),
        ("range(a, b)", "range(b, a)"),
        ("continue", "break"),
        ("x % 2", "x // 2"),
        ("g(a, b)", "g(b, a)"),
        ("all(c)", "not all(c)"),
        ("a << b", "a >> b"),
    }
    # Words, types and what helps a type checker decide nothing.
    for text in ("a + 1", "isinstance(a, int)", "True", "'text' + a"):
        assert text not in {before for before, _ in changes}


def test_what_must_run_to_notice(tool: ModuleType) -> None:
    found = {(m.before, m.line): m for m in tool.mutations("some.py", EVERYTHING)}
    lines = EVERYTHING.splitlines()
    line = lines.index("        print(x % 2)") + 1
    assert found["x % 2", line].lines == (line, line)
    # A default is made at import: whoever calls the function notices.
    line = lines.index("def f(a, b=1, *, c: int = 2):") + 1
    _, last = found["2", line].lines
    assert lines[last - 1].startswith("    return g(a, b)")
    _, last = found["-2.5", lines.index("    size = -2.5") + 1].lines
    assert last > len(lines), "any test that runs a line of the file"
