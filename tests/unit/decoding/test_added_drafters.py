"""A drafter that an installed package adds: listed, profiled, planned, run, and it decodes."""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click.testing
import pytest
from installed import Install, installer
from profiles import PAIR, WORK, of

from edgedec import Pipeline
from edgedec.cli import main
from edgedec.decoding import drafting
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.errors import PlanError
from edgedec.loading.sources import Models
from edgedec.planning.choose import decide
from edgedec.planning.decisions import plan
from edgedec.planning.plan_files import load, save
from edgedec.profiling import measuring
from edgedec.profiling.places import PlaceFilter
from edgedec.profiling.run import ProfileOptions, read_cached
from edgedec.records.workload import Workload

ECHO = """
    from edgedec.decoding.drafting.base import DrafterInfo
    from edgedec.decoding.drafting.lookup import LookupDrafter

    INFO = DrafterInfo(lengths=(1, 3), context_bytes=100)

    class Echo(LookupDrafter):
        name = "echo"

    def build(parts):
        return Echo(parts.vocab_size, shortest=1)
"""
FAILS = ECHO.replace(
    'name = "echo"', 'name = "echo"\n\n        def propose(self, *_):\n            return 1 / 0'
)
BUILT_IN = tuple(
    sorted({file.stem for file in Path(drafting.__path__[0]).glob("[a-z]*.py")} - {"base"})
)
PROMPT = "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    yield installer(tmp_path / "site-packages", monkeypatch, drafting.forget)
    monkeypatch.undo()
    drafting.forget()


@pytest.fixture
def echo(install: Install) -> None:
    add(install, ECHO)


def add(install: Install, code: str, name: str = "echo") -> None:
    files = {"echo_drafter.py": code}
    install("echo-drafter", files, edgedec_drafters={name: "echo_drafter"})


def call(*arguments: object) -> click.testing.Result:
    words = [str(argument) for argument in arguments]
    return click.testing.CliRunner().invoke(main, words, prog_name="edgedec")


def test_it_is_listed_and_not_imported_for_that(echo: None) -> None:
    assert drafting.names() == sorted((*BUILT_IN, "echo"))
    listed = f"Way of drafting: auto, {', '.join(drafting.names())};"
    assert listed in " ".join(call("generate", "--help").stdout.split())
    assert "did you mean echo?" in call("generate", "demo", "a", "--drafter", "ecko").stderr
    assert "echo_drafter" not in sys.modules
    assert json.loads(call("doctor", "--json").stdout)["added_drafters"] == {"echo": "echo-drafter"}
    assert drafting.info("echo").lengths == (1, 3)


def test_without_it_there_are_the_built_in_ones() -> None:
    drafting.forget()
    assert drafting.names() == list(BUILT_IN)
    assert drafting.problems() == []
    assert "added_drafters" not in json.loads(call("doctor", "--json").stdout)


def test_the_list_of_commands_looks_at_no_package() -> None:
    code = (
        "import sys\nfrom edgedec.cli import main\ntry:\n    main(['--help'])\n"
        "except SystemExit:\n    print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"importlib.metadata", "numpy"} & set(done.stderr.split())


ROUNDS = [replace(one, drafter="echo") for one in PAIR.rounds if one.drafter == "lookup"]
KNOWN = replace(PAIR, rounds=(*PAIR.rounds, *ROUNDS))


def test_it_is_planned_where_it_was_measured(echo: None) -> None:
    decision = decide(KNOWN, WORK)
    (fixed,) = [one for one in of(decision, drafter="echo") if one.plan.draft_length]
    assert fixed.plan.draft_length in (1, 3)
    assert [one for one in of(decision, drafter="echo") if one.plan.draft_length is None]
    assert not of(decide(PAIR, WORK), drafter="echo")


@pytest.mark.full
def test_it_is_profiled_and_decodes(
    echo: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "BUDGET_S", 0.02)
    monkeypatch.setattr(measuring, "WIDTHS", (1, 2, 4, 8))
    monkeypatch.setattr(measuring, "CONTEXTS", (32, 64))
    demo, wanted = Models.find("demo"), PlaceFilter(threads=(1,))
    decision = plan(demo, Workload(16, 16), options=ProfileOptions(wanted=wanted))
    profile = read_cached(demo)
    assert profile is not None
    measured = {(one.drafter, one.draft_length) for one in profile.rounds}
    assert {("echo", 3), ("echo", None), ("lookup", 8)} <= measured
    (candidate, *_) = of(decision, drafter="echo")
    save(replace(decision, chosen=candidate), tmp_path / "plan.json")
    texts = set()
    for options in ({"plan": tmp_path / "plan.json"}, {"drafter": "echo"}, {"drafter": "none"}):
        with Pipeline.open("demo", **{"plan": "none", **options}) as pipeline:  # type: ignore[arg-type]
            assert pipeline.plan["drafter"] == options.get("drafter", "echo")
            text = pipeline.generate(PROMPT, max_new_tokens=24, draft_length=3)
            texts.add(tuple(text.token_ids))
            drafted = text.metrics.drafted_tokens
            assert (drafted > 0) == (pipeline.plan["drafter"] == "echo")
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import no_such_module", "does not load: No module named 'no_such_module'"),
        ("raise SystemExit('no licence')", "does not load: no licence"),
        ("", "expected INFO, a DrafterInfo, got None"),
        (ECHO.replace("def build", "def make"), "expected a function build(parts)"),
        (ECHO.replace("lengths=(1, 3)", "parts=('tea',)"), "one of its parts is 'tea'"),
        (ECHO.replace("lengths=(1, 3)", "parts=('echo',)"), "one of its parts is 'echo'"),
    ],
)
def test_one_that_cannot_be_used_harms_no_other(
    install: Install, code: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    add(install, code)
    (problem,) = drafting.problems()
    assert problem.startswith("echo-drafter: ")
    assert words in problem
    assert "\n" not in problem
    with caplog.at_level(logging.WARNING, "edgedec"):
        assert drafting.usable() == BUILT_IN
        assert "lookup" in drafting.planned()
        assert "echo" not in drafting.planned()
    assert [record.message for record in caplog.records] == [problem]
    assert problem in call("doctor").stderr
    failed = call("generate", "demo", "a", "--drafter", "echo", "-n", "1")
    assert failed.exit_code == 2
    assert failed.stderr.splitlines()[-1] == f"edgedec: error: {problem}"
    assert call("generate", "demo", "a", "--drafter", "lookup", "-n", "1").exit_code == 0


@pytest.mark.parametrize("name", ["lookup", "auto", "Echo", "e/cho"])
def test_a_name_that_it_cannot_have(install: Install, name: str) -> None:
    add(install, ECHO, name)
    assert drafting.names() == list(BUILT_IN)
    (problem,) = drafting.problems()
    assert problem.startswith(f"echo-drafter: its drafter {name!r} is left out: ")
    assert type(drafting.create("lookup", DrafterParts(8))).__name__ == "LookupDrafter"


def test_of_two_of_one_name_the_first_is_taken(install: Install) -> None:
    add(install, ECHO)
    install("other-drafter", {"other.py": ECHO}, edgedec_drafters={"echo": "other"})
    assert drafting.added() == {"echo": "echo-drafter"}
    (problem,) = drafting.problems()
    assert problem.startswith("other-drafter: its drafter 'echo' is left out")


def test_one_that_fails_is_left_by_texts(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    add(install, FAILS)
    words = "echo-drafter: its drafter 'echo' failed: ZeroDivisionError: division by zero"
    with caplog.at_level(logging.WARNING, "edgedec"):
        with Pipeline.open("demo", drafter="echo", plan="none") as pipeline:
            text = pipeline.generate(PROMPT, max_new_tokens=12)
        with Pipeline.open("demo", drafter="none", plan="none") as plain:
            assert text.token_ids == plain.generate(PROMPT, max_new_tokens=12).token_ids
    (warning,) = [record.message for record in caplog.records]
    assert words in warning


def test_a_plan_for_one_that_is_gone_says_so(echo: None, tmp_path: Path) -> None:
    (candidate, *_) = of(decide(KNOWN, WORK), drafter="echo")
    save(replace(decide(KNOWN, WORK), chosen=candidate), tmp_path / "plan.json")
    (tmp_path / "site-packages/echo_drafter-1.0.dist-info/entry_points.txt").unlink()
    drafting.forget()
    with pytest.raises(PlanError, match="no drafter 'echo'"):
        load(tmp_path / "plan.json", Models.find("demo"))
