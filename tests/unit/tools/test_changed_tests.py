"""Which tests run when which files change, and what `.ci/run` reads and prints."""

from __future__ import annotations

import json
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
import suites

REPOSITORY = Path(__file__).resolve().parents[3]
ROOMS = (
    ".github", "android_demo", "benchmarks", "docs", "edgedec", "export", "integrations", "models",
    "runtimes", "tests", "tools",
)  # fmt: skip
FILES = [
    *("mkdocs.yml", "pyproject.toml"),
    *(
        file.relative_to(REPOSITORY).as_posix()
        for room in ROOMS
        for file in (REPOSITORY / room).rglob("*.*")
    ),
]
RUN = "tests/cli/test_cli_run.py"
GOLDEN = "tests/golden/test_golden.py"
TEXT = "tests/unit/text/test_text.py"


def test_every_pattern_of_the_tables_fits_a_file() -> None:
    patterns = {*suites.LEFT_OUT, *(row for row, _ in suites.TESTS_OF)}
    patterns |= {pattern for _, tests in suites.TESTS_OF for pattern in tests}
    assert [one for one in sorted(patterns) if not any(fnmatch(file, one) for file in FILES)] == []


@pytest.mark.parametrize(
    ("changed", "runs", "leaves"),
    [
        ("edgedec/text/detokenize.py", TEXT, RUN),
        (
            "runtimes/coreml/model.py",
            "tests/contract/test_coreml.py",
            GOLDEN,
        ),
        ("export/quantize.py", GOLDEN, TEXT),
        ("benchmarks/suite.py", "tests/benchmarks/test_report.py", TEXT),
        (
            "tests/support/tiny_gguf.py",
            "tests/contract/test_llamacpp.py",
            "tests/contract/test_onnx.py",
        ),
        ("tests/cli/conftest.py", RUN, "tests/contract/test_onnx.py"),
        (
            TEXT,
            TEXT,
            RUN,
        ),
    ],
)
def test_a_changed_file_has_its_tests_and_no_others(changed: str, runs: str, leaves: str) -> None:
    found = suites.tests_of([changed], REPOSITORY)
    assert runs in found
    assert leaves not in found


def program(name: str, *arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(REPOSITORY / ".ci" / name), *arguments]
    return subprocess.run(command, input=said, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("needed", "reason"),
    [
        (["filelock", 'nvidia-x; platform_system == "Nowhere"', 'triton; extra == "all"'], ""),
        (["filelock", 'nvidia-cudnn-cu13==9.20; python_version > "3"'], "nvidia-cudnn-cu13"),
    ],
)
def test_a_build_with_cuda_is_told(needed: list[str], reason: str) -> None:
    report = json.dumps({"install": [{"metadata": {"requires_dist": needed}}]})
    done = program("without_cuda.py", said=report)
    assert (done.returncode, reason in done.stderr) == (int(bool(reason)), True)
    assert program("without_cuda.py").returncode == 1


CASES = """
<testcase classname="tests.unit.text.test_text.TestA" name="a" time="{}"/>
<testcase classname="tests.unit.text.test_text" name="b" time="1.5"/>
<testcase classname="tests.cli.test_cli_run" name="c" time="2.0"/>
"""


def test_the_summary_of_a_run(tmp_path: Path) -> None:
    report = tmp_path / "tests.xml"
    suite = '<testsuites><testsuite tests="3" failures="{}" errors="0" skipped="1">{}</testsuite>'
    report.write_text(suite.format(0, CASES.format(1.0)) + "</testsuites>", "utf-8")
    done = program("summary.py", "0", str(report), str(tmp_path / "missing.xml"))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split() for line in lines[1:3]] == [
        ["2.5", "s", "tests/unit/text/test_text.py"],
        ["2.0", "s", "tests/cli/test_cli_run.py"],
    ]
    assert lines[-1] == "2 passed, 0 failed, 1 skipped"
    assert program("summary.py", "1", str(report)).returncode == 1
    report.write_text(suite.format(1, CASES.format(1.0)) + "</testsuites>", "utf-8")
    assert program("summary.py", "0", str(report)).returncode == 1


def test_the_summary_counts_tests_in_kotlin(tmp_path: Path) -> None:
    report = tmp_path / "TEST-dev.edgedec.core.NoiseTest.xml"
    suite = '<testsuite tests="2" failures="{}" errors="0" skipped="0">{}</testsuite>'
    case = '<testcase classname="dev.edgedec.core.NoiseTest" name="n" time="1.5"/>'
    report.write_text(suite.format(0, 2 * case), "utf-8")
    done = program("summary.py", "0", str(report))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].split() == ["3.0", "s", "dev.edgedec.core.NoiseTest"]
    assert done.stdout.splitlines()[-1] == "2 passed, 0 failed, 0 skipped"
    report.write_text(suite.format(1, 2 * case), "utf-8")
    assert program("summary.py", "0", str(report)).returncode == 1
