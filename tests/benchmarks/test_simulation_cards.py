"""Device cards: those that come with the package, and what is refused of others."""

import os
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.simulation import cards
from benchmarks.simulation.figures import Figure
from edgedec.errors import InputError

FIGURE = 'kind = "datasheet"\nsource = "a sheet"\nurl = "https://example.org"\n'
CARD = f"""
name = "toy"
description = "a toy"

[devices.cpu]
kind = "cpu"
description = "a toy's"
memory = "own"

[devices.cpu.memory_bytes]
value = 8e9
{FIGURE}
[devices.cpu.bandwidth]
value = 10e9
{FIGURE}
[devices.cpu.bandwidth_share]
range = [0.5, 0.8]
{FIGURE}
[devices.cpu.flops.fp32]
range = [50e9, 100e9]
{FIGURE}
[devices.cpu.flops_share]
value = 0.5
{FIGURE}
[devices.cpu.launch_s]
value = 1e-4
{FIGURE}"""
DEVICES = {
    "dovetail-laptop": {"cpu", "gpu"},
    "dovetail-server": {"cpu", "gpu"},
    "raspberry-pi-4": {"cpu"},
    "raspberry-pi-5": {"cpu"},
    "jetson-orin-nx": {"cpu", "gpu"},
    "snapdragon-8-gen-3": {"cpu", "npu"},
    "apple-m1-max": {"gpu", "npu"},
    "apple-m2-ultra": {"gpu", "npu"},
    "intel-core-ultra-258v": {"cpu", "gpu", "npu"},
}


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "toy.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def changed(old: str, new: str) -> str:
    assert CARD.count(old) >= 1
    return CARD.replace(old, new, 1)


def test_the_cards_that_were_promised_are_there() -> None:
    for name, devices in DEVICES.items():
        assert set(cards.load(name).devices) == devices
    assert set(DEVICES) <= set(cards.names())


@pytest.mark.parametrize("name", cards.names())
def test_a_card_is_called_as_its_file_and_can_be_used(name: str) -> None:
    card = cards.load(name)
    assert card.name == name
    names = list(card.devices)
    for one, other in pairwise(names):
        assert card.link(one, other).latency_s.low > 0
    for device in card.devices.values():
        # An order of magnitude that a slip of a unit would break.
        assert 1e9 < device.bandwidth.low <= device.bandwidth.high < 5e12
        assert all(1e10 < peak.low <= peak.high < 1e15 for peak in device.flops.values())
        assert 1e-6 < device.launch_s.low <= device.launch_s.high < 0.1
        assert 1e9 < device.memory_bytes.low <= device.memory_bytes.high < 1e12


@pytest.mark.parametrize("name", cards.names())
def test_every_figure_says_where_it_is_from(name: str) -> None:
    for where, figure in cards.load(name).figures().items():
        assert figure.source, where
        assert figure.kind in ("datasheet", "measured", "derived", "estimate"), where
        if figure.kind in ("datasheet", "measured"):
            assert figure.url.startswith("https://"), where
        else:
            assert figure.note, where
        if figure.kind == "estimate":
            assert figure.low < figure.high, where


def test_a_file_is_read_with_its_ranges(tmp_path: Path) -> None:
    card = cards.load(write(tmp_path, CARD))
    device = card.device("cpu")
    assert device.bandwidth_share == Figure(
        0.5, 0.8, "datasheet", "a sheet", "https://example.org", ""
    )
    assert device.bandwidth_share.ends == (0.5, 0.8)
    assert device.bandwidth.ends == (10e9,)
    assert len(card.figures()) == 6


def test_a_corner_changes_what_it_names_and_nothing_else() -> None:
    card = cards.load("jetson-orin-nx")
    values = {
        "devices.gpu.bandwidth_share": 0.7,
        "devices.gpu.flops.fp16": 14e12,
        "links.cpu-gpu.latency_s": 1e-5,
        "storage": 2e9,
    }
    corner = card.fixed(values)
    before, after = card.figures(), corner.figures()
    assert {where: after[where].ends for where in values} == {
        where: (value,) for where, value in values.items()
    }
    assert {where for where in before if before[where] != after[where]} == set(values)
    with pytest.raises(InputError, match=r"no figure 'devices\.gpu\.speed'"):
        card.fixed({"devices.gpu.speed": 1.0})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name = ", "is not a device card"),
        ("a = " + "[" * 60_000, "is not a device card"),
        (b"name = '\xff'", "is not a device card"),
        (CARD + "\nspeed = 3", "unknown field speed"),
        (changed("memory =", "mass ="), "unknown field mass"),
        (changed("8e9", "-8e9"), "expected 1000 to 1e+18"),
        (changed("8e9", "0"), "expected 1000 to 1e+18"),
        (changed("8e9", "nan"), "expected 1000 to 1e+18"),
        (changed("8e9", "inf"), "expected 1000 to 1e+18"),
        (changed("8e9", "true"), "expected a number"),
        (changed("8e9", "1" + "0" * 400), "expected a smaller number"),
        (changed("8e9", '"8 GB"'), "expected a number"),
        (changed("[0.5, 0.8]", "[0.8, 0.5]"), "the smaller number first"),
        (changed("[0.5, 0.8]", "[0.5]"), "two numbers"),
        (changed("[0.5, 0.8]", "[0.5, 1.2]"), "0.001 to 1"),
        (changed("10e9", "1e-300"), "expected 1000 to 1e+18"),
        (changed("50e9, 100e9", "1e-300, 100e9"), "expected 1000 to 1e+18"),
        (changed("[0.5, 0.8]", "[1e-300, 0.8]"), "0.001 to 1"),
        (changed("1e-4", "1e300"), "1e-12 to 60"),
        (changed("[0.5, 0.8]", "[0.5, 0.8]\nvalue = 0.6"), "one of them only"),
        (changed("value = 8e9", ""), "expected a value or a range"),
        (changed('source = "a sheet"\n', ""), "source is missing"),
        (changed('source = "a sheet"', 'source = " "'), "expected a text"),
        (changed('url = "https://example.org"\n', ""), "url is missing"),
        (changed("https://example.org", "file:///etc"), "https://"),
        (changed('"datasheet"', '"rumour"'), "one of datasheet, measured"),
        (changed('"datasheet"', '"derived"'), "note is missing"),
        (changed('"datasheet"', '"estimate"\nnote = "so"'), "nobody estimates exactly"),
        (changed('kind = "cpu"', 'kind = "tpu"'), "one of cpu, gpu, npu"),
        (changed('memory = "own"', 'memory = "none"'), "one of own, shared"),
        (changed("fp32", "fp64"), "unknown field fp64"),
        (changed("[devices.cpu.flops.fp32]", "[devices.cpu.flops]\n[unused]"), "unknown field"),
        (CARD.split("[devices.cpu]")[0], "devices is missing"),
        (changed("a toy's", "a\\u001btoy"), "a text of one line"),
        (changed("a toy's", "a" * 700), "at most 600 characters"),
        (CARD + '\n[links.x]\nbetween = ["cpu", "gpu"]', "two of cpu"),
        (CARD + '\n[links.x]\nbetween = ["cpu", "cpu"]', "two of cpu"),
    ],
)
def test_damaged_cards_are_refused_in_one_line(
    tmp_path: Path, text: str | bytes, says: str
) -> None:
    with pytest.raises(InputError) as caught:
        cards.load(write(tmp_path, text))
    message = str(caught.value)
    assert says in message
    assert message.isprintable()
    assert len(message) < 400


def test_a_file_that_cannot_be_a_card_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "big.toml"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # sparse: reading all of it would not end well
    with pytest.raises(InputError, match="larger than a device card"):
        cards.load(path)


def test_a_missing_card_names_those_that_are_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="raspberry-pi-5"):
        cards.load("raspberry-pi-6")
    os.mkfifo(tmp_path / "pipe.toml")
    for name in ("none.toml", "nul\0.toml", "pipe.toml", ".", "\x1b[31mred.toml"):
        with pytest.raises(InputError, match=r"cannot read|no device card") as caught:
            cards.load(f"{tmp_path}/{name}")
        assert str(caught.value).isprintable()
    with pytest.raises(InputError, match="no device 'gpu': it has cpu"):
        cards.load("raspberry-pi-5").device("gpu")
    with pytest.raises(InputError, match="no link"):
        cards.load("raspberry-pi-5").link("cpu", "gpu")
