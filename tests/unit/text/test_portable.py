"""What ``edgedec.text.portable`` says of the Android reader is what the reader's source has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edgedec.text.portable import MAX_BYTES, SPLITS

READER = Path(__file__).parents[3] / "android_demo/core/src/main/kotlin/dev/edgedec/core"


def expressions(kotlin: str) -> set[str]:
    """The keys of ``KNOWN_SPLITS``: constants, or texts in which their names stand."""
    texts = dict(re.findall(r'^private const val (\w+) = "(.*)"$', kotlin, re.MULTILINE))
    table = kotlin.partition("val KNOWN_SPLITS")[2].partition("\n)\n")[0]
    keys = re.findall(r"^    (.+?) to ", table, re.MULTILINE)
    raw = [key[1:-1] if key.startswith('"') else texts[key] for key in keys]
    named = [re.sub(r"\$(\w+)", lambda name: texts[name[1]], text) for text in raw]
    return {text.replace("\\\\", "\\") for text in named}


@pytest.fixture
def splits() -> str:
    return (READER / "Split.kt").read_text("utf-8")


def test_the_expressions_are_the_readers(splits: str) -> None:
    assert expressions(splits) == SPLITS


@pytest.mark.parametrize("change", [("{1,3}", "{1,4}"), ('private const val WORD = "', "\\g<0>x")])
def test_another_expression_is_noticed(splits: str, change: tuple[str, str]) -> None:
    pattern, by = change
    changed = re.sub(re.escape(pattern), by, splits)
    assert changed != splits
    assert expressions(changed) != SPLITS


def test_the_size_is_the_readers() -> None:
    source = (READER / "TokenizerFile.kt").read_text("utf-8")
    found = re.search(r"MAX_BYTES = (\d+)L shl (\d+)", source)
    assert found is not None
    assert int(found[1]) << int(found[2]) == MAX_BYTES
