"""Pass times by a roofline, and plans for machines of cards."""

from dataclasses import replace

import pytest
from simulated import rounds

from benchmarks.simulation import cards
from benchmarks.simulation.cards import Card, DeviceCard, Link
from benchmarks.simulation.elsewhere import (
    Drafting,
    Sizes,
    corner,
    memory_of,
    profile_of,
    span,
)
from benchmarks.simulation.figures import Figure
from benchmarks.simulation.roofline import ModelSize, Roofline, contention, parse
from edgedec.errors import InputError
from edgedec.planning.choose import decide
from edgedec.planning.estimate import Forecast
from edgedec.records.plan import Plan
from edgedec.records.workload import Workload

TARGET, DRAFT = parse("7B int4"), parse("0.5B int4")
SAID = Drafting(rounds(), 2e-5)
WORK = Workload(100, 24, max_context=1024)


def figure(low: float, high: float | None = None) -> Figure:
    return Figure(low, low if high is None else high, "estimate", "a test")


def device(name: str = "cpu", *, shared: bool = True, **changes: Figure) -> DeviceCard:
    """50 GB/s of which all is reached, 1 Tflop/s likewise, no launch."""
    made = DeviceCard(
        name=name,
        kind="cpu",
        description=name,
        shared=shared,
        memory_bytes=figure(16e9),
        bandwidth=figure(50e9),
        bandwidth_share=figure(1.0),
        flops={"int8": figure(1e12)},
        flops_share=figure(1.0),
        launch_s=figure(1e-9),
    )
    return replace(made, **changes)


def card(*devices: DeviceCard, **changes: object) -> Card:
    """Its devices are linked with 1 GB/s and 10 us."""
    found = devices or (device(),)
    links = tuple(
        Link((one.name, other.name), figure(1e9), figure(1e-5))
        for index, one in enumerate(found)
        for other in found[index + 1 :]
    )
    made = Card("test", "A machine of a test", {one.name: one for one in found}, links)
    return replace(made, **changes)  # type: ignore[arg-type]


def size(**changes: object) -> ModelSize:
    """1e9 parameters in 1 GB, a cache of 1 kB a token."""
    made = ModelSize("m", 10**9, 10**9, 1000, 1, 1, "int8", max_context=4096)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_a_narrow_pass_takes_the_time_of_its_bytes_and_a_wide_one_of_its_products():
    line = Roofline(card(), "cpu", size())
    assert line.seconds(1, 0) == pytest.approx(1e9 / 50e9)
    assert line.seconds(9, 0) == line.seconds(1, 0)
    assert line.seconds(20, 0) == pytest.approx(20 * 2e9 / 1e12)
    # A cache of a million tokens is another gigabyte to read.
    assert line.seconds(1, 10**6) == pytest.approx(2e9 / 50e9)


def test_a_share_of_the_peak_is_what_is_reached():
    half = device(bandwidth_share=figure(0.5), flops_share=figure(0.25))
    line = Roofline(card(half), "cpu", size())
    assert line.seconds(1, 0) == pytest.approx(2e9 / 50e9)
    assert line.seconds(20, 0) == pytest.approx(4 * 20 * 2e9 / 1e12)


def test_weights_that_have_to_be_unpacked_cost_as_much_whatever_the_rows():
    slow = device(unpacked={"int8": figure(4e9)})
    line = Roofline(card(slow), "cpu", size())
    assert line.seconds(1, 0) == pytest.approx(0.25 + 2e9 / 1e12)
    assert line.seconds(9, 0) - line.seconds(1, 0) == pytest.approx(8 * 2e9 / 1e12)
    assert Roofline(card(slow), "cpu", size(weights="int4")).seconds(1, 0) == 1e9 / 50e9 + 1e-9


def test_half_the_bandwidth_is_twice_the_time():
    whole, half = (Roofline(card(device(bandwidth=figure(b))), "cpu", size()) for b in (50e9, 25e9))
    assert half.seconds(1, 100) == pytest.approx(2 * whole.seconds(1, 100))


def test_another_device_costs_a_launch_and_the_way_there_and_back():
    gpu = device("gpu", launch_s=figure(0.002))
    there = Roofline(card(device(), gpu), "gpu", size())
    own = Roofline(card(device(), gpu), "cpu", size())
    assert there.seconds(1, 0) - own.seconds(1, 0) == pytest.approx(0.002 + 2e-5, rel=1e-2)
    with pytest.raises(InputError, match="no link between gpu and cpu"):
        Roofline(card(device(), gpu, links=()), "gpu", size())


def test_weights_that_do_not_fit_come_from_storage_in_every_pass():
    small = device(memory_bytes=figure(0.25e9))
    streamed = Roofline(card(small, storage=figure(1e9)), "cpu", size())
    assert streamed.loading_s == pytest.approx(0.75)
    assert streamed.seconds(1, 0) == pytest.approx(0.75 + 1e9 / 50e9)
    assert streamed.measured("target").rss_bytes == 0.25e9
    nowhere = Roofline(card(small), "cpu", size()).measured("target")
    assert not nowhere.parity.usable
    assert "1.0 GB, the cpu has 0.2 GB" in nowhere.parity.reason


def test_a_device_computes_in_the_next_wider_precision_it_has():
    wide = device(flops={"fp32": figure(1e11)})
    assert Roofline(card(wide), "cpu", size()).seconds(50, 0) == pytest.approx(50 * 2e9 / 1e11)
    with pytest.raises(InputError, match="nothing wide enough for fp32"):
        Roofline(card(), "cpu", size(weights="fp32"))


def test_measured_is_the_roofline_at_every_width_and_context():
    line = Roofline(card(), "cpu", size())
    found = line.measured("draft")
    for rows in (1, 2, 7, 16, 17, 32):
        for context in (32, 100, 2048, 3000):
            assert found.seconds(rows, context) == pytest.approx(
                line.seconds(rows, context), rel=0.02
            )
    assert found.prefill_s == pytest.approx(2e9 / 1e12, rel=1e-3)


def test_devices_that_share_a_memory_share_its_bandwidth():
    one, other = device(), device("npu", bandwidth_share=figure(0.5))
    assert contention(card(one, other), "cpu", "npu").target_factor == pytest.approx(1.5)
    gpu = replace(other, shared=False)
    assert contention(card(one, gpu), "cpu", "npu").target_factor == 1
    slow = [device(name, bandwidth_share=figure(0.4)) for name in ("cpu", "npu")]
    assert contention(card(*slow), "cpu", "npu").draft_factor == 1


def test_sizes_are_read_as_people_write_them():
    llama = parse("7B int4")
    assert llama.weight_bytes == pytest.approx(7e9 * 4.5 / 8)
    assert (llama.layers, llama.weights, llama.precision) == (33, "int4", "int8")
    assert llama.hidden == pytest.approx(4096, rel=0.05)
    assert parse("125m FP16").weight_bytes == 250_000_000
    for wrong in ("7B", "int4", "7X int4", "7B int3", "", "1e9 int4"):
        with pytest.raises(InputError, match="as in '7B int4'"):
            parse(wrong)
    with pytest.raises(InputError, match="1M to 10000B"):
        parse("0B int4")


@pytest.mark.parametrize("name", cards.names())
def test_every_card_that_ships_can_be_planned_for(name):
    machine = cards.load(name)
    profile = profile_of(machine, Sizes(TARGET, DRAFT), SAID)
    decision = decide(profile, WORK, memory_of(machine))
    chosen = decision.chosen
    plain = next(c for c in decision.candidates if c.plan.plain and not c.refused)
    assert chosen.prediction.tokens_per_second >= plain.prediction.tokens_per_second
    assert decision.machine == {"card": name}


def test_the_ranges_of_a_card_span_what_its_middle_gives():
    machine = cards.load("jetson-orin-nx")
    models = Sizes(TARGET, DRAFT, ("gpu",), ("cpu",))
    profile = profile_of(machine, models, SAID)
    target, draft = (profile.of(role)[0].place for role in ("target", "draft"))
    plan = Plan(target, draft, "model", 3)
    slow, fast = span(machine, models, SAID, plan, WORK)
    middle = Forecast(profile, WORK).predict(plan)
    assert slow.tokens_per_second < middle.tokens_per_second < fast.tokens_per_second
    assert slow.ttft_s > fast.ttft_s
    fixed = corner(corner(machine, fast=True), fast=False)
    assert fixed == corner(machine, fast=True), "a corner has no ranges"


def test_only_the_devices_that_were_named():
    machine = cards.load("snapdragon-8-gen-3")
    profile = profile_of(machine, Sizes(TARGET, DRAFT, ("cpu",), ("npu",)), SAID)
    assert [(m.role, m.place.device) for m in profile.measured] == [
        ("target", "cpu"),
        ("draft", "npu"),
    ]
    with pytest.raises(InputError, match="has no device 'gpu'"):
        profile_of(machine, Sizes(TARGET, DRAFT, ("gpu",)), SAID)
    alone = profile_of(machine, Sizes(TARGET), SAID)
    assert {m.role for m in alone.measured} == {"target"}


def test_memories_that_are_shared_count_once():
    gpu = device("gpu", shared=False, memory_bytes=figure(4e9))
    assert memory_of(card(device(), device("npu"), gpu)) == 20e9


@pytest.mark.parametrize("rate", [1e3, 1e18])
@pytest.mark.parametrize(("share", "launch"), [(1e-3, 60.0), (1.0, 1e-12)])
def test_any_figure_that_a_card_may_have_gives_numbers(rate, share, launch):
    odd = device(
        bandwidth=figure(rate),
        bandwidth_share=figure(share),
        flops={"int8": figure(rate)},
        flops_share=figure(share),
        launch_s=figure(launch),
    )
    models = Sizes(TARGET, DRAFT)
    decision = decide(profile_of(card(odd), models, SAID), WORK)
    for one in decision.candidates:
        if not one.refused:
            assert 0 < one.prediction.tokens_per_second < float("inf")
            assert 0 < one.prediction.ttft_s < float("inf")
