"""What stands where on the terminal: columns, long lines, the line of figures."""

import shutil
from types import SimpleNamespace

import click
import pytest

from edgedec.cli import _output
from edgedec.cli._group import _end
from edgedec.cli.demo import _totals
from edgedec.decoding.metrics import Metrics

LONG = "one two three " * 20
ROWS = [("first", LONG.strip()), ("the second", "short"), ("path", "/" + "x" * 90), ("none", "")]


def test_a_table_fits_the_terminal(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_output, "_columns", lambda stream: 80)
    _output.table(ROWS)
    lines = capsys.readouterr().out.splitlines()
    starts = [line[: len("the second  ")].strip() for line in lines]
    assert [start for start in starts if start] == [name for name, _ in ROWS]
    values = [line[len("the second  ") :] for line in lines]
    assert " ".join(values).split() == [word for _, value in ROWS for word in value.split()]
    assert max(len(line) for line in lines if "x" not in line) <= 80
    assert any("x" * 90 in line for line in lines)  # a path stays whole, to be copied


def test_only_a_terminal_has_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: SimpleNamespace(columns=77))
    assert _output._columns(SimpleNamespace(isatty=lambda: True)) == 77
    assert _output._columns(SimpleNamespace(isatty=lambda: False)) > 10**6


def test_elsewhere_a_value_is_one_line(capsys) -> None:
    _output.table(ROWS)
    assert len(capsys.readouterr().out.splitlines()) == len(ROWS)


def test_what_moves_a_terminal_is_not_shown(capsys) -> None:
    _output.table([("format", "gguf\x1b[2J\nweights fine")])
    assert capsys.readouterr().out.splitlines() == ["format  gguf?[2J?weights fine"]
    with pytest.raises(click.exceptions.Exit):
        _end("the bundle has gguf\x1b[2J,\nonnx", 2)
    assert capsys.readouterr().err == "edgedec: error: the bundle has gguf?[2J, onnx\n"


def test_the_line_of_figures_says_what_decoded() -> None:
    plan = {"drafter": "hybrid", "format": "gguf"}
    done = SimpleNamespace(metrics=Metrics(emitted=3), finish_reason="length", plan=plan, seed=7)
    assert _output.summary(done, sampled=True).endswith(" | drafter hybrid, gguf | seed 7")
    assert _output.summary(done, sampled=False).endswith(" | drafter hybrid, gguf")


def test_the_names_of_a_demo_stay_whole_at_80_columns() -> None:
    rich = pytest.importorskip("rich.console")
    metrics = Metrics(emitted=9, target_passes=3, drafted_tokens=9, accepted_tokens=6, decode_s=1)
    side = SimpleNamespace(metrics=metrics)
    duel = SimpleNamespace(
        name="mailbox.py:remove_label", plain=side, speculative=side, identical=True
    )
    console = rich.Console(width=80)
    with console.capture() as captured:
        console.print(_totals([duel]))
    words = captured.get().split()
    assert {"mailbox.py:", "remove_label", "speculative", "9/s", "3.00"} <= set(words)
