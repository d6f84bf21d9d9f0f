"""Words are not broken at a terminal's right edge, and the text is what the model wrote."""

from __future__ import annotations

import re
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedec.cli._wrapping import Wrapping

# Prints an answer, and its thinking, as ``run`` and ``chat`` do.
PROGRAM = """
from types import SimpleNamespace as Made
from edgedec.cli import _output
text = {text!r}
events = [Made(text="", thinking="Some words of thinking that are long", source="target")]
events += [Made(text=text[at : at + 3], thinking=None, source="target")
           for at in range(0, len(text), 3)]
class Stream(list):
    result = Made(text=text)
result, _ = _output.show(Stream(events), wraps={wraps}, exact=True)
assert result.text == text
"""


def shown(text: str, columns: int, parts: int = 0) -> str:
    """What is written to a terminal of so many columns; the text comes in parts of a length."""
    written: list[str] = []
    wrapping = Wrapping(written.append, lambda: columns)
    step = parts or len(text) or 1
    for at in range(0, len(text), step):
        wrapping.add(text[at : at + step])
    wrapping.end()
    return "".join(written)


def width(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in line)


PROSE = "The quick brown fox jumps over the lazy dog and runs away from here.\n\nIt does, truly.\n"


@pytest.mark.parametrize("parts", [0, 1, 3, 7])
def test_lines_end_between_words(parts: int) -> None:
    assert shown(PROSE, 20, parts) == (
        "The quick brown fox\njumps over the lazy\ndog and runs away\nfrom here.\n\n"
        "It does, truly.\n"
    )
    assert shown(PROSE, 200, parts) == PROSE  # the control


def test_a_line_may_be_full() -> None:
    assert shown("abcd efgh ijkl", 9) == "abcd efgh\nijkl"
    assert shown("abcd efgh ijkl", 8) == "abcd\nefgh\nijkl"


def test_a_word_longer_than_a_line_is_the_terminals() -> None:
    assert shown("see https://example.org/a/long/path now", 12) == (
        "see https://example.org/a/long/path\nnow"
    )
    # It is written as it comes, once it is known not to fit.
    written: list[str] = []
    wrapping = Wrapping(written.append, lambda: 4)
    wrapping.add("abcdefgh")
    assert "".join(written) == "abcdefgh"


def test_a_word_is_written_when_it_is_whole() -> None:
    written: list[str] = []
    wrapping = Wrapping(written.append, lambda: 10)
    for part, so_far in ((" He", ""), ("llo", ""), (" ", " Hello"), ("wor", " Hello"),
                         ("ld", " Hello"), ("!\n", " Hello\nworld!\n")):  # fmt: skip
        wrapping.add(part)
        assert "".join(written) == so_far


@pytest.mark.parametrize(
    "kept",
    [
        "```python\nthe_result = a_function(of_one, of_another)  # as it is\n```\n",
        "~~~\nthe_result = a_function(of_one, of_another)\n\n  more of it than fits a line\n~~~\n",
        "    the_result = a_function(of_one, of_another)\n",
        "\tthe result of a function of one and another\n",
        "| a table | of columns | that go on | and on |\n| --- | --- | --- | --- |\n",
    ],
)
@pytest.mark.parametrize("parts", [0, 1, 5])
def test_code_and_tables_keep_their_lines(kept: str, parts: int) -> None:
    assert shown(kept, 16, parts) == kept
    # What follows is prose again; the control.
    assert shown(kept + "some words that do not fit", 16, parts) == (
        kept + "some words that\ndo not fit"
    )


def test_indentation_stays() -> None:
    text = "- one\n  - two words more than fit\n"
    assert shown(text, 14) == "- one\n  - two words\nmore than fit\n"


def test_wide_characters_take_two_columns_and_break_anywhere() -> None:
    assert shown("你好世界朋友", 8) == "你好世界\n朋友"
    assert shown("你好世界。朋友", 8) == "你好世\n界。朋友"  # no line begins with a full stop
    assert shown("an 你好", 6) == "an 你\n好"
    assert shown("e\u0301te\u0301 e\u0301te\u0301", 7) == "e\u0301te\u0301 e\u0301te\u0301"


def test_colours_are_of_words_where_they_were() -> None:
    written: list[str] = []
    wrapping = Wrapping(written.append, lambda: 9)
    wrapping.add("the quick")
    wrapping.add("er fox", lambda text: f"<{text}>")
    wrapping.end()
    assert "".join(written) == "the\nquick<er>\n<fox>"


def test_a_window_may_change_its_width() -> None:
    columns = [20]
    written: list[str] = []
    wrapping = Wrapping(written.append, lambda: columns[0])
    wrapping.add("one two three four ")
    columns[0] = 9
    wrapping.add("five six")
    wrapping.end()
    assert "".join(written) == "one two three four\nfive six"


TEXTS = st.text(st.sampled_from("ab \n\t你。-`|\u0301"), max_size=120)


@given(TEXTS, st.integers(1, 30), st.integers(1, 9))
def test_of_any_text_nothing_is_lost_but_spaces(text: str, columns: int, parts: int) -> None:
    found = shown(text, columns, parts)
    assert re.sub(r"\s", "", found) == re.sub(r"\s", "", text)
    assert found.count("\n") >= text.count("\n")


@given(st.lists(st.text("abcdef", min_size=1, max_size=12), max_size=40), st.integers(12, 40))
def test_of_any_prose_each_line_fits_and_each_word_is_whole(words: list[str], columns: int) -> None:
    found = shown(" ".join(words), columns, 3)
    assert all(width(line) <= columns for line in found.split("\n"))
    assert found.split() == words


def printed(columns: int | None, *, wraps: bool = True) -> str:
    """What is printed in a terminal of so many columns, or through a pipe."""
    program = PROGRAM.format(text=PROSE, wraps=wraps)
    if columns is not None:
        terminal = pytest.importorskip("narrow_terminal")
        return str(terminal.run(program, columns)).replace("\r\n", "\n")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "Some words of thinking that are long\n\n"
    return done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_in_a_terminal_and_through_a_pipe() -> None:
    found = printed(20)
    assert found.endswith(shown(PROSE, 20))
    thought = re.sub(r"\x1b\[\d*m", "", found.removesuffix(shown(PROSE, 20)))
    assert thought.strip() == "Some words of\nthinking that are\nlong"
    assert printed(None) == PROSE
    assert printed(20, wraps=False).endswith(PROSE)  # the control: the terminal breaks words
