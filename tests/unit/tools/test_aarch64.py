"""The emulated ARM processors: what is said without the emulator, and what a failure does."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from benchmarks.sections.control_group import ControlGroup
from edgedec.runtimes.onnx import model as onnx_model
from edgedec.runtimes.onnx.padding import NO_PADDING
from tools.aarch64 import __main__ as program
from tools.aarch64 import checks, debian, groups, kernels, rows, system, texts


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


@pytest.mark.full
@pytest.mark.cgroup
def test_a_text_in_a_control_group(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(debian.A72)
    assert groups.problem(host, groups.GB) == ""
    # The control: more than the limit is taken, and the system ends the process.
    monkeypatch.setattr(groups, "_DOCTOR", ("-c", "bytearray(300 << 20)", "taking"))
    assert groups.problem(host, 100 << 20) == "taking: exit code -9"
    # And another one, whose failure the exit code does not tell.
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'bytearray(300 << 20)'])"
    monkeypatch.setattr(groups, "_DOCTOR", ("-c", f"{child}; print('{{}}')"))
    monkeypatch.setattr(groups, "_TEXT", ("-c", "print('{}')"))
    monkeypatch.setattr(groups, "unseen", lambda *_: "")
    assert groups.problem(host, 100 << 20) == "the system ended 1 of its processes"


def test_a_limit_that_is_overlooked_or_reached_is_told(tmp_path: Path) -> None:
    def facts(limit: int | None, granted: int) -> tuple[dict[str, Any], dict[str, Any]]:
        text = {"memory": {"granted_bytes": granted}, "peak_memory_bytes": 10}
        return {"memory": {"limit_bytes": limit}}, text

    assert groups.unseen(*facts(100, 105), 100) == ""
    assert groups.unseen(*facts(None, 105), 100) == "doctor sees a limit of None, not 100"
    assert groups.unseen(*facts(100, 200), 100) == "--memory auto grants 200 of 100"

    group = ControlGroup(tmp_path, 100)
    with pytest.raises(groups.LeftOutError, match="does not say"):
        groups.of_group(group)
    for name in ("memory.oom_control", "memory.events"):
        (tmp_path / name).write_text("under_oom 0\noom_kill 0\n", "ascii")
        (tmp_path / "memory.peak").write_text("99\n", "ascii")
        assert groups.of_group(group) == ""
        (tmp_path / "memory.peak").write_text("100\n", "ascii")
        assert groups.of_group(group) == "its peak is 100 of 100"
        (tmp_path / name).write_text("under_oom 0\noom_kill 1\n", "ascii")
        assert groups.of_group(group) == "the system ended 1 of its processes"


def test_without_the_right_to_make_a_group_the_check_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(groups, "limited", lambda limit: nullcontext())
    name = "a text in a control group of 1 GB"
    assert checks.failed(Host(debian.A72), {name: checks.CHECKS[name]}) == []
    assert f"{name}: left out: no control group can be made here" in capsys.readouterr().out
    assert name not in checks.QUICK


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


def test_the_guides_table_of_divergence_is_the_record(repository: Path) -> None:
    record = (repository / "docs" / "measurements" / f"{kernels.NAME}.jsonl").read_text("utf-8")
    found: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in map(json.loads, record.splitlines()):
        if row["kind"] == "kernels":
            block = f", block {row['block_size']}" if row["block_size"] else ""
            key = row["target"], row["weights"] + block, row["kernels"]
            found.setdefault(key, {})[row["cpu"]] = nats(row["kl_nats"])
            assert row["padding"] is not None, "the guide says that rows are independent in all"
    guide = (repository / "docs" / "guides" / "raspberry-pi.md").read_text("utf-8")
    table = guide.split("| x86-64 | Cortex-A72 | Cortex-A76 |\n", 1)[1].split("\n\n", 1)[0]
    shown = {tuple(cells[:3]): cells[3:] for cells in map(cells_of, table.splitlines()[1:])}
    for key, by_cpu in found.items():
        assert shown.pop(key) == [by_cpu.get(cpu, "-") for cpu in ("x86-64", *debian.CPUS)]
    assert not shown


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def nats(divergence: float) -> str:
    return "0" if divergence < 1e-9 else f"{divergence:.2g}"
