"""An option of pytest's, ``--until``: the time after which no test begins, for `.ci/run`."""

import time

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    told = "seconds since 1970 after which the tests that are left are skipped"
    parser.addoption("--until", type=float, default=float("inf"), help=told)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.time() > item.config.getoption("--until"):
        pytest.skip("not run: no time was left")
