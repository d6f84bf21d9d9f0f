"""Weight files that are cut short or replaced while they are in use: one line, and the text."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from killing import child
from tiny_gguf import write_tiny_gguf

from edgedec.errors import PassFailed
from edgedec.loading.in_use import FilesInUse

if sys.platform != "linux":
    pytest.skip("what happens to mapped files is Linux's", allow_module_level=True)
pytest.importorskip("llama_cpp")
# Opens a model, tells so after a text, and writes another one for every line that comes.
TEXTS = """
import json, sys
from edgedec import Pipeline
from edgedec.errors import EdgedecError
from edgedec.loading.in_use import FilesInUse

if "blind" in sys.argv:
    FilesInUse.check = lambda self: None
with Pipeline.open(sys.argv[1], threads=1, drafter="none", plan="none", repack=False) as pipeline:
    while True:
        try:
            said = pipeline.generate([1, 2, 3], max_new_tokens=8, temperature=0).token_ids
        except EdgedecError as error:
            said = str(error)
        print(json.dumps(said), flush=True)
        if not sys.stdin.readline():
            break
        if not pipeline._parts.closed:
            pipeline.forget()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_tiny_gguf(tmp_path / "a.gguf", layers=4)


class Talking:
    def __init__(self, file: Path, *words: str) -> None:
        self.process = child(TEXTS, file, *words)

    def __enter__(self) -> Talking:
        return self

    def __exit__(self, *details: object) -> None:
        self.process.communicate()

    def text(self) -> object:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def next(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()


def test_one_that_is_cut_short_is_one_line_and_comes_back(file: Path, tmp_path: Path) -> None:
    whole = Path(shutil.copy(file, tmp_path / "whole"))
    with Talking(file) as talking:
        expected = talking.text()
        os.truncate(file, 4096)
        talking.next()
        said = talking.text()
        assert isinstance(said, str)
        assert str(file) in said
        assert "\n" not in said
        whole.rename(file)
        talking.next()
        assert talking.text() == expected
    assert talking.process.returncode == 0


def test_one_that_is_replaced_by_renaming_is_not_noticed(file: Path, tmp_path: Path) -> None:
    with Talking(file) as talking:
        expected = talking.text()
        (tmp_path / "short").write_bytes(file.read_bytes()[:4096])
        (tmp_path / "short").rename(file)
        talking.next()
        assert talking.text() == expected
        file.unlink()
        talking.next()
        assert talking.text() == expected


def test_without_the_look_the_process_ends(file: Path) -> None:
    with Talking(file, "blind") as talking:
        talking.text()
        os.truncate(file, 4096)
        talking.next()
    assert talking.process.returncode == -signal.SIGBUS


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_nothing_is_held_once_it_is_closed(file: Path) -> None:
    before = open_files()
    files = FilesInUse([file, file.with_name("absent")])
    files.check()
    assert open_files() == before + 1
    os.truncate(file, 100)
    with pytest.raises(PassFailed, match="was cut short while it was in use: it has 100 bytes"):
        files.check()
    files.close()
    files.close()
    assert open_files() == before
