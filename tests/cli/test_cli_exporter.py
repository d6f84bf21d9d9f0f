"""``edgedec export --exporter`` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_models import tiny_checkpoint
from tiny_torch import torch_checkpoint


@pytest.mark.torch
@pytest.mark.optimum
def test_exported_inspected_and_used(run: Any, tmp_path: Path) -> None:
    opt, out = torch_checkpoint(tmp_path / "opt", "opt"), tmp_path / "out"
    made = run("export", str(opt), "--out", str(out), "--exporter", "optimum")
    assert made.exit_code == 0, made.output
    assert "(opt)" in made.stdout
    assert "every pass copies its keys and values: 512 bytes per token" in made.stdout
    assert "Warning" not in made.output
    shown = run("inspect", str(out))
    assert "every pass copies its keys and values" in shown.stdout
    assert "optimum, weights fp32" in shown.stdout
    texts = []
    for draft in ("none", "lookup"):
        told = run(
            *("generate", "--bundle", str(out), "--draft", draft, "--max-new-tokens", "12"),
            *("--json", "def f(x):"),
        )
        assert told.exit_code == 0, told.output
        texts.append(json.loads(told.stdout)["token_ids"])
    assert texts[0] == texts[1]


def test_a_model_type_without_a_spec(
    run: Any, one_line: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEDEC_LIBRARY", str(tmp_path / "library"))
    target = tiny_checkpoint(tmp_path / "llama")
    config = json.loads((target / "config.json").read_text("utf-8"))
    (target / "config.json").write_text(json.dumps({**config, "model_type": "bloom"}), "utf-8")
    hint = f"`edgedec export {target} --out DIR --exporter optimum` may convert it"
    for words in (["export", target, "--out", tmp_path / "out"], ["run", target, "Hi"],
                  ["pull", target], ["plan", target]):  # fmt: skip
        line = one_line(run(*words))
        assert "'bloom' has no spec" in line
        assert line.endswith(hint)
