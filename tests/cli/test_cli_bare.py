"""What a stranger has who installed the wheel alone: everything works, or a line names an extra."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import ready_models
from kinds import in_full
from tiny_checkpoints import noisy_checkpoint
from tiny_gguf import write_tiny_gguf

EXTRAS = (
    "gguf", "h11", "huggingface_hub", "llama_cpp", "llguidance", "matplotlib", "ml_dtypes", "onnx",
    "openvino", "optimum", "prometheus_client", "ray", "safetensors", "starlette", "threadpoolctl",
    "torch", "transformers", "uvicorn",
)  # fmt: skip
BARE = """
import sys
sys.modules.update(dict.fromkeys({extras!r}))
from edgedec.__main__ import main
sys.argv[0] = "edgedec"
main()
"""


def run(*words: str | Path, library: Path, hidden: tuple[str, ...] = EXTRAS) -> tuple[int, str]:
    """Return the exit code of a command, and what it wrote."""
    code, own = BARE.format(extras=hidden), {**os.environ, "EDGEDEC_LIBRARY": str(library)}
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], input="", capture_output=True, text=True,
        check=False, env=own,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    checkpoint = noisy_checkpoint(root / "checkpoint", entries={})
    return {
        "bundle": Path("demo"),
        "checkpoint": checkpoint,
        "ready": ready_models.transformers_js(checkpoint, root / "ready"),
        "file": write_tiny_gguf(root / "tiny.gguf"),
    }


@pytest.mark.parametrize(
    ("words", "model"),
    in_full(
        [
            (("generate",), "bundle"),
            (("run",), "bundle"),
            (("run",), "ready"),
            (("inspect",), "bundle"),
            (("card",), "bundle"),
            (("list",), ""),
            (("heads",), ""),
        ],
        2,
    ),
)
def test_these_work(
    words: tuple[str, ...], model: str, models: dict[str, Path], tmp_path: Path
) -> None:
    asked = [*words, *([models[model]] if model else [])]
    asked += ["def f(", "-n", "4", "-t", "1"] if words[0] in ("generate", "run") else []
    code, shown = run(*asked, library=tmp_path)
    assert (code, "Traceback" in shown) == (0, False), shown


@pytest.mark.parametrize(
    ("words", "model", "extra"),
    in_full(
        [
            (("run",), "checkpoint", "export"),
            (("run", "--format", "onnx"), "file", "export"),
            (("run",), "file", "gguf"),
            (("run",), "some-org/model", "hub"),
            (("pull",), "some-org/model", "hub"),
            (("serve",), "bundle", "serve"),
            (("export", "--out", "OUT"), "checkpoint", "export"),
            (("export", "--layout", "genai", "--out", "OUT"), "checkpoint", "export"),
            (("export", "--out", "OUT"), "file", "export"),
            (("generate", "--regex", "[ab]"), "bundle", "grammar"),
        ],
        3,
    ),
)
def test_these_name_their_extra(
    words: tuple[str, ...], model: str, extra: str, models: dict[str, Path], tmp_path: Path
) -> None:
    first, *rest = (word.replace("OUT", str(tmp_path / "out")) for word in words)
    rest = [*rest, "a text"] if first in ("generate", "run") else rest
    code, shown = run(first, models.get(model, Path(model)), *rest, library=tmp_path)
    assert code not in (0, 1)
    assert "Traceback" not in shown, shown
    assert f"[{extra}" in shown or f",{extra}" in shown, shown
    assert not (tmp_path / "out").exists()


def test_a_package_that_every_command_needs_would_be_seen(tmp_path: Path) -> None:
    """The control."""
    _, shown = run("run", "demo", "a", library=tmp_path, hidden=("tokenizers",))
    assert "Traceback" in shown
