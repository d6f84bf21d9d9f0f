"""Messages as they are written and read."""

import pytest

from edgedec.bundle.protobuf import fields, message


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**31, 2**40])
def test_numbers_on_the_wire(value: int) -> None:
    inner = message((1, value))
    written = message((7, "x" * value if value < 1000 else inner), (value % 100 + 1, inner))
    found = [(number, bytes(data or b"")) for number, data in fields(memoryview(written))]
    assert found == [
        (7, b"x" * value if value < 1000 else inner),
        (value % 100 + 1, inner),
    ]
    assert len(inner) == 1 + max(1, -(-value.bit_length() // 7))
