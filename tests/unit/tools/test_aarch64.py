"""The emulated ARM processors: what is said without the emulator, and what a failure does."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgedec.runtimes.onnx import model as onnx_model
from edgedec.runtimes.onnx.padding import NO_PADDING
from tools.aarch64 import __main__ as program
from tools.aarch64 import checks, debian, rows, system, texts


class Host(system.System):
    """A system whose emulated Python is this one."""

    def __init__(self, cpu: debian.Cpu) -> None:
        self.cpu, self._root, self._python = cpu, Path("/"), Path(sys.executable)


def test_without_the_emulator_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if "qemu" in name else f"/bin/{name}")
    assert program.main(["checks"]) == 2
    assert capsys.readouterr().err == (
        "no emulated ARM processor here: qemu-aarch64 is not installed: on Debian, "
        "apt install qemu-user\n"
    )


def test_a_failed_check_is_told_and_counts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {"good": ("-c", "pass"), "bad": ("-c", "import nothing_of_the_kind")}
    monkeypatch.setattr(checks, "CHECKS", asked)
    monkeypatch.setattr(program, "System", Host)
    assert program.main(["checks", "cortex-a72"]) == 1
    good, bad = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"cortex-a72: good: ok, \d+ s", good)
    assert "FAILED" in bad
    assert "nothing_of_the_kind" in bad
    monkeypatch.setattr(checks, "CHECKS", {"good": asked["good"]})
    assert program.main(["checks", "cortex-a72"]) == 0
    # Those of the quick part are left out by no option.
    monkeypatch.setattr(checks, "QUICK", {"bad": asked["bad"]})
    assert program.main(["checks", "--quick", "cortex-a76", "cortex-a72"]) == 1


def test_a_count_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def failing() -> None:
        words = ["-m", "tools.aarch64.rows", tmp_path / "no target.onnx", "none"]
        rows._counted(Host(debian.A72).run(words, 60))

    with pytest.raises(rows.CountError, match="no target"):
        failing()
    monkeypatch.setitem(program.RECORDERS, "rows", failing)
    assert program.main(["rows"]) == 1


def test_texts_of_drafters_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "DRAFTERS", ("model",))
    assert texts.main() == 0
    # The control: invariance that is claimed and does not hold.
    monkeypatch.setattr(onnx_model, "known_padding", lambda *_: NO_PADDING)
    assert texts.main() == 1
    monkeypatch.setattr(texts, "DRAFTERS", ("none",))
    assert texts.main() == 1  # nothing was drafted, which compares nothing


def test_an_unknown_processor_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        program.main(["checks", "cortex-m0"])
    assert "expected cortex-a72 or cortex-a76" in capsys.readouterr().err


def test_passes_are_counted_by_their_second_run() -> None:
    printed, total = [], 0
    for width in rows.WIDTHS:
        for cost in (1000 * width, width):
            printed += ["a warning", f"instructions {total}", f"instructions {total + cost}"]
            total += cost + 7
    assert rows.counts_of("\n".join(printed)) == {width: width for width in rows.WIDTHS}


def test_links_stay_inside_an_unpacked_system(tmp_path: Path) -> None:
    (tmp_path / "usr" / "lib").mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "file").write_text("inside", "ascii")
    for name, target in (("absolute", "/etc/file"), ("relative", "../../etc/file")):
        (tmp_path / "usr" / "lib" / name).symlink_to(target)
    debian.keep_links_inside(tmp_path)
    for name in ("absolute", "relative"):
        assert (tmp_path / "usr" / "lib" / name).read_text("ascii") == "inside"


def test_a_processor_has_only_the_features_of_its_kind() -> None:
    for cpu, dot_products in ((debian.A72, False), (debian.A76, True)):
        said = cpu.info(cores=3)
        assert said.count("processor\t:") == 3
        assert ("asimddp" in said) == dot_products
        assert cpu.part in said


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_the_plugin_compiles_and_counts(tmp_path: Path) -> None:
    plugin = rows.compiled(tmp_path / "folder" / "plugin.so")
    listed = subprocess.run(["nm", "-D", plugin], capture_output=True, text=True, check=True)
    assert "T qemu_plugin_install" in listed.stdout
    assert "qemu_plugin_version" in listed.stdout


def test_the_guides_table_is_the_record(repository: Path) -> None:
    record = (repository / "docs" / "measurements" / "arm_rows.jsonl").read_text("utf-8")
    lines = [row for row in map(json.loads, record.splitlines()) if row["kind"] == "rows"]
    guide = (repository / "docs" / "guides" / "raspberry-pi.md").read_text("utf-8")
    for cpu in debian.CPUS:
        table = guide.split(f"| {cpu.title()}", 1)[1].split("\n\n", 1)[0].splitlines()
        of_cpu = [row for row in lines if row["cpu"] == cpu]
        asked = rows.WEIGHTS + rows.GGUF_WEIGHTS
        for (weights, block), line in zip(asked, table[: len(asked)], strict=True):
            plain, *exact = (
                r for r in of_cpu if (weights, block) == (r["weights"], r["block_size"])
            )
            assert plain["padding"] == "none"
            assert all(row["padding"] != "none" for row in exact)
            first, *more = map(millions, plain["instructions"].values())
            of_exact = [millions(row["instructions"]["1"]) for row in exact] or ["-"]
            name = f"GGUF, {weights}" if weights.startswith("q") else weights
            name += f", block {block}" if block else ""
            found = [cell.strip() for cell in line.split("|")[-8:-1]]
            assert found == [name, first, *of_exact, *more]


def millions(count: int) -> str:
    return f"{count / 1e6:.1f}" if count < 10e6 else f"{count / 1e6:.0f}"
