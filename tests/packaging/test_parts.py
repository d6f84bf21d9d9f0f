"""Parts that an installation may lack: without one, the rest keeps its rules and decodes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from copied_tree import copied, rules, run

from edgedec._support.parts import part
from edgedec.cli import main
from edgedec.errors import InputError

# Folders and files of each part, and words that ask for it.
PARTS: dict[str, tuple[list[str], list[str]]] = {
    "coreml": (
        ["edgedec/coreml", "edgedec/doctor/coreml", "export/coreml", "export/formats/coreml.py",
         "runtimes/coreml"],
        ["doctor", "--coreml", "demo"],
    ),
    "static": (
        ["export/onnx_static", "export/formats/onnx_static.py", "runtimes/onnx_static"],
        ["generate", "demo", "a", "--format", "onnx-static"],
    ),
    "optimum": (
        ["export/formats/optimum.py", "export/optimum.py", "export/traced.py", "runtimes/onnx_hub"],
        ["generate", "demo", "a", "--format", "optimum"],
    ),
    "rpc": (
        [f"runtimes/llamacpp/{name}.py" for name in
         ("link", "remote", "_remote_child", "rpc_server", "endpoints", "connections")],
        ["devices", "--no-try", "--rpc", "127.0.0.1:1"],
    ),
    "ray": (["edgedec/cluster", "edgedec/cli/_cluster.py"], []),
    "overlap": (
        ["edgedec/overlap"],
        ["generate", "demo", "a", "--schedule", "overlapped", "--drafter", "model"],
    ),
}  # fmt: skip
_WALK = """
import importlib, pkgutil, edgedec
for one in pkgutil.walk_packages(edgedec.__path__, "edgedec."):
    if "_child" not in one.name and not one.name.endswith("__main__"):
        importlib.import_module(one.name)
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return copied(tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("name", PARTS)
def test_a_part_can_go(name: str, copy: Path) -> None:
    paths, asked = PARTS[name]
    for path in paths:
        gone = copy / path
        shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    walked = run(copy, "-c", _WALK)
    assert walked.returncode == 0, walked.stderr[-2000:]
    ruled = rules(copy)
    assert ruled.returncode == 0, ruled.stdout[-2000:]
    listed = run(copy, "-m", "edgedec", "--help")
    assert "generate" in listed.stdout
    done = run(copy, "-m", "edgedec", "generate", "demo", "def f(", "-n", "4", "--threads", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    if asked:
        refused = run(copy, "-m", "edgedec", *asked)
        assert refused.returncode not in (0, None)
        assert "Traceback" not in refused.stderr
        assert len(refused.stderr.strip().splitlines()) <= 3, refused.stderr


@pytest.mark.full
def test_what_is_no_part_cannot_go(copy: Path) -> None:
    """The control."""
    shutil.rmtree(copy / "edgedec" / "memory")
    assert run(copy, "-c", _WALK).returncode != 0


def test_a_part_that_is_not_there_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needs_more.py").write_text("import no_such_package", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match="--ray is not part of this installation: leave it out"):
        part("edgedec.nowhere.run", "--ray")
    with pytest.raises(ModuleNotFoundError):  # a package that a part needs is another matter
        part("needs_more", "x")


def test_parts_are_there_here() -> None:
    done = CliRunner().invoke(main, ["doctor", "--coreml", "nowhere"], prog_name="edgedec")
    assert "not part of this installation" not in done.output
