"""What ends a GGUF export early leaves nothing behind, and says what to do."""

import dataclasses
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("gguf")
pytest.importorskip("llama_cpp")

from test_export_gguf import export, out, target
from tiny_models import leftovers
from waiting import LIMIT_S, until

import edgedec
from edgedec._support.sandbox import Limits
from edgedec.errors import ExportError, RuntimeUnavailable
from edgedec.export import ExportOptions, export_bundle
from edgedec.export.gguf import child

__all__ = ["out", "target"]  # fixtures


@pytest.fixture
def children(llama_children, monkeypatch):
    """Every child process that was started."""
    started = []

    class Recorded(subprocess.Popen):
        def __init__(self, *arguments, **more):
            super().__init__(*arguments, **more)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Recorded)
    return started


def test_an_interrupt_leaves_neither_files_nor_a_child(target, out, children):
    def interrupt(stage, done, total):
        if stage == "target q8_0":
            raise KeyboardInterrupt

    options = ExportOptions(target, out, formats=("gguf",), weights="q8_0")
    with pytest.raises(KeyboardInterrupt):
        export_bundle(options, interrupt)
    assert children
    assert all(started.poll() is not None for started in children)
    assert not out.exists()
    assert not leftovers(out)


def test_a_child_that_dies_is_told_plainly(target, out, monkeypatch, children):
    """As llama.cpp does on an assertion."""
    monkeypatch.setattr(
        "edgedec.export.gguf.quantize.FTYPES", {"q8_0": (4096, "Q8_0")}, raising=True
    )
    with pytest.raises(ExportError, match=r"llama\.cpp did not finish: .*invalid output"):
        export(target, out, "q8_0")
    assert all(started.poll() is not None for started in children)
    assert not leftovers(out)


def test_a_child_ends_with_its_parent(target, out):
    """Once its input is closed nobody can hear the answer."""
    export(target, out, parity=False)
    request = {
        "task": "evaluator",
        "file": str(out / "target" / "model.gguf"),
        "tokens": [5] * 30_000,
        "columns": 8,
        "out": str(out.parent / "logits"),
        "texts": [],
        "threads": 1,
    }
    started = subprocess.Popen(
        [sys.executable, "-m", child.__name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    limits = dataclasses.asdict(Limits(None, None, 60.0))
    asked = {"task": request, "limits": limits}
    started.stdin.write(json.dumps(asked).encode() + b"\n")
    started.stdin.flush()
    until(lambda: (out.parent / "logits").exists() or started.poll() is not None)
    assert started.poll() is None
    started.stdin.close()
    assert started.wait(LIMIT_S) == 0
    started.stdout.close()


def test_a_child_finds_this_package_and_nothing_of_the_current_folder(
    llama_children, monkeypatch, tmp_path
):
    """Wherever the user stands; ``edgedec/gguf`` must not stand where ``gguf`` is looked for."""
    for name in ("edgedec.py", "numpy.py", "json.py"):
        (tmp_path / name).write_text("raise SystemExit('run from the current folder')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(Path(edgedec.__file__).parent)
    with pytest.raises(ExportError, match=r"No module named 'edgedec\.export\.gguf\.nothing'"):
        child.ask({"task": "nothing"})
    # The control: started as it would be by hand, it does find them.
    by_hand = [sys.executable, "-m", child.__name__]
    done = subprocess.run(by_hand, input=b"{}\n", capture_output=True, check=False)
    assert b"current folder" in done.stderr


def test_a_disk_that_fills_up_while_llama_cpp_writes(target, out, monkeypatch, llama_children):
    """The system refuses to write on, as a full disk does."""
    resource = pytest.importorskip("resource")
    popen = subprocess.Popen
    limited = f"import resource; resource.setrlimit({resource.RLIMIT_FSIZE}, (60_000, 60_000)); "
    limited += "import runpy; runpy.run_module('edgedec.export.gguf.child', run_name='__main__')"

    def start(command, **more):
        writes = "edgedec.export.gguf.child" in command
        return popen([command[0], "-c", limited] if writes else command, **more)

    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(ExportError, match="no space left"):
        export(target, out, "q8_0", parity=False)
    assert not leftovers(out)


@pytest.mark.parametrize(
    ("package", "words"), [("gguf", r"\[export\]"), ("llama_cpp", r"\[gguf\]")]
)
def test_without_the_extra_it_says_what_to_install(
    target, out, monkeypatch, forget, package, words
):
    forget(lambda name: name.startswith("edgedec.export."))
    monkeypatch.setitem(sys.modules, package, None)
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == package else find(name, *a)
    )
    with pytest.raises(RuntimeUnavailable, match=words):
        export(target, out)
    assert not leftovers(out)
