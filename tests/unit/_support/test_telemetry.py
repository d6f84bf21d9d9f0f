"""No library reports to its maker what runs here, or leaves files for that."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

_DECODE = """
from edgedec import Pipeline
with Pipeline.open("demo", device={device!r}) as pipeline:
    pipeline.generate("def f(x):", max_new_tokens=4)
"""
# Libraries stay silent under their own tests, which these variables give away.
_SILENCING = {"ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS"}
_CI = {"CI", "TF_BUILD", "GITHUB_ACTIONS", "GITLAB_CI", "BUILDKITE", "JENKINS_URL", "TRAVIS"}
needs_openvino = pytest.mark.skipif(
    find_spec("openvino") is None, reason="needs the extra openvino"
)


def run(code: str, home: Path, **more: str) -> list[str]:
    """Run Python in a new home; return the files of reports that it left there."""
    kept = {name: value for name, value in os.environ.items() if name not in _SILENCING | _CI}
    # Nothing is reachable, should the switch fail.
    kept |= {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "https_proxy": "127.0.0.1:9"}
    subprocess.run([sys.executable, "-c", code], env=kept | more, check=True)
    found = (str(file.relative_to(home)) for file in home.rglob("*") if file.is_file())
    return [name for name in found if name.startswith(("intel/", "cache/Microsoft"))]


@pytest.mark.parametrize(
    ("device", "library"),
    [
        ("cpu", "onnxruntime"),
        pytest.param("openvino", "openvino", marks=[needs_openvino, pytest.mark.full]),
    ],
)
def test_decoding_reports_nothing(device: str, library: str, tmp_path: Path) -> None:
    alone, ours = tmp_path / "alone", tmp_path / "ours"
    alone.mkdir()
    ours.mkdir()
    if not run(f"import {library}", alone):
        pytest.skip(f"this version of {library} reports nothing")
    assert run(_DECODE.format(device=device), ours) == []


def test_what_the_user_has_set_stays(tmp_path: Path) -> None:
    run(
        "import edgedec, os; assert os.environ['ORT_DISABLE_TELEMETRY'] == '0'",
        tmp_path,
        ORT_DISABLE_TELEMETRY="0",
    )
