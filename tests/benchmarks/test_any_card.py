"""Whatever a card's file holds, it is read or refused in one line."""

from pathlib import Path

import pytest
from example_counts import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.simulation import cards
from edgedec.errors import InputError

WHOLE = (Path(cards.__file__).parent / "cards" / "jetson-orin-nx.toml").read_bytes()
quick = settings(
    max_examples=examples(150),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def refused_or_read(path: Path, raw: bytes) -> cards.Card | None:
    path.write_bytes(raw)
    try:
        return cards.load(path)
    except InputError as error:
        message = str(error)
    assert message.isprintable()
    assert len(message) < 500
    return None


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "some.toml"


def test_the_card_that_is_damaged_here_is_read_when_it_is_not(file: Path) -> None:
    assert refused_or_read(file, WHOLE) is not None


@quick
@given(st.integers(0, len(WHOLE) - 1), st.binary(max_size=12), st.integers(0, 40))
def test_bytes_put_in_place_of_others(file: Path, at: int, new: bytes, cut: int) -> None:
    card = refused_or_read(file, WHOLE[:at] + new + WHOLE[at + cut :])
    if card is not None:
        for figure in card.figures().values():
            assert 0 < figure.low <= figure.high < float("inf")
            assert figure.source


@quick
@given(st.lists(st.integers(0, WHOLE.count(b"\n") - 1), min_size=1, max_size=4, unique=True))
def test_lines_that_are_missing(file: Path, missing: list[int]) -> None:
    lines = WHOLE.splitlines(keepends=True)
    kept = b"".join(line for i, line in enumerate(lines) if i not in missing)
    card = refused_or_read(file, kept)
    if card is not None:
        assert all(figure.source for figure in card.figures().values())


@quick
@given(st.binary(max_size=200))
def test_any_bytes(file: Path, raw: bytes) -> None:
    assert refused_or_read(file, raw) is None
