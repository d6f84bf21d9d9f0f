"""A file is the old one or the new one, whole, whatever happens while it is written."""

import os

import pytest

from edgedec._support.atomic import replacing, write_json


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_what_ends_it_early_leaves_the_old_file_alone(tmp_path, monkeypatch, call, error):
    file = tmp_path / "file"
    file.write_text("what was there")

    def fails(*args: object) -> None:
        raise error

    monkeypatch.setattr(os, call, fails)
    with pytest.raises(type(error)), replacing(file) as stream:
        stream.write(b"half")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert file.read_text() == "what was there"


def test_its_bytes_are_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    steps = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda *args: [steps.append("fsync"), fsync(*args)])
    monkeypatch.setattr(os, "replace", lambda *args: [steps.append("replace"), replace(*args)])
    write_json(tmp_path / "file", [1])
    assert steps == ["fsync", "replace"]
    assert (tmp_path / "file").read_text() == "[1]"


def test_what_json_cannot_say_is_not_written(tmp_path):
    with pytest.raises(ValueError):
        write_json(tmp_path / "file", float("nan"))
    assert not list(tmp_path.iterdir())
