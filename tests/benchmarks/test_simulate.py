"""``edgedec simulate``: cards, plans for them, and what is refused."""

import json
import re

import pytest
from simulated import rounds

from benchmarks.simulation import cards
from benchmarks.simulation.what_if import WhatIf, elsewhere
from edgedec.errors import InputError
from edgedec.profiling import run as profiling
from edgedec.records.profile import SCHEMA, Profile

SIZES = ("--target", "7B int4", "--draft", "0.5B int4", "--new-tokens", 24)


@pytest.fixture
def profiled(monkeypatch):
    """As if a profile of the bundle had been made."""
    made = Profile(SCHEMA, {}, "", {}, (), rounds(), 2e-5)
    monkeypatch.setattr(profiling, "profile", lambda *of: made)


def test_the_cards_are_listed(run) -> None:
    shown = run("simulate", "--cards").stdout
    for name in cards.names():
        assert name in shown
    listed = json.loads(run("simulate", "--cards", "--json").stdout)
    assert [one["name"] for one in listed] == cards.names()
    assert all(one["devices"] for one in listed)


def test_a_plan_for_sizes_and_a_chance(run) -> None:
    result = run("simulate", "--card", "raspberry-pi-5", *SIZES, "--acceptance", 0.8)
    assert result.exit_code == 0, result.stderr
    assert "* " in result.stdout
    assert "plain on card cpu" in result.stdout
    span = re.search(r"gives ([\d.]+) to ([\d.]+) tokens/s", result.stdout)
    assert span is not None
    assert float(span[1]) < float(span[2])
    assert "accepted with probability 0.8" in result.stdout


def test_sizes_without_an_acceptance_give_a_span_and_borrow_no_rounds(run, monkeypatch) -> None:
    def borrowed(*of: object) -> None:
        raise AssertionError("another pair was measured")

    monkeypatch.setattr(profiling, "profile", borrowed)
    card = ("simulate", "--card", "raspberry-pi-5")
    sizes = ("--target", "3B int4", "--draft", "0.2B int4", "--new-tokens", 40)
    result = run(*card, *sizes)
    assert result.exit_code == 0, result.stderr
    span = re.search(r"Between ([\d.]+) and ([\d.]+) times plain decoding", result.stdout)
    assert span is not None
    low, high = float(span[1]), float(span[2])
    assert high > 1.3 * low
    assert "50% to 80% of drafted tokens" in result.stdout
    assert "give --acceptance" in result.stdout
    found = json.loads(run(*card, *sizes, "--json").stdout)
    assert found["acceptance"] == [0.5, 0.8]
    # The ends are what is given with these chances.
    for chance, end in zip(found["acceptance"], found["span"], strict=True):
        given = json.loads(run(*card, *sizes, "--acceptance", chance, "--json").stdout)
        assert given == end


def test_a_target_alone_borrows_no_rounds_either(run, monkeypatch) -> None:
    monkeypatch.setattr(profiling, "profile", lambda *of: 1 / 0)
    result = run("simulate", "--card", "raspberry-pi-5", "--target", "3B int4")
    assert result.exit_code == 0, result.stderr
    assert "* plain on card cpu" in result.stdout
    assert "Nothing was measured with such a target" in result.stdout


def test_a_draft_of_another_size_is_not_the_bundles(bundle, profiled) -> None:
    with pytest.raises(InputError, match="give --acceptance"):
        elsewhere(bundle, "raspberry-pi-5", WhatIf(draft="0.1B int4"))


def test_a_better_draft_is_predicted_to_be_faster(run) -> None:
    def speed(chance: float) -> float:
        result = run(
            "simulate", "--card", "raspberry-pi-5", *SIZES, "--acceptance", chance, "--json"
        )
        found = json.loads(result.stdout)["decision"]["chosen"]
        return float(found["prediction"]["tokens_per_second"])

    worst, best = speed(0.0), speed(0.95)
    assert best > 2 * worst


def test_the_bundles_own_models_with_its_acceptance(run, bundle, profiled) -> None:
    card = ("--card", "jetson-orin-nx", "--target-device", "gpu", "--draft-device", "cpu")
    result = run("simulate", bundle, *card, "--new-tokens", 20, "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    plans = [one["plan"] for one in found["decision"]["candidates"]]
    assert {plan["target"]["device"] for plan in plans} == {"gpu"}
    assert {plan["draft"]["device"] for plan in plans if plan["draft"]} == {"cpu"}
    assert found["slow"]["tokens_per_second"] < found["fast"]["tokens_per_second"]
    assert any("as here, 100 us" in sentence for sentence in found["assumed"])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "no machine to simulate: give --card a .toml file or one of apple-m1-max, "),
        (("--card", "no-such"), "no device card 'no-such': expected apple"),
        (("--card", "missing.toml"), "missing.toml"),
        (("--card", "raspberry-pi-5", "--target", "7", "--acceptance", 0.5), "as in '7B int4'"),
        (
            ("--card", "raspberry-pi-5", *SIZES, "--acceptance", 0.5, "--draft-device", "npu"),
            "has no device 'npu': it has cpu",
        ),
        (
            ("--card", "raspberry-pi-5", *SIZES, "--acceptance", 0.5, "--memory", "1GB"),
            "give --memory",
        ),
        (("--card", "raspberry-pi-5", *SIZES, "--acceptance", 1.5), "1.5"),
        (("--card", "raspberry-pi-5", *SIZES, "--acceptance", "nan"), "acceptance is nan"),
        (("--card", "raspberry-pi-5", *SIZES, "--temperature", "nan"), "temperature is nan"),
        (("--card", "raspberry-pi-5", "--new-tokens", 1), "--new-tokens"),
        (
            (
                "--card",
                "raspberry-pi-5",
                "--target",
                "1B int4",
                "--draft",
                "2B int4",
                "--acceptance",
                0.5,
            ),
            "larger than the target (1B int4, 562.5 MB): swap them",
        ),
        (
            ("--cards", "--card", "raspberry-pi-5"),
            "--cards: it lists all of them: give it alone",
        ),
    ],
)
def test_what_cannot_be_planned_is_refused_in_one_line(run, arguments, told) -> None:
    result = run("simulate", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert told in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_file_of_ones_own(run, tmp_path) -> None:
    card = tmp_path / "mine.toml"
    card.write_text(
        'name = "mine"\ndescription = "My machine"\n[devices.cpu]\nkind = "cpu"\n'
        'description = "A processor"\nmemory = "own"\n'
        + "".join(
            f'[devices.cpu.{name}]\nvalue = {value}\nkind = "derived"\nsource = "me"\nnote = "x"\n'
            for name, value in {
                "memory_bytes": "16e9",
                "bandwidth": "50e9",
                "bandwidth_share": "0.8",
                "flops.int8": "1e12",
                "flops_share": "0.5",
                "launch_s": "1e-4",
            }.items()
        ),
        "utf-8",
    )
    result = run("simulate", "--card", card, *SIZES, "--acceptance", 0.7)
    assert result.exit_code == 0, result.stderr
    assert "My machine" in result.stdout
