"""The library's folder: whole models or none, files shared, two processes at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_checkpoints import noisy_checkpoint

from edgedec.bundle import Bundle
from edgedec.errors import CheckpointError, InputError, ParityError
from edgedec.export.divergence import ParityFigures
from edgedec.library import Form, Library, Model, making, records
from edgedec.library.drafts import find
from edgedec.library.locate import Query, locate
from edgedec.library.making import Listener

pytestmark = pytest.mark.usefixtures("exports_once")

Said = list[str]
# Random weights pass the parity of no smaller form: each of those would be tried first.
EXACT = Form("fp32")


def checkpoint(folder: Path, *, layers: int = 2, seed: int = 0) -> Path:
    return noisy_checkpoint(folder, seed=seed, num_hidden_layers=layers)


@pytest.fixture
def add(library: Library, said: Said) -> Callable[..., Model]:
    def call(folder: Path, form: Form | None = None) -> Model:
        return making.of_checkpoint(library, folder, form, Listener(said.append))

    return call


def files_of(library: Library) -> list[str]:
    found = (path for path in library.folder.rglob("*") if path.is_file())
    return sorted(path.relative_to(library.folder).as_posix() for path in found)


def test_a_checkpoint_is_made_once(add, library: Library, said: Said, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "target")
    first = add(folder)
    assert first.name == "target"
    assert first.record.origin.where == str(folder)
    assert set(first.record.origin.files) == {"config.json", "model.safetensors", "tokenizer.json"}
    count = len(said)
    assert count >= 2
    assert add(folder) == first
    assert len(said) == count
    assert Bundle.open(first.path, verify=True).target.source == "target"
    assert [model.id for model in library.models()] == [first.id]


def test_a_model_that_does_not_bear_four_bits_gets_eight(
    add, said: Said, tmp_path: Path, repository: Path
) -> None:
    random = add(checkpoint(tmp_path / "random"))
    assert random.record.form.weights in ("auto", "int8", "fp32")
    assert any("int8" in line or "in auto diverges too far" in line for line in said)
    with pytest.raises(ParityError):
        add(checkpoint(tmp_path / "random"), Form("int4"))
    said.clear()
    trained = add(repository / "models" / "demo" / "draft")
    assert trained.record.form == Form("auto", "none")
    assert "weights are rounded to nearest; --calibrated" in said[0]


@pytest.mark.full
def test_a_closer_form_is_another_model_of_more_bytes(
    add, library: Library, repository: Path
) -> None:
    draft = repository / "models" / "demo" / "draft"
    found = [
        add(draft, Form.requested(None, calibrated=None, max_kl=limit))
        for limit in (1.0, None, 0.001)
    ]
    near, usual, close = (one.size_bytes for one in found)
    assert near <= usual < close
    assert len({one.id for one in library.models()}) == 3
    assert str(found[2].record.form) == "auto within 0.001 nats, rounded to nearest"
    for weights, limit in (("int4", 0.1), (None, 0.0), (None, float("nan"))):
        with pytest.raises(InputError, match=r"^max-kl"):
            Form.requested(weights, calibrated=None, max_kl=limit)


def test_the_same_bytes_under_two_names_are_listed_under_both(
    add, library: Library, said: Said, tmp_path: Path
) -> None:
    one = add(checkpoint(tmp_path / "a"))
    made = sum(line.startswith("making") for line in said)
    two = add(checkpoint(tmp_path / "b"))
    assert sum(line.startswith("making") for line in said) == made, "it was made again"
    assert said[-1] == "b has the same files as a, which it shares"
    assert [model.name for model in library.models()] == ["a", "b"]
    assert two.record.form == one.record.form
    graph = "target.onnx" if (one.path / "target.onnx").exists() else "tokenizer/tokenizer.json"
    assert os.path.samestat((one.path / graph).stat(), (two.path / graph).stat())
    library.remove(one)
    assert [model.name for model in library.models()] == ["b"]
    Bundle.open(two.path, verify=True)
    assert add(checkpoint(tmp_path / "elsewhere" / "b")) == two, "a folder that was moved"
    other = add(checkpoint(tmp_path / "c", seed=1))
    assert other.record.origin.files != two.record.origin.files


def test_two_models_of_one_name_are_told_apart(add, library: Library, tmp_path: Path) -> None:
    one = add(checkpoint(tmp_path / "x" / "draft"))
    assert library.find("draft") == one
    two = add(checkpoint(tmp_path / "y" / "draft", seed=1))
    with pytest.raises(InputError, match="draft is two models: ") as caught:
        library.find("draft")
    for model in (one, two):
        assert model.id[:8] in str(caught.value)
        assert model.record.origin.where in str(caught.value)
        assert library.find(model.id[:8]) == model


def test_a_name_of_ones_own(library: Library, said: Said, tmp_path: Path) -> None:
    def named(word: object, name: str) -> Model | None:
        return locate(str(word), library, Listener(said.append), Query(name=name)).model

    folder = checkpoint(tmp_path / "target")
    first = named(folder, "mine")
    assert first is not None
    assert first.name == "mine"
    assert named(folder, "mine") == first == named("mine", "mine")
    assert getattr(named("mine", "other"), "name", None) == "other"
    assert [model.name for model in library.models()] == ["mine", "other"]
    with pytest.raises(InputError, match="mine is the name of another model"):
        named(checkpoint(tmp_path / "second", seed=1), "mine")
    for bad in ("demo", "a/b", "x.gguf", "-x", "", "a b"):
        with pytest.raises(InputError, match="--name"):
            named(folder, bad)
    with pytest.raises(InputError, match=r"is used where it is, .*: leave --name mine out"):
        named("demo", "mine")


def test_files_are_stored_once(add, library: Library, tmp_path: Path) -> None:
    one = add(checkpoint(tmp_path / "one"))
    two = add(checkpoint(tmp_path / "two", seed=1))
    shared = [model.path / "tokenizer" / "tokenizer.json" for model in (one, two)]
    assert os.path.samestat(shared[0].stat(), shared[1].stat())
    assert library.size_bytes() < one.size_bytes + two.size_bytes
    library.remove(one)
    Bundle.open(two.path, verify=True)
    left = {fact.sha256 for fact in Bundle.open(two.path).files.values()}
    assert {name.removeprefix("blobs/") for name in files_of(library) if "blobs" in name} == left
    library.remove(two)
    assert [name for name in files_of(library) if not name.startswith("locks/")] == []


def test_where_there_are_no_hard_links(
    add, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    model = add(checkpoint(tmp_path / "target"))
    Bundle.open(model.path, verify=True)
    again = add(checkpoint(tmp_path / "the same"))
    assert (again.name, again.record.form) == ("the same", model.record.form)
    library.remove(model)
    Bundle.open(again.path, verify=True)
    assert not [name for name in files_of(library) if name.startswith("blobs/")]


def test_a_folder_that_changed_takes_the_place_of_what_was_made_of_it(
    add, library: Library, tmp_path: Path
) -> None:
    before = add(checkpoint(tmp_path / "target"))
    after = add(checkpoint(tmp_path / "target", seed=1))
    assert before.id != after.id
    assert [model.id for model in library.models()] == [after.id]


def test_forms_stand_side_by_side_and_the_calibrated_one_is_preferred(
    add, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = checkpoint(tmp_path / "target")
    monkeypatch.setattr(
        ParityFigures, "check", lambda *_, **__: None
    )  # random weights bear no rounding
    plain, exact = add(folder), add(folder, Form("fp32"))
    calibrated = add(folder, Form("int4", "self"))
    assert plain.record.form == Form()
    assert len({plain.id, exact.id, calibrated.id}) == 3
    assert library.find("target") == calibrated == add(folder)
    assert library.find("target", Form("fp32")) == exact
    assert library.find(plain.id[:6]) == plain
    assert {model.id for model in library.matching("target")} == {plain.id, exact.id, calibrated.id}
    assert library.find("other") is None
    assert library.find(plain.id[:3]) is None


def test_an_export_that_fails_leaves_nothing(add, library: Library, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "target")
    (folder / "tokenizer.json").write_text("{}", "utf-8")
    with pytest.raises(CheckpointError):
        add(folder)
    assert library.models() == []
    assert [name for name in files_of(library) if not name.startswith("locks/")] == []


@pytest.mark.parametrize("left", ["killed", "damaged", "newer"])
def test_what_was_left_unfinished_is_cleaned(
    add, library: Library, tmp_path: Path, left: str
) -> None:
    folder = checkpoint(tmp_path / "target")
    model = add(folder)
    home = library.folder / "models" / model.id
    if left == "killed":
        home.rename(home.with_name(f".making-{model.id}"))
    else:
        raw = json.loads((home / records.RECORD).read_text("utf-8"))
        raw |= {"schema": 2} if left == "newer" else {"parameters": "many"}
        (home / records.RECORD).write_text(json.dumps(raw), "utf-8")
    assert library.models() == []
    assert add(folder).id == model.id  # made again, in its place
    library.remove(model)
    home.with_name(f".making-{model.id}").mkdir()
    library.clean()
    assert not list((library.folder / "models").iterdir())


def test_the_next_model_removes_what_a_killed_command_left(
    add, library: Library, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left, making = (library.folder / "models" / f".making-{digit * 16}" for digit in "01")
    for folder in left, making:
        (folder / "bundle").mkdir(parents=True)
    with library.locked("1" * 16, lambda: None):  # by a process that runs
        add(checkpoint(tmp_path / "target"))
    assert not left.exists()
    assert making.exists()
    assert f"removed {left.name}, left by a command that was killed" in caplog.text
    assert making.name not in caplog.text


def test_what_another_process_is_making_is_not_cleaned(library: Library) -> None:
    with library.locked("0" * 16, lambda: None), library.adding("0" * 16) as staging:
        library.clean()
        assert staging.is_dir()
        library.clear()
        assert staging.is_dir()
    assert not staging.exists()


@pytest.mark.parametrize("path", ["../../elsewhere", "/etc", "models/../../x"])
def test_a_record_leads_nowhere_else(add, library: Library, tmp_path: Path, path: str) -> None:
    model = add(checkpoint(tmp_path / "target"))
    (tmp_path / "elsewhere").mkdir()
    file = library.folder / "models" / model.id / records.RECORD
    raw = json.loads(file.read_text("utf-8"))
    file.write_text(json.dumps(raw | {"path": path}), "utf-8")
    assert library.get(model.id) is None


def test_a_library_that_cannot_be_written(tmp_path: Path, said: Said) -> None:
    (tmp_path / "file").write_text("no folder")
    library = Library(tmp_path / "file" / "library")
    assert library.models() == []
    with pytest.raises(InputError, match=r"cannot be written: .* set EDGEDEC_LIBRARY"):
        locate(str(checkpoint(tmp_path / "target")), library, Listener(said.append))


CHILD = """
import sys
from pathlib import Path
from edgedec.library import Library, making
from edgedec.library.making import Listener
model = making.of_checkpoint(Library(Path(sys.argv[1])), Path(sys.argv[2]), None,
                             Listener(lambda text: print(text, flush=True)))
print(model.id)
"""


@pytest.mark.full
def test_two_processes_make_a_model_once(library: Library, repository: Path) -> None:
    folder = repository / "models" / "demo" / "draft"
    command = [sys.executable, "-c", CHILD, str(library.folder), str(folder)]
    pipes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [process.communicate(timeout=120)[0].splitlines() for process in pipes]
    assert all(process.returncode == 0 for process in pipes)
    assert len({lines[-1] for lines in outputs}) == 1
    assert sum(line.startswith("making") for lines in outputs for line in lines) == 1
    (model,) = library.models()
    Bundle.open(model.path, verify=True)


class TestDrafts:
    def test_the_largest_small_one_with_the_same_tokenizer(
        self, add, library: Library, tmp_path: Path
    ) -> None:
        target = add(checkpoint(tmp_path / "target", layers=12), EXACT)
        assert find(target.path, library) is None
        small = add(checkpoint(tmp_path / "small", layers=1), EXACT)
        better = add(checkpoint(tmp_path / "better"), EXACT)
        add(checkpoint(tmp_path / "large", layers=6), EXACT)
        assert better.record.parameters <= target.record.parameters / 4
        assert find(target.path, library) == better
        library.remove(better)
        assert find(target.path, library) == small
        assert find(small.path, library) is None

    def test_another_tokenizer_is_passed_over(self, add, library: Library, tmp_path: Path) -> None:
        target = add(checkpoint(tmp_path / "target", layers=12), EXACT)
        other = checkpoint(tmp_path / "other", layers=1)
        raw = json.loads((other / "tokenizer.json").read_text("utf-8"))
        raw["normalizer"] = {"type": "Lowercase"}
        (other / "tokenizer.json").write_text(json.dumps(raw), "utf-8")
        add(other, EXACT)
        assert find(target.path, library) is None

    def test_a_pair_keeps_its_own(self, add, library: Library, tmp_path: Path) -> None:
        add(checkpoint(tmp_path / "small", layers=1), EXACT)
        assert find("demo", library) is None
