"""What the pages say of a 3B and an 8B is what the simulation and the measured passes give."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import main

PAGES = ("docs/guides/does-it-help.md",)
CARDS = {"laptop": "intel-core-ultra-258v", "Raspberry": "raspberry-pi-5"}
PAIRS = ((3.0, 1.0), (8.0, 0.6))
RATES = (0.5, 0.8)


def rows(page: Path) -> dict[str, list[list[float]]]:
    """Return the numbers of each cell by the first word of its row."""
    table = page.read_text("utf-8").split("| calculated |")[1].split("\n\n")[0]
    lines = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return {
        cells[0].split()[0]: [[float(n) for n in re.findall(r"[\d.]+", cell)] for cell in cells[1:]]
        for cells in lines
    }


@cache
def simulated(card: str, target: float, draft: float, rate: float) -> dict[str, float]:
    words = f"simulate --card {card} --target-device cpu --draft-device cpu --json".split()
    sizes = ["--target", f"{target:g}B int4", "--draft", f"{draft:g}B int4"]
    done = CliRunner().invoke(main, [*words, *sizes, "--acceptance", str(rate)])
    found = json.loads(done.stdout)
    plain = next(one for one in found["decision"]["candidates"] if one["plan"]["drafter"] == "none")
    chosen = found["decision"]["chosen"]["prediction"]["tokens_per_second"]
    return {
        "low": found["plain_slow"]["tokens_per_second"],
        "high": found["plain_fast"]["tokens_per_second"],
        "factor": chosen / plain["prediction"]["tokens_per_second"],
    }


def scaled(repository: Path, target: float, draft: float) -> list[list[float]]:
    """Return plain speed and factors from the passes that were measured on two cores."""
    page = (repository / "docs" / "measured" / "formats.md").read_text("utf-8")
    (line,) = re.findall(r"^\| ONNX int4 \|.*$", page, re.MULTILINE)
    cells = line.split(" | ")
    costs = dict(zip((2, 3, 4, 8, 16), map(float, cells[4].split(", ")), strict=True))
    speed = float(cells[5].split()[0])

    def factor(rate: float, length: int) -> float:
        tokens = (1 - rate ** (length + 1)) / (1 - rate)
        return tokens / (costs[length + 1] + length * draft / target)

    best = [max(factor(rate, rows - 1) for rows in costs) for rate in RATES]
    return [[speed * 0.5 / target], best]


@pytest.mark.parametrize("name", PAGES)
def test_the_table_is_what_the_formulas_give(repository: Path, name: str) -> None:
    found = rows(repository / name)
    assert set(found) == {*CARDS, "two"}
    for word, card in CARDS.items():
        for pair, (target, draft) in enumerate(PAIRS):
            made = [simulated(card, target, draft, rate) for rate in RATES]
            plain, factors = found[word][2 * pair : 2 * pair + 2]
            assert plain == pytest.approx([made[0]["low"], made[0]["high"]], rel=0.05)
            assert factors == pytest.approx([one["factor"] for one in made], abs=0.01)
    for pair, (target, draft) in enumerate(PAIRS):
        plain, factors = scaled(repository, target, draft)
        assert found["two"][2 * pair] == pytest.approx(plain, rel=0.05)
        assert found["two"][2 * pair + 1] == pytest.approx(factors, abs=0.01)


def test_another_acceptance_would_be_seen() -> None:
    one, other = (simulated("raspberry-pi-5", 8.0, 0.6, rate)["factor"] for rate in (0.5, 0.6))
    assert abs(one - other) > 0.02
