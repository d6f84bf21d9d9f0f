"""Whatever numbers a stored profile is given: it is measured again, or can be planned with."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from example_counts import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import CPU, FIRST, SECOND, draft, profile, target

from edgedec._support.fields import from_json, to_json
from edgedec.errors import MemoryBudgetError, PlanError, ProfileError
from edgedec.planning.choose import decide
from edgedec.profiling import store
from edgedec.records import soundness
from edgedec.records.place import Place
from edgedec.records.profile import Profile
from edgedec.records.workload import Workload

VALID = profile(
    target(CPU), target(FIRST), draft(SECOND), draft(Place("gguf", device="Vulkan0")),
)  # fmt: skip
IDENTITY = store.Identity("here", VALID.machine, VALID.bundle, VALID.versions)
RAW = to_json(VALID)
NUMBERS = st.one_of(
    st.sampled_from([0, -1, 1, 2, 10**400, -(10**400), 5e-324, 1e308, 0.5, None, True, [], [[]]]),
    st.integers(-5, 100),
    st.floats(allow_nan=True, allow_infinity=True),
)


def numbers(raw: Any, path: tuple = ()) -> Iterator[tuple]:
    """Paths to every number and list."""
    if isinstance(raw, (dict, list)):
        if isinstance(raw, list) and path:
            yield path
        for key, item in raw.items() if isinstance(raw, dict) else enumerate(raw):
            yield from numbers(item, (*path, key))
    elif isinstance(raw, (int, float)):
        yield path


PATHS = list(numbers(RAW))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(store.FOLDER, str(tmp_path))


def planned(known: Profile) -> None:
    """No plan at all, or none that fits, is an answer, too."""
    for memory in (None, 20_000_000):
        with suppress(PlanError, MemoryBudgetError):
            decide(known, Workload(20, 60, 0.8), memory)


def with_other_numbers(changes: list[tuple[tuple, Any]]) -> dict:
    raw = copy.deepcopy(RAW)
    for path, value in changes:
        part = raw
        try:
            for key in path[:-1]:
                part = part[key]
            part[path[-1]] = value
        except (IndexError, KeyError, TypeError):
            continue  # what it was in is gone
    return raw


@settings(
    max_examples=examples(150),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.lists(
        st.tuples(st.sampled_from(PATHS), NUMBERS),
        min_size=1,
        max_size=3,
    )
)
def test_what_is_read_can_be_planned_with(changes) -> None:
    raw = with_other_numbers(changes)
    store.file_of(IDENTITY).parent.mkdir(exist_ok=True)
    store.file_of(IDENTITY).write_text(json.dumps(raw))
    found = store.read(IDENTITY)
    assert (found.profile is None) == bool(found.reason)
    assert "\n" not in found.reason
    if found.profile is not None:
        planned(found.profile)


def test_the_profile_itself_is_sound_and_numbers_of_the_right_type_may_not_be() -> None:
    soundness.check(VALID)
    planned(VALID)
    path = ("measured", 0, "times", 0, "seconds", 0)
    wrong = from_json(Profile, with_other_numbers([(path, 0.0)]), "profile", ProfileError)
    with pytest.raises(ProfileError, match="seconds"):
        soundness.check(wrong)
    # Unchecked it breaks planning, which the property above would tell.
    with pytest.raises(Exception, match="cost curve"):
        decide(wrong, Workload(20, 60))
