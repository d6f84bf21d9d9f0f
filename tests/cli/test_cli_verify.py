"""``edgedec verify``, with decoders that do not keep their promise beside it."""

import json
from pathlib import Path

import pytest
from broken_rules import accepts_one_more

SHORT = ["--max-new-tokens", "24", "--json"]


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "in.jsonl"
    texts = ["def add(", "for index in", "The quick brown", "hello"]
    file.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts), "utf-8")
    return file


def test_the_promise_holds(run, bundle, prompts) -> None:
    ask = ["verify", bundle, "--prompts", prompts, *SHORT, "--drafter", "model"]
    result = run(*ask, "--draft-length", 3, "--batch-invariant")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["holds"] is True
    assert (found["texts"], found["identical"], found["near_ties"]) == (8, 8, 0)
    assert found["tokens"] == 8 * 24
    assert 0 < found["accepted_tokens"] <= found["drafted_tokens"]
    assert found["plan"]["drafter"] == "model"
    assert found["plan"]["batch_invariant"] is True


def test_a_lossy_rule_does_not_hold(run, bundle, prompts) -> None:
    ask = ["verify", bundle, "--prompts", prompts, *SHORT, "--drafter", "model"]
    result = run(*ask, "--draft-length", 4, "--temperature", 1.5, "--accept", "bild")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["holds"] is False
    assert any(not divergence["near_tie"] for divergence in found["divergences"])


def test_a_broken_engine_does_not_hold(run, bundle, prompts, monkeypatch) -> None:
    accepts_one_more(monkeypatch)
    ask = ["verify", bundle, "--prompts", prompts, "--max-new-tokens", 24, "--drafter", "model"]
    result = run(*ask, "--draft-length", 3)
    assert result.exit_code == 1
    assert "DOES NOT HOLD" in result.stdout
    assert "not a near-tie" in result.stdout


def test_a_damaged_weight_file_is_found(run, bundle, prompts, one_line, tmp_path) -> None:
    import shutil

    copy = tmp_path / "bundle"
    shutil.copytree(bundle, copy)
    file = copy / "target" / "model.onnx.data"
    data = bytearray(file.read_bytes())
    data[1000] ^= 1
    file.write_bytes(data)
    assert "was altered" in one_line(run("verify", copy, "--prompts", prompts))
    assert "was altered" in one_line(run("inspect", copy))
    # Large files are not hashed at each start: this is what `inspect` and `verify` are for.


def test_nothing_drafted_shows_nothing(run, bundle, prompts) -> None:
    ask = ["verify", bundle, "--prompts", prompts, "--max-new-tokens", 4]
    result = run(*ask, "--draft-length", 0)
    assert result.exit_code == 1
    assert "nothing was drafted" in result.stderr
    assert "INCONCLUSIVE" in result.stdout
    assert "DOES NOT HOLD" not in result.stdout


def test_heads_of_held_out_functions_by_default(run, bundle) -> None:
    result = run("verify", bundle, "--count", 2, *SHORT, "--draft-length", 2)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["texts"] == 4
