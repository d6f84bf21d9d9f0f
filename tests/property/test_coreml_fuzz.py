"""Whatever a CoreML package holds: it is read, or one clear line refuses it."""

import random
import tracemalloc
from pathlib import Path

import damage
import pytest
import tiny_program
from damage import one_clear_line
from example_counts import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgedec.coreml.package import MANIFEST, MODEL, WEIGHTS
from edgedec.errors import BundleError

fuzz = settings(
    max_examples=examples(80),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_program.write(tmp_path_factory.mktemp("sound") / "tiny.mlpackage")


def copy(sound: Path, folder: Path) -> Path:
    for name in (MODEL, WEIGHTS, MANIFEST):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((sound / name).read_bytes())
    return folder


def used(folder: Path) -> str:
    """Do with a package all that a runtime does; ``ok``, or the last stage before a refusal."""
    where = "read"
    try:
        for stage in tiny_program.use(folder):
            where = stage
    except BundleError as error:
        one_clear_line(error)
        return where
    return "ok"


def test_the_sound_package_is_used(sound: Path) -> None:
    assert used(sound) == "ok"


@pytest.mark.parametrize("name", [MODEL, WEIGHTS, MANIFEST])
@given(seed=st.integers(0, 2**32))
@fuzz
def test_damaged_files(sound: Path, tmp_path: Path, name: str, seed: int) -> None:
    folder = copy(sound, tmp_path / "tiny.mlpackage")
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(damage.data(random.Random(seed), whole))
    used(folder)


def test_every_stage_refuses_some(sound: Path, tmp_path: Path) -> None:
    # A fuzz that never gets past the first reader would show nothing of the others.
    folder = copy(sound, tmp_path / "tiny.mlpackage")
    whole, found = (folder / MODEL).read_bytes(), set()
    for seed in range(400):
        (folder / MODEL).write_bytes(damage.single_bytes(random.Random(seed), whole))
        found.add(used(folder))
    assert found == {"read", "opened", "compiled", "computed", "ok"}


@given(rest=st.binary(max_size=300))
@fuzz
def test_any_bytes(sound: Path, tmp_path: Path, rest: bytes) -> None:
    folder = copy(sound, tmp_path / "tiny.mlpackage")
    (folder / MODEL).write_bytes(rest)
    assert used(folder) == "read"


@given(at=st.integers(0, 400), size=st.sampled_from(damage.SIZES))
@fuzz
def test_no_memory_is_taken_for_a_claim(sound: Path, tmp_path: Path, at: int, size: int) -> None:
    folder = copy(sound, tmp_path / "tiny.mlpackage")
    data = bytearray((folder / WEIGHTS).read_bytes())
    data[at : at + 8] = size.to_bytes(8, "little")
    (folder / WEIGHTS).write_bytes(data)
    used(sound)  # what a first call imports is not a claim's
    tracemalloc.start()
    try:
        used(folder)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 8 << 20
