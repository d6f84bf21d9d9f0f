"""What a terminal of 80 columns shows of the commands that measure: whole lines, bars that end."""

import json
import re

import kinds
import pytest

pytest.importorskip("pty")
import narrow_terminal as narrow

# A pair at many places with long names, as if it had been measured.
_PROGRAM = """
import dataclasses, sys
from edgedec.profiling import run as profiling
from %s import main
from edgedec.records.place import Place
from edgedec.planning import decisions
from edgedec.records.profile import Parity
from profiles import draft, profile, ran, target
cores = tuple(range(8))
long = Place("onnx", threads=8, cores=cores)
gpu = Place("gguf", device="Vulkan0", threads=8)
far = Place("onnx", device="NPU", provider="OpenVINOExecutionProvider")
places = [target(), target(long), target(gpu, 6e-3), target(far, 7e-3, steady=False)]
places += [draft(), draft(gpu), draft(long)]
wrong = Parity(0.2, 3.0, usable=False, reason="its numbers are wrong " * 5)
places.append(draft(Place("onnx", device="DSP", provider="QNNExecutionProvider"), parity=wrong))
found = dataclasses.replace(
    profile(*places),
    texts="4 texts of a-file-with-a-rather-long-name.jsonl", busy=0.37,
    notes=("every drafter: plans could not be run, since " + "there are many of them, " * 4,),
)
def measured(models, options, on_progress):
    steps = [f"{one.role} on {one.place.label} and {one.place.label}" for one in places]
    for done, step in enumerate([*steps, "drafters on the texts", "done"]):
        if on_progress is not None:
            on_progress(step, done, len(places) + 1)
    return found
def run(self, plans, together):
    self.on_progress(f"{len(plans)} plans in turns", 0, 1)
    self.on_progress("done", 1, 1)
    return ran(lambda plan: 100.0 if plan.plain else 1234.5)(plans, together)
profiling.profile = measured
decisions.Runner.__call__ = run
main(%s)
"""


def shown(*arguments: str, columns: int = 80) -> str:
    program = "benchmarks.__main__" if arguments[0] == "simulate" else "edgedec.cli"
    return narrow.run(_PROGRAM % (program, json.dumps(arguments)), columns)


@pytest.mark.parametrize("columns", kinds.in_full([80, 120]))
@pytest.mark.parametrize(
    "arguments",
    [("profile", "demo"), ("plan", "demo", "--forget"),
     ("plan", "demo", "--new-tokens", "40", "--all"),
     ("simulate", "--card", "raspberry-pi-5", "--target", "3B int4", "--draft", "0.2B int4")],
)  # fmt: skip
def test_no_line_is_longer_than_the_terminal(arguments: tuple[str, ...], columns: int) -> None:
    lines = narrow.lines(shown(*arguments, columns=columns))
    assert lines
    assert [line for line in lines if len(line) > columns] == []


@pytest.mark.parametrize("arguments", [("profile", "demo"), ("plan", "demo", "--new-tokens", "40")])
def test_one_bar_shows_all_of_the_work_and_ends_at_100_percent(arguments: tuple[str, ...]) -> None:
    bars = [line for line in narrow.lines(shown(*arguments)) if "━" in line and "%" in line]
    assert bars[-1].startswith("done ")
    assert bars[-1].endswith(" 100%")
    shares = [int(line.split()[-1][:-1]) for line in bars]
    assert shares == sorted(shares)


def test_work_without_a_step_leaves_no_bar() -> None:
    """A stored profile is replayed at once: nothing says what the bar would be of."""
    text = shown("simulate", "--card", "raspberry-pi-5", "--target", "3B int4")
    after = text[text.rfind("━") : text.find("tokens/s")]
    assert "\x1b[1A\x1b[2K" in after, "the bar's line is not cleared"
    kept = shown("plan", "demo", "--all", "--new-tokens", "40")
    assert "\x1b[1A\x1b[2K" not in kept[kept.rfind("━") : kept.find("tokens/s")]


def test_a_profile_keeps_places_and_figures_whole_and_names_what_it_leaves_out() -> None:
    text = "\n".join(line for line in narrow.lines(shown("profile", "demo")) if "━" not in line)
    assert "…" not in text
    row = next(line for line in text.splitlines() if re.match(r" ?target +onnx cpu x2", line))
    assert re.search(r" 8 +1\.38 .* 1\.0 MB +100%", row), row
    assert "(load s, " in text
    assert "Vulkan0" in text
    assert "37%" in text
    wide = "\n".join(narrow.lines(shown("profile", "demo", columns=140)))
    assert "in a wider terminal" not in wide
    assert "KL" in wide


def test_a_plans_long_names_go_on_below() -> None:
    lines = [
        x
        for x in narrow.lines(shown("plan", "demo", "--all", "--new-tokens", "40"))
        if "━" not in x
    ]
    assert any(line.startswith("* ") and line.endswith("MB") for line in lines)
    assert "…" not in "".join(lines)
