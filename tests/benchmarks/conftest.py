"""What tests of the programs of ``python -m benchmarks`` share with those of the commands."""

import click.testing
import pytest

from benchmarks.__main__ import main
from tests.cli.conftest import (
    Run,
    bundle,
    checkpoints,
    exact_bundle,
    one_line_fixture,
    plain_bundle,
)

__all__ = ["bundle", "checkpoints", "exact_bundle", "one_line_fixture", "plain_bundle", "run"]


@pytest.fixture
def run() -> Run:
    """Run a program in this process, as ``run("simulate", "--cards")``."""

    def call(*words: object, stdin: str | bytes | None = None) -> click.testing.Result:
        return click.testing.CliRunner().invoke(main, [str(word) for word in words], input=stdin)

    return call
