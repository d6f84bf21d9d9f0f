"""A damaged tokenizer.json is a BundleError of one line, or a tokenizer; never anything else."""

import json
import random
from pathlib import Path

import damage
import pytest
import tiny_tokenizers
from example_counts import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgedec.errors import BundleError
from edgedec.text.tokenizer import Tokenizer

SOURCES = [kind().to_str() for kind in (tiny_tokenizers.byte_level, tiny_tokenizers.llama)]
LONG = ("vocab", "merges")
fuzz = settings(
    max_examples=examples(150),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
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


@pytest.mark.parametrize("source", SOURCES, ids=["byte-level", "llama"])
@given(rng=st.randoms(use_true_random=False))
@fuzz
def test_any_setting_replaced(tmp_path: Path, source: str, rng: random.Random) -> None:
    """Damage is drawn for the settings; of long lists a few members stand for all."""
    parsed = json.loads(source)
    model = parsed.pop("model")
    found = damage.document(
        rng, {**parsed, "model": {k: v for k, v in model.items() if k not in LONG}}
    )
    if isinstance(found.get("model"), dict):
        found["model"] = {**{key: model[key] for key in LONG}, **found["model"]}
    load(tmp_path, damage.json_bytes(found))


@pytest.mark.parametrize("source", SOURCES, ids=["byte-level", "llama"])
def test_any_file_cut_short(tmp_path: Path, source: str) -> None:
    data = source.encode("utf-8")
    for share in range(20):
        (tmp_path / "tokenizer.json").write_bytes(data[: len(data) * share // 20])
        with pytest.raises(BundleError):
            Tokenizer.load(tmp_path)
