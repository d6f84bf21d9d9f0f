"""Programs that see a processor of another class, and what is said where none can be had."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.processor_class import __main__ as program
from tools.processor_class import masking
from tools.processor_class.classes import CLASSES, ProcessorClass, class_of, features

ROOT = Path(__file__).resolve().parents[3]
# Which every processor of these tests has: their program asks for it.
WITHOUT_SSE4_2 = ProcessorClass("old", (), ("sse4_2",))
PROGRAM = r"""
#include <cpuid.h>
#include <stdio.h>
int main(void) {
    unsigned a, b, c, d;
    __cpuid_count(1, 0, a, b, c, d);
    printf("%u\n", c >> 20 & 1);
    return 0;
}
"""
needs_programs = pytest.mark.skipif(
    "sse4_2" not in features() or not all(map(shutil.which, ("gcc", "objdump"))),
    reason="needs gcc and objdump, on Linux for x86-64",
)


@pytest.fixture
def asks(tmp_path: Path) -> Path:
    """A program that prints whether the processor has SSE 4.2."""
    source, out = tmp_path / "asks.c", tmp_path / "asks"
    source.write_text(PROGRAM, "utf-8")
    subprocess.run(["gcc", "-o", out, source], check=True)
    return out


@pytest.fixture
def masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a processor without SSE 4.2, without copies of runtimes."""
    monkeypatch.setattr(masking, "_copies", lambda work: work)
    return os.environ | masking.masked(WITHOUT_SSE4_2, tmp_path / "work")


def said(command: list[str | Path], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@needs_programs
def test_a_program_with_traps_sees_another_processor(asks: Path, masked: dict[str, str]) -> None:
    assert said([asks], masked) == "1"  # the control: its cpuid is the processor's
    assert masking.trap(asks) > 0
    assert said([asks], masked) == "0"
    # What is not hidden is as it is.
    assert said([asks], masked | {"EDGEDEC_CPUID_HIDDEN": "7,0,0,ffffffff,0,0"}) == "1"
    assert masking.trap(asks) == 0


@needs_programs
def test_what_linux_says_of_it_is_hidden_as_well(masked: dict[str, str]) -> None:
    words = [sys.executable, "-c", "print('sse4_2' in open('/proc/cpuinfo').read().split())"]
    assert said(words) == "True"
    assert said(words, masked) == "False"


def test_what_linux_would_say() -> None:
    here = "model name : A\nflags\t\t: fma avx512f avx2 avx_vnni\n\nflags\t\t: avx512f avx2\n"
    assert CLASSES["avx2"].cpuinfo(here) == (
        "model name : A\nflags\t\t: fma avx2\n\nflags\t\t: avx2\n"
    )


def test_bits_are_those_of_the_features() -> None:
    assert WITHOUT_SSE4_2.hidden() == "1,0,0,0,100000,0"
    both = ProcessorClass("both", (), ("avx512f", "avx_vnni", "avx512_vnni"))
    assert both.hidden() == "7,0,0,10000,800,0;7,1,10,0,0,0"


@pytest.mark.parametrize("name", CLASSES)
def test_a_processor_is_of_one_class(name: str) -> None:
    assert class_of(CLASSES[name].has) == CLASSES[name]
    assert class_of([*CLASSES[name].has, "amx_int8"]) is None
    assert class_of(CLASSES[name].has[1:]) is None


@pytest.mark.parametrize(
    ("machine", "here", "missing", "why"),
    [
        ("aarch64", "asimd", None, "this is Linux on aarch64, not x86-64 Linux"),
        ("x86_64", "sse4_2", None, "this one lacks avx2, fma"),
        ("x86_64", "avx2 fma avx512f", "gcc", "gcc is not installed: on Debian, apt install gcc"),
        (
            "x86_64",
            "avx2 fma avx512f",
            "objdump",
            "objdump is not installed: on Debian, apt install binutils",
        ),
    ],
)
def test_one_line_says_what_is_missing(
    machine: str,
    here: str,
    missing: str | None,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(masking, "features", lambda: here.split())
    monkeypatch.setattr(shutil, "which", lambda name: None if name == missing else f"/bin/{name}")
    assert program.main(["avx2", "--", "false"]) == 2
    assert capsys.readouterr().err == f"no processor of the class avx2 here: {why}\n"


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (1, 1), (2, 1)])
def test_a_processor_of_the_class_runs_it_as_it_is(
    code: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(masking, "features", lambda: ["avx2", "fma"])
    monkeypatch.setattr(masking, "masked", lambda *_: pytest.fail("nothing is hidden"))
    words = [sys.executable, "-c", f"raise SystemExit({code})"]
    assert program.main(["avx2", "--", *words]) == expected


ROWS = """
import sys
sys.path[:0] = ["tests/support"]
from pathlib import Path
from packed_logits import logits
print(logits(Path(sys.argv[1])).tobytes().hex())
"""


@pytest.mark.skipif("EDGEDEC_CPUID_HIDDEN" not in os.environ, reason="runs by `make avx2`")
def test_the_runtimes_of_this_process_choose_other_kernels(tmp_path: Path) -> None:
    from tiny_models import write_tiny_model

    write_tiny_model(tmp_path, "int4")
    # As on the processor itself, each with what it knows of packed weights.
    own = {"LD_PRELOAD", "EDGEDEC_CPUID_HIDDEN", "EDGEDEC_CPUINFO", "PYTHONPATH"}
    real = {name: value for name, value in os.environ.items() if name not in own}
    words = [sys.executable, "-c", ROWS, tmp_path]
    found = [
        subprocess.run(words, env=one, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for one in (
            {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "here")},
            {**real, "XDG_CACHE_HOME": str(tmp_path / "there")},
        )
    ]
    assert len(found[0]) == len(found[1]) > 1000
    assert found[0] != found[1]
