"""A damaged tokenizer.json is a BundleError of one line, or a tokenizer; never anything else."""

import json
from pathlib import Path
from typing import Any

import pytest
import tiny_tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgedec.errors import BundleError
from edgedec.text import Tokenizer

SOURCES = [kind().to_str() for kind in (tiny_tokenizers.byte_level, tiny_tokenizers.llama)]
JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 10**12), st.floats(), st.text(max_size=4),
    st.just([]), st.just({}), st.just({"type": "Sequence"}), st.just({"type": "Fuse"}),
)  # fmt: skip
fuzz = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def load(folder: Path, data: bytes) -> None:
    (folder / "tokenizer.json").write_bytes(data)
    try:
        tokenizer = Tokenizer.load(folder)
    except BundleError as error:
        assert "\n" not in str(error)  # noqa: PT017
        return
    ids = tokenizer.encode("def add(é): 😀")
    stream = tokenizer.stream()
    text = "".join(map(stream.push, ids)) + stream.flush()
    assert text == tokenizer.decode(ids)


@pytest.mark.parametrize("source", SOURCES, ids=["byte-level", "llama"])
@given(place=st.floats(0, 1, exclude_max=True), junk=st.binary(min_size=1, max_size=6))
@fuzz
def test_any_bytes_overwritten(tmp_path: Path, source: str, place: float, junk: bytes) -> None:
    data = bytearray(source.encode("utf-8"))
    start = int(place * len(data))
    data[start : start + len(junk)] = junk
    load(tmp_path, bytes(data))


def nodes(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to the settings of a tokenizer.json; of long lists a few members."""
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())[:12]
    elif isinstance(value, list):
        items = list(enumerate(value))[:4]
    return [path, *(found for key, inner in items for found in nodes(inner, (*path, key)))]


@pytest.mark.parametrize("source", SOURCES, ids=["byte-level", "llama"])
@given(data=st.data())
@fuzz
def test_any_setting_replaced(tmp_path: Path, source: str, data: st.DataObject) -> None:
    parsed = json.loads(source)
    *above, last = data.draw(st.sampled_from(nodes(parsed)[1:]))
    place = parsed
    for key in above:
        place = place[key]
    place[last] = data.draw(JUNK)
    load(tmp_path, json.dumps(parsed).encode("utf-8"))


@pytest.mark.parametrize("source", SOURCES, ids=["byte-level", "llama"])
def test_any_file_cut_short(tmp_path: Path, source: str) -> None:
    data = source.encode("utf-8")
    for share in range(20):
        (tmp_path / "tokenizer.json").write_bytes(data[: len(data) * share // 20])
        with pytest.raises(BundleError):
            Tokenizer.load(tmp_path)
