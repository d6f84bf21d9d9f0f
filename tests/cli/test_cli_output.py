"""What stands where on the terminal: columns and long lines."""

import io
import shutil
from types import SimpleNamespace

import click
import pytest

from edgedec.cli import _output
from edgedec.cli._group import _end
from edgedec.cli._terminal import width
from edgedec.cli.demo import _totals
from edgedec.decoding.metrics import Metrics

LONG = "one two three " * 20
ROWS = [("first", LONG.strip()), ("the second", "short"), ("path", "/" + "x" * 90), ("none", "")]


def test_a_table_fits_the_terminal(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_output, "width_of", lambda stream: 80)
    _output.table(ROWS)
    lines = capsys.readouterr().out.splitlines()
    starts = [line[: len("the second  ")].strip() for line in lines]
    assert [start for start in starts if start] == [name for name, _ in ROWS]
    values = [line[len("the second  ") :] for line in lines]
    assert " ".join(values).split() == [word for _, value in ROWS for word in value.split()]
    assert max(len(line) for line in lines if "x" not in line) <= 80
    assert any("x" * 90 in line for line in lines)  # a path stays whole, to be copied


def test_only_a_terminal_has_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    sized = SimpleNamespace(columns=77, lines=24)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_, **__: sized)
    assert width(SimpleNamespace(isatty=lambda: True)) == 77
    assert width(SimpleNamespace(isatty=lambda: False)) > 10**6


def test_elsewhere_a_value_is_one_line(capsys) -> None:
    _output.table(ROWS)
    assert len(capsys.readouterr().out.splitlines()) == len(ROWS)


def test_what_moves_a_terminal_is_not_shown(capsys) -> None:
    _output.table([("format", "gguf\x1b[2J\nweights fine")])
    assert capsys.readouterr().out.splitlines() == ["format  gguf?[2J?weights fine"]
    with pytest.raises(click.exceptions.Exit):
        _end("the bundle has gguf\x1b[2J,\nonnx", 2)
    assert capsys.readouterr().err == "edgedec: error: the bundle has gguf?[2J, onnx\n"


def test_the_names_of_a_demo_stay_whole_at_80_columns() -> None:
    rich = pytest.importorskip("rich.console")
    metrics = Metrics(emitted=9, target_passes=3, drafted_tokens=9, accepted_tokens=6, decode_s=1)
    side = SimpleNamespace(metrics=metrics)
    pair = SimpleNamespace(
        name="mailbox.py:remove_label", plain=side, speculative=side, identical=True
    )
    console = rich.Console(width=80)
    with console.capture() as captured:
        console.print(_totals([pair]))
    words = captured.get().split()
    assert {"mailbox.py:", "remove_label", "speculative", "9/s", "3.00"} <= set(words)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (30, 10)])
def test_the_race_fits_the_screen_and_cuts_no_line(width: int, height: int) -> None:
    rich = pytest.importorskip("rich.console")
    from edgedec.cli._side_by_side import SideBySideView

    console = rich.Console(width=width, height=height, file=io.StringIO())
    stage = SideBySideView(console, 100)
    code = "    return self._mailbox.get_message(key, default=None)  # the line of a program"
    for number in range(60):
        event = SimpleNamespace(text=f"\n{number:02}{code}", source="draft")
        stage.on_token("plain" if number % 3 else "speculative", event)
    lines = console.render_lines(stage._both(), pad=False)
    shown = ["".join(segment.text for segment in line) for line in lines]
    assert len(shown) < height
    assert max(map(len, shown)) <= width
    # A line that is too long goes on in the next, and none of it is lost.
    assert "the line of a program" in " ".join(" ".join(shown).split())
    assert any(line.startswith(("57", "58")) for line in shown) or width < 40
