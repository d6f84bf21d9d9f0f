"""Print the slowest test files, and how many tests passed, from reports of pytest and Surefire.

Usage: summary.py FAILED_STEPS REPORT.xml ...; the exit code is 1 unless everything holds. Beside a
report NAME.xml, NAME-again.xml is of its failures, run once more alone: what passed then is named.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

SLOWEST = 30


def file_of(case: ElementTree.Element) -> str:
    """Return a test's file: its class name is the path with dots, and then classes.

    Tests in Kotlin have none of such a name: their class stands for it.
    """
    parts = case.get("classname", "").split(".")
    ends = [place for place, part in enumerate(parts, 1) if part.startswith("test_")]
    if not ends:
        return case.get("classname") or case.get("name", "?")
    return "/".join(parts[: ends[0]]) + ".py"


def suites_of(report: Path) -> list[ElementTree.Element]:
    """Return the suites of a report: pytest's has them inside, Surefire's is one."""
    return list(ElementTree.parse(report).getroot().iter("testsuite"))


def outcomes_of(suites: list[ElementTree.Element]) -> Counter[str]:
    """Return the tests of a report that ran, each with its failures and errors."""
    outcomes = Counter[str]()
    for case in (case for suite in suites for case in suite.iter("testcase")):
        if case.find("skipped") is None:
            wrong = len(case.findall("failure")) + len(case.findall("error"))
            outcomes[f"{file_of(case)}::{case.get('name')}"] += wrong
    return outcomes


def came_late(case: ElementTree.Element) -> bool:
    """Whether a test was skipped because no time was left for it."""
    return any(one.get("message", "").startswith("not run") for one in case.findall("skipped"))


def doubtful_of(report: Path, suites: list[ElementTree.Element]) -> Counter[str]:
    """Return the failures of tests that passed when they ran again alone."""
    again = report.with_name(f"{report.stem}-again.xml")
    second = outcomes_of(suites_of(again)) if again.exists() else {}
    return Counter(
        {
            test: wrong
            for test, wrong in outcomes_of(suites).items()
            if wrong and second.get(test) == 0
        }
    )


def main(failed_steps: int, reports: list[Path]) -> int:
    """Print it all; return the exit code."""
    seconds, count = Counter[str](), Counter[str]()
    doubtful, late = Counter[str](), Counter[str]()
    for report in filter(Path.exists, reports):
        suites = suites_of(report)
        for suite in suites:
            for key in ("tests", "failures", "errors", "skipped"):
                count[key] += int(suite.get(key, 0))
            for case in suite.iter("testcase"):
                seconds[file_of(case)] += float(case.get("time", 0))
                late[report.stem] += came_late(case)
        doubtful += doubtful_of(report, suites)
    print(f"The slowest {SLOWEST} files of {len(seconds)}, {sum(seconds.values()):.0f} s in all:")
    for file, taken in seconds.most_common(SLOWEST):
        print(f"{taken:7.1f} s  {file}")
    fell = count["failures"] + count["errors"]
    passed = count["tests"] - fell - count["skipped"] + len(doubtful)
    failed = fell - doubtful.total()
    for test in sorted(doubtful):
        print(f"failed, and passed when it ran again alone: {test}")
    for suite_name, left in (+late).items():
        print(f"not run, for no time was left: {left} tests of the suite {suite_name}")
    if failed_steps:
        print(f"{failed_steps} step(s) failed, see above")
    print(f"{passed} passed, {failed or failed_steps} failed, {count['skipped']} skipped")
    return int(bool(failed_steps or failed or not passed))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), [Path(report) for report in sys.argv[2:]]))
