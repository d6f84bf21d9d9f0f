"""Whatever a GGUF file says, as a source it is read, or one clear line refuses it."""

import random
import tracemalloc
import warnings
from pathlib import Path

import damage
import pytest
from damage import one_clear_line
from example_counts import examples
from gguf_files import gguf_bytes
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tiny_llama import GOOD, TENSORS

from edgedec.errors import EdgedecError
from edgedec.export.source import open_source
from edgedec.export.tensors import read

MODEL = gguf_bytes(GOOD, TENSORS)
HEADER = MODEL.index(b"tokenizer.ggml.tokens")
VALUES = st.one_of(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0, 1, 2, 3, 7, 8, 64, 10_000, 2**31 - 1]),
    st.floats(width=32),
    st.sampled_from([0.0, -1.0, 1e-30, 1e30]),
    st.booleans(),
    st.sampled_from(["yarn", "linear", "longrope", "none", ""]),
)
KEYS = st.sampled_from(
    [
        *(key for key in GOOD if key.startswith("llama.")),
        "llama.attention.key_length",
        "llama.attention.value_length",
        "llama.rope.scaling.type",
        "llama.rope.scaling.factor",
        "llama.rope.scaling.original_context_length",
        "llama.rope.scaling.attn_factor",
        "llama.rope.scaling.yarn_beta_fast",
        "llama.expert_count",
        "llama.attention.sliding_window",
        "general.sampling.temp",
        "tokenizer.ggml.scores",
        "tokenizer.ggml.token_type",
    ]
)
fuzz = settings(
    max_examples=examples(200),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
MOST_BYTES = 64 << 20


def uses(file: Path) -> bool:
    """Read a file as a source, and say whether it could be."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            source = open_source(file)
            source.spec.rope_tables(0, 8)
            for name in source.spec.tensors():
                read(source.tensors, name)
        except EdgedecError as error:
            one_clear_line(error)
            return False
    return True


def test_the_sound_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(MODEL)
    assert uses(tmp_path / "a.gguf")


@fuzz
@example("llama.attention.head_count", 33)
@example("llama.block_count", 2**31 - 1)
@given(KEYS, VALUES)
def test_any_value_of_a_key(tmp_path: Path, key: str, value: object) -> None:
    (tmp_path / "a.gguf").write_bytes(gguf_bytes({**GOOD, key: value}, TENSORS))
    tracemalloc.start()
    try:
        uses(tmp_path / "a.gguf")
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()


@fuzz
@given(st.randoms(use_true_random=False))
def test_any_damage(tmp_path: Path, chance: random.Random) -> None:
    (tmp_path / "a.gguf").write_bytes(damage.data(chance, MODEL, HEADER))
    uses(tmp_path / "a.gguf")


def test_a_fault_of_ours_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control."""
    (tmp_path / "a.gguf").write_bytes(MODEL)
    monkeypatch.setattr("edgedec.export.gguf.source.decoder_of", lambda file: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        uses(tmp_path / "a.gguf")
