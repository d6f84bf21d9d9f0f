"""An export is all or nothing: full disks, interrupts, two at a time."""

import errno
import json
import os
import stat
import threading
from contextlib import contextmanager

import pytest
from killing import child
from tiny_models import leftovers, tiny_checkpoint

from edgedec.bundle import Bundle
from edgedec.bundle.manifest import MANIFEST
from edgedec.errors import ExportError, InputError
from edgedec.export import ExportOptions, atomic, export_bundle
from edgedec.export.atomic import appearing, check_free


@pytest.fixture
def target(tmp_path):
    return tiny_checkpoint(tmp_path / "big")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "made" / "bundle"


def plain(target, out, **more):
    """Nothing is calibrated or compared: these tests look at how files come into place."""
    return ExportOptions(target, out, **{"weights": "int8", "parity": False, **more})


def test_what_exists_is_not_replaced_unasked(target, out):
    export_bundle(plain(target, out))
    before = (out / MANIFEST).read_bytes()
    with pytest.raises(InputError, match="exists"):
        export_bundle(plain(target, out))
    assert (out / MANIFEST).read_bytes() == before
    export_bundle(plain(target, out, weights="fp32", overwrite=True))
    assert Bundle.open(out, verify=True).target.variant("onnx").weights == "fp32"
    assert not leftovers(out)


def test_only_a_bundle_is_overwritten(target, out):
    out.mkdir(parents=True)
    (out / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="not a bundle, so it is not replaced"):
        export_bundle(ExportOptions(target, out, overwrite=True))
    assert (out / "thesis.tex").exists()


@pytest.mark.skipif(os.name == "nt", reason="folders have no such modes there")
@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o755), (0o077, 0o700), (0o027, 0o750)])
def test_a_bundle_has_the_modes_of_any_new_folder(out, mask, mode):
    before = os.umask(mask)
    try:
        with appearing(out, overwrite=False) as folder:
            (folder / "file").write_text("content")
        after = os.umask(mask)
    finally:
        os.umask(before)
    assert stat.S_IMODE(out.stat().st_mode) == mode
    assert stat.S_IMODE((out / "file").stat().st_mode) == mode & 0o666
    assert after == mask, "what is made later has the modes that the user asked for"


FOREIGN = {
    "a browser's extension": {"manifest_version": 3, "name": "x", "version": "1"},
    "a web app": {"name": "x", "files": {}, "roles": []},
    "a container image": {"schemaVersion": 2, "layers": []},
    "another schema": {"schema_version": 2, "files": {}},
    "a list": [1],
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_another_program_s_manifest_is_no_bundle(tmp_path, kind):
    out = tmp_path / "out"
    out.mkdir()
    (out / MANIFEST).write_text(json.dumps(FOREIGN[kind]), "utf-8")
    (out / "work.js").write_text("years of work")
    with pytest.raises(InputError, match="not a bundle, so it is not replaced"):
        check_free(out, overwrite=True)


def test_a_manifest_behind_a_link_is_no_bundle(target, out):
    export_bundle(plain(target, out))
    (out / MANIFEST).rename(out.parent / "elsewhere")
    (out / MANIFEST).symlink_to(out.parent / "elsewhere")
    with pytest.raises(InputError, match="not a bundle, so it is not replaced"):
        check_free(out, overwrite=True)


def test_what_stands_beside_a_bundle_is_not_deleted(target, out):
    export_bundle(plain(target, out))
    (out / "target" / "notes.md").write_text("mine")
    with pytest.raises(InputError, match=r"also contains 'target/notes\.md', not part"):
        export_bundle(plain(target, out, weights="fp32", overwrite=True))
    assert (out / "target" / "notes.md").read_text() == "mine"


def test_files_of_others_that_a_manifest_claims_are_not_deleted(target, out):
    export_bundle(plain(target, out))
    manifest = json.loads((out / MANIFEST).read_text("utf-8"))
    manifest["files"]["work/thesis.txt"] = next(iter(manifest["files"].values()))
    (out / MANIFEST).write_text(json.dumps(manifest), "utf-8")
    (out / "work").mkdir()
    (out / "work" / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match=r"also contains 'work/thesis\.txt', not part"):
        export_bundle(plain(target, out, weights="fp32", overwrite=True))
    assert (out / "work" / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize("schema", [1, 2])
def test_a_damaged_or_older_bundle_is_overwritten(target, out, schema):
    export_bundle(plain(target, out))
    manifest = json.loads((out / MANIFEST).read_text("utf-8"))
    (out / MANIFEST).write_text(json.dumps({**manifest, "schema_version": schema}), "utf-8")
    (out / "target/model.onnx").write_bytes(b"cut")
    (out / "target/model.onnx.data").unlink()
    export_bundle(plain(target, out, overwrite=True))
    assert Bundle.open(out, verify=True).target.variant("onnx").weights == "int8"


@pytest.mark.parametrize("stage", ["target", "target parity", "hashes"])
@pytest.mark.parametrize("existing", [False, True])
def test_an_interrupt_leaves_nothing(target, out, stage, existing):
    options = ExportOptions(target, out, weights="int8", overwrite=True)
    if existing:
        export_bundle(options)

    def interrupt(now, done, total):
        if now == stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_bundle(options, interrupt)
    assert not leftovers(out)
    assert out.exists() == existing
    if existing:
        Bundle.open(out, verify=True)


def test_a_disk_that_fills_up_in_the_middle(target, out):
    """The system itself refuses to write on, as a full disk does."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(ExportError, match="no space left"):
            export_bundle(plain(target, out))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not out.exists()
    assert not leftovers(out)


@pytest.mark.parametrize(
    ("failure", "seen"),
    [
        (OSError(errno.EIO, "Input/output error"), ExportError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
    ids=["error", "interrupt"],
)
def test_a_failed_swap_brings_the_old_one_back(target, out, monkeypatch, failure, seen):
    export_bundle(plain(target, out))
    rename = type(out).rename

    def fail(self, to):
        if self.name.endswith(".partial") and to == out:
            raise failure
        return rename(self, to)

    monkeypatch.setattr(type(out), "rename", fail)
    with pytest.raises(seen):
        export_bundle(plain(target, out, weights="fp32", overwrite=True))
    assert Bundle.open(out, verify=True).target.variant("onnx").weights == "int8"
    assert not leftovers(out)


def test_a_folder_that_appears_at_the_last_moment_stays(out, monkeypatch):
    def another_appears(*_, **__):
        out.mkdir(parents=True, exist_ok=True)
        (out / "theirs").write_text("theirs")

    def write():
        with appearing(out, overwrite=False) as folder:
            (folder / "ours").write_text("ours")
            monkeypatch.setattr(atomic, "check_free", another_appears)

    with pytest.raises(InputError, match="appeared while this export ran"):
        write()
    assert [path.name for path in out.iterdir()] == ["theirs"]
    assert not leftovers(out)


def test_two_at_a_time(target, out):
    """One of two exports to one place wins; the other is told, and nothing is mixed."""
    results = []
    ready = threading.Barrier(2)

    def wait(stage, done, total):
        if stage == "hashes" and done == total:
            ready.wait()

    def work():
        try:
            results.append(export_bundle(plain(target, out), wait))
        except InputError as error:
            results.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(isinstance(result, InputError) for result in results) == [False, True]
    Bundle.open(out, verify=True)
    assert not leftovers(out)


EXPORTS = """
import sys
from pathlib import Path
from edgedec.export import atomic

def write(out):
    with atomic.appearing(out, overwrite=True) as folder:
        (folder / "half").write_text("half")
        if sys.argv[2] == "swapping":
            Path.rename = renaming(Path.rename, out)
        else:
            wait()

def renaming(rename, out):
    def renamed(self, to):
        if self.name.endswith(".partial") and to == out:
            wait()
        return rename(self, to)
    return renamed

def wait():
    print("there", flush=True)
    sys.stdin.readline()

write(Path(sys.argv[1]))
"""


@contextmanager
def exporting(out, where):
    process = child(EXPORTS, out, where)
    assert process.stdout.readline() == b"there\n"
    try:
        yield
    finally:
        process.kill()
        process.communicate()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.skipif(os.name == "nt", reason="folders have no locks there")
def test_the_next_export_removes_what_a_killed_one_left(out, caplog):
    with exporting(out, "writing"):
        pass
    (left,) = names(out.parent)
    (out.parent / ".notes.partial").mkdir()  # not an export's
    with appearing(out.with_name("another"), overwrite=False):
        assert left not in names(out.parent)
    assert names(out.parent) == [".notes.partial", "another"]
    assert f"removed {out.parent / left}, which an export that was killed" in caplog.text


@pytest.mark.skipif(os.name == "nt", reason="folders have no locks there")
def test_one_that_runs_is_left_alone(out):
    with exporting(out, "writing"):
        (running,) = names(out.parent)
        with appearing(out.with_name("another"), overwrite=False):
            assert running in names(out.parent)
        assert running in names(out.parent)


@pytest.mark.skipif(os.name == "nt", reason="folders have no locks there")
def test_what_was_set_aside_by_a_killed_export_comes_back(target, out, caplog):
    export_bundle(plain(target, out))
    with exporting(out, "swapping"):
        pass
    assert not out.exists()
    with appearing(out.with_name("another"), overwrite=False):
        pass
    assert names(out.parent) == ["another", out.name]
    assert Bundle.open(out, verify=True).target.variant("onnx").weights == "int8"
    assert f"{out} is back" in caplog.text
