"""Sizes as options give them: numbers of bytes, texts with a unit, and mistakes."""

from __future__ import annotations

import pytest

import edgedec
from edgedec._support.amounts import given_bytes
from edgedec.errors import InputError


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (2_000_000_000, 2_000_000_000), ("2GB", 2_000_000_000), ("8GiB", 8 << 30),
        ("512 mb", 512_000_000), ("300000", 300_000), ("8B", 8), (1_000, 1_000), (0, 0),
    ],
)  # fmt: skip
def test_sizes(value: object, count: int) -> None:
    assert given_bytes("memory", value) == count


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (8, "memory is 8, in bytes: did you mean '8GB'?"),
        ("8", "memory is '8', in bytes: did you mean '8GB'?"),
        (512, "did you mean '512MB'?"),
        (999, "did you mean '999MB'?"),
        (8.5, "memory is 8.5: expected a size such as 2GB, or a number of bytes"),
        (True, "memory is True: expected a size"),
        (b"8GB", "expected a size"),
        ("lots", "memory is 'lots': expected a size"),
        ("-1GB", "expected a size"),
    ],
)
def test_what_is_no_size_says_what_is_expected(value: object, said: str) -> None:
    with pytest.raises(InputError) as caught:
        given_bytes("memory", value)
    assert said in str(caught.value)


@pytest.mark.parametrize("name", ["memory", "kv_memory"])
def test_every_size_in_python_is_read_so(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} is 8, in bytes: did you mean '8GB'"):
        edgedec.Pipeline.open("demo", **{name: 8})  # type: ignore[arg-type]
