"""A target that does not fit in memory is planned with a part of its weights there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import profiles
import pytest
from profiles import WORK

from edgedec.loading.sources import Source
from edgedec.planning import streaming
from edgedec.planning.choose import decide
from edgedec.planning.memory_fit import MemoryFit, footprint
from edgedec.profiling.places import PlaceFilter, sites
from edgedec.records.place import CPU, Place
from edgedec.records.plan import Plan, Trial
from edgedec.records.profile import Measured, Profile

pytestmark = pytest.mark.skipif("not sys.platform.startswith('linux')", reason="needs Linux")

MB = 1_000_000
LARGE = profiles.profile(
    profiles.target(rss_bytes=400 * MB, weight_bytes=380 * MB), profiles.draft(rss_bytes=8 * MB)
)


class Measuring:
    """Passes that take a tenth of a second, in as much memory as the place allows."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.contexts: list[int] = []

    def __call__(self, place: Place, context: int) -> Measured:
        self.places.append(place)
        self.contexts.append(context)
        return profiles.target(
            place, 0.1, rss_bytes=(place.weight_memory or 0) + 20 * MB, weight_bytes=380 * MB
        )


def test_weights_that_fit_stay_in_memory() -> None:
    measure = Measuring()
    for memory in (None, 500 * MB):
        assert streaming.with_streamed(LARGE, memory, WORK, measure) == (LARGE, False)
    assert not measure.places


def test_weights_that_do_not_fit_get_the_memory_that_is_left() -> None:
    measure = Measuring()
    found, new = streaming.with_streamed(LARGE, 250 * MB, WORK, measure)
    assert new
    (place,) = measure.places
    assert measure.contexts == [MemoryFit(LARGE, WORK, None).needed]  # longer texts take more
    held = place.weight_memory
    assert held is not None
    assert 100 * MB < held < 250 * MB
    decision = decide(found, WORK, 250 * MB)
    assert decision.chosen.plan.target == place
    assert decision.chosen.prediction.peak_bytes <= 250 * MB
    assert not decision.chosen.plan.plain
    assert "streamed in" in decision.chosen.plan.label
    assert all(one.plan.target == place for one in decision.candidates if not one.refused)
    words = streaming.note(decision, 380 * MB)
    assert words.startswith("the target's weights (380.0 MB) do not fit")
    assert words.endswith(" tokens/s")
    chosen = decision.chosen
    told = replace(chosen, measured=Trial(8.0, 2.0, (2.0, 1.0, 2.875), 2.0, 3))
    words = streaming.note(replace(decision, chosen=told), 380 * MB)
    assert words.endswith(" tokens/s (4.0 to 11.5, depending on the text)")


def test_drafts_are_longer_where_passes_wait_for_the_disk() -> None:
    """A pass over a dozen rows that costs what one costs is worth a dozen drafted tokens."""

    def flat(place: Place, context: int) -> Measured:
        one = profiles.target(place, 0.1, row_s=0.0005, rss_bytes=150 * MB)
        return replace(one, weight_bytes=380 * MB)

    found, _ = streaming.with_streamed(LARGE, 250 * MB, WORK, flat)
    usual = decide(LARGE, WORK)
    streamed = decide(found, WORK, 250 * MB)
    assert _efficiency(streamed) > _efficiency(usual)


def _efficiency(decision: object) -> float:
    return decision.chosen.prediction.block_efficiency  # type: ignore[attr-defined, no-any-return]


def test_a_measurement_is_used_again_and_another_memory_replaces_it() -> None:
    measure = Measuring()
    found, _ = streaming.with_streamed(LARGE, 250 * MB, WORK, measure)
    again, new = streaming.with_streamed(found, 251 * MB, WORK, measure)
    assert (len(measure.places), new) == (1, False)
    assert again == found
    other, new = streaming.with_streamed(found, 300 * MB, WORK, measure)
    assert (len(measure.places), new) == (2, True)
    assert len(other.measured) == len(found.measured)
    assert streaming.with_streamed(other, None, WORK, measure) == (LARGE, False)


def test_too_little_memory_is_left_to_the_planner_to_refuse() -> None:
    measure = Measuring()
    taken = footprint(LARGE, Plan(profiles.CPU), WORK.tokens)
    beside = taken.total - taken.target
    assert streaming.with_streamed(LARGE, beside + MB, WORK, measure) == (LARGE, False)
    assert not measure.places


@pytest.mark.parametrize(
    "place", [Place("gguf", threads=2), Place("onnx", device="gpu"), Place("onnx", cores=(0,))]
)
def test_other_places_do_not_stream(place: Place) -> None:
    one = profiles.target(place, rss_bytes=400 * MB, weight_bytes=380 * MB)
    alone: Profile = profiles.profile(one)
    assert streaming.with_streamed(alone, 250 * MB, WORK, Measuring()) == (alone, False)


def test_a_place_says_what_it_holds() -> None:
    place = Place("onnx", threads=2, weight_memory=148 * MB)
    assert place.label == "onnx cpu x2 streamed in 148 MB"
    assert Place.of("onnx", place.load_options()) == place
    assert place.device == CPU
    assert "weight_memory" not in Place("onnx").load_options().own


class TestWhatIsMeasuredFirst:
    """A target larger than the memory given is never loaded whole, not even to be measured."""

    @pytest.fixture
    def files(self, tmp_path: Path) -> dict[str, list[Source]]:
        """A target of 270 MB, in a file that takes no room on the disk, and a draft of 2 MB."""

        def unread() -> NoReturn:
            raise AssertionError("only sizes are looked at")

        def source(role: str, size: int) -> Source:
            path = tmp_path / f"{role}.onnx"
            with path.open("wb") as file:
                file.truncate(size)
            return Source(role, "onnx", path, {"model": path}, unread, unread)

        return {"target": [source("target", 270 * MB)], "draft": [source("draft", 2 * MB)]}

    def test_what_fits_is_loaded_whole(self, files: dict[str, list[Source]]) -> None:
        assert streaming.to_begin_with(files, None) is None
        assert streaming.to_begin_with(files, 384 * MB) is None

    @pytest.mark.parametrize("memory", [320, 330, 383])
    def test_what_fits_without_a_cache_and_passes_is_not(
        self, files: dict[str, list[Source]], memory: int
    ) -> None:
        assert streaming.to_begin_with(files, memory * MB) is not None

    def test_what_does_not_is_measured_in_less_than_the_memory(
        self, files: dict[str, list[Source]]
    ) -> None:
        held = streaming.to_begin_with(files, 250 * MB)
        assert held == 64 * MB
        found, _ = sites(files, PlaceFilter(weight_memory=held))
        of_target = [placed.place for placed in found if placed.source.role == "target"]
        assert of_target
        assert all(place.weight_memory == held for place in of_target)
        whole, _ = sites(files, PlaceFilter())
        drafts = [placed for placed in whole if placed.source.role == "draft"]
        assert [placed for placed in found if placed.source.role == "draft"] == drafts
        assert all(placed.place.weight_memory is None for placed in whole)
        assert streaming.to_begin_with(files, 60 * MB) == 4 * MB  # the planner says what is needed

    def test_a_target_that_cannot_be_streamed_is_left_to_the_check_of_sizes(
        self, files: dict[str, list[Source]]
    ) -> None:
        gguf = {role: [replace(one, format="gguf") for one in of] for role, of in files.items()}
        assert streaming.to_begin_with(gguf, 250 * MB) is None
