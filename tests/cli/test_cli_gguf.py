"""GGUF files on the command line: without an export, without a bundle."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_bundles
import tiny_tokenizers
from tiny_checkpoints import noisy_checkpoint

from edgedec.export import ExportOptions

pytest.importorskip("llama_cpp", reason="needs llama-cpp-python (make gguf)")

PROMPT = "def add(left, right):"
FULL = ("--kv", "f32")  # what makes llama.cpp's numbers those of the fp32 graph
Run = Callable[..., Any]


def checkpoint(folder: Path, tokenizer: Any, **more: Any) -> Path:
    entries = {"eos_token": "<|end|>"}
    return noisy_checkpoint(folder, tokenizer=tokenizer, context=512, entries=entries, **more)


def exported(folder: Path, source: Path) -> Path:
    options = ExportOptions(source, folder, formats=("gguf",), weights="f32", parity=False)
    (file,) = (tiny_bundles.kept(options) / "target").glob("*.gguf")
    return file


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A target, its noisy draft, a draft of another vocabulary, and the target in ONNX."""
    folder = tmp_path_factory.mktemp("gguf")
    byte_level = tiny_tokenizers.byte_level()
    target = checkpoint(folder / "target", byte_level)
    draft = checkpoint(folder / "draft", byte_level, noise=0.01)
    foreign = checkpoint(folder / "foreign", tiny_tokenizers.llama(), num_hidden_layers=1)
    return {
        "target": exported(folder / "a", target),
        "draft": exported(folder / "b", draft),
        "foreign": exported(folder / "c", foreign),
        "onnx": tiny_bundles.exact(target),
    }


@pytest.fixture
def generate(run: Run, files: dict[str, Path]) -> Callable[..., Any]:
    def call(target: str, *args: object) -> Any:
        ask = ["generate", "--target", files[target], "--json", "--max-new-tokens", 40, PROMPT]
        result = run(*ask, *(files.get(str(arg), arg) for arg in args))
        assert result.exit_code == 0, (result.output, result.exception)
        return json.loads(result.stdout)

    return call


SAMPLED = ("--temperature", 0.9, "--seed", 5)


@pytest.mark.parametrize("sampling", [(), SAMPLED], ids=["greedy", "sampled"])
def test_a_pair_of_files_writes_what_the_graph_writes(
    generate: Callable[..., Any], sampling: tuple[object, ...]
) -> None:
    plain = generate("onnx", *sampling, "--drafter", "none")
    for drafter, *length in (("auto",), ("model",), ("tree", "--draft-length", 3)):
        ask = ("--draft", "draft", "--drafter", drafter, *length)
        found = generate("target", *FULL, *sampling, *ask)
        assert found["token_ids"] == plain["token_ids"], drafter
        assert found["text"] == plain["text"]
        assert found["plan"]["format"] == "gguf"
    assert found["drafted_tokens"] > 0


def test_a_lone_file_drafts_from_the_text(generate: Callable[..., Any]) -> None:
    plain = generate("target", *FULL, "--drafter", "none")
    found = generate("target", *FULL)
    assert found["plan"]["drafter"] == "text"
    assert found["token_ids"] == plain["token_ids"]


@pytest.mark.parametrize("drafter", ["auto", "model", "strings"])
def test_a_draft_of_another_vocabulary(generate: Callable[..., Any], drafter: str) -> None:
    for sampling in ((), SAMPLED):
        plain = generate("target", *FULL, *sampling, "--drafter", "none")
        ask = (*FULL, *sampling, "--draft", "foreign", "--drafter", drafter)
        found = generate("target", *ask, "--draft-length", 3)
        assert found["token_ids"] == plain["token_ids"]
        assert "shared" in found["plan"]["vocabulary"]
        assert found["drafted_tokens"] > 0 or drafter == "auto"


def test_inspect(run: Run, files: dict[str, Path]) -> None:
    shown = run("inspect", files["target"]).stdout
    assert "llama" in shown
    assert "byte-level" in shown or "gpt2" in shown
    found = json.loads(run("inspect", files["target"], "--json").stdout)
    assert found["architecture"] == "llama"


def test_llamacpp_is_silent_unless_asked(start: Callable[..., Any], files: dict[str, Path]) -> None:
    ask = ["generate", "--target", files["target"], "--max-new-tokens", 2, "a"]
    _, stderr = start(*ask).communicate(timeout=120)
    assert len(stderr.splitlines()) == 2, stderr  # the figures, and that the text was cut
    _, detailed = start(*ask, "-v").communicate(timeout=120)
    assert len(detailed.splitlines()) == 2, detailed
    _, loud = start(*ask, "-vv").communicate(timeout=120)
    assert b"llama" in loud


def test_what_is_refused(
    run: Run, one_line: Callable[..., str], files: dict[str, Path], tmp_path: Path
) -> None:
    target = files["target"]
    half = tmp_path / "half.gguf"
    half.write_bytes(target.read_bytes()[: target.stat().st_size // 2])
    other = tmp_path / "text.gguf"
    other.write_text("no model")
    for bad, words in ((half, "missing"), (other, "GGUF"), (tmp_path / "none.gguf", "no such")):
        assert words.lower() in one_line(run("generate", "--target", bad, "a")).lower()
    wide = exported(
        tmp_path / "wide", checkpoint(tmp_path / "w", tiny_tokenizers.byte_level(), hidden_size=128)
    )
    line = one_line(run("generate", "--target", target, "--draft", wide, "a"))
    assert "larger than the target" in line
    line = one_line(run("generate", "--target", target, "--draft", tmp_path / "no.gguf", "a"))
    assert "no such file" in line
    line = one_line(run("generate", "--bundle", files["onnx"], "--kv", "f16", "a"))
    assert "not a choice of the runtime onnx" in line


def test_a_choice_that_would_be_ignored_is_refused(
    run: Run, one_line: Callable[..., str], files: dict[str, Path]
) -> None:
    ask = ("generate", "a", "--max-new-tokens", 2, "--target", files["target"])
    line = one_line(run(*ask, "--format", "coreml"))
    assert "is a GGUF file, --format coreml is for bundles: leave it out" in line
    line = one_line(run(*ask, "--draft", files["draft"], "--drafter", "lookup"))
    assert "the drafter lookup takes no draft model: leave --draft MODEL out" in line
    line = one_line(run(*ask, "--drafter", "none", "--draft-gpu-layers", 0))
    assert "leave --draft-gpu-layers out" in line


def test_a_draft_need_not_be_there_in_the_format_of_the_target(
    run: Run,
    one_line: Callable[..., str],
    generate: Callable[..., Any],
    files: dict[str, Path],
) -> None:
    plain = generate("onnx", "--drafter", "none")
    found = generate("onnx", "--format=onnx", "--draft", "draft", "--draft-length", 3)
    assert found["token_ids"] == plain["token_ids"]
    assert found["drafted_tokens"] > 0
    line = one_line(
        run("generate", "a", "--target", files["target"], "--format=gguf", "--draft", files["onnx"])
    )
    assert "larger than the target" in line  # it was opened, in its own format


def test_a_batch_goes_on_with_the_same_keys_and_values_only(
    run: Run, one_line: Callable[..., str], files: dict[str, Path], tmp_path: Path
) -> None:
    prompts, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    prompts.write_text('{"prompt": "a"}\n')
    ask = ("generate", "--target", files["target"], "--prompts", prompts, "--out", out)
    few = ("--max-new-tokens", 2)
    assert run(*ask, *few, "--kv", "f32").exit_code == 0
    assert run(*ask, *few, "--kv", "f32").exit_code == 0
    assert "written with other options" in one_line(run(*ask, *few, "--kv", "f16"))


def test_bench_of_two_files(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    ask = ["bench", files["target"], "--count", 1, "--max-new-tokens", 8, "--out", tmp_path]
    alone = json.loads(run(*ask, "--json").stdout)
    result = run(*ask, "--draft", files["draft"], *FULL, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert set(found) - set(alone) == {"model", "tree"}
    assert all(row["identical"] == 1 for row in found.values())


def test_demo_of_a_file(run: Run, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the runtime cannot make rows independent of their pass."""
    from edgedec.errors import RuntimeUnavailable
    from edgedec.runtimes.llamacpp import adapter as llamacpp

    load = llamacpp.load
    asked = []

    def without(path: Path, options: Any) -> Any:
        asked.append(options.batch_invariant)
        if options.batch_invariant:
            raise RuntimeUnavailable("no batch invariance")
        return load(path, options)

    monkeypatch.setattr(llamacpp, "load", without)
    ask = ["demo", "--bundle", files["target"], "--count", 1, "--max-new-tokens", 8]
    result = run(*ask, "--json")
    assert result.exit_code == 0, result.output
    assert asked[0] is True
    assert json.loads(result.stdout)[0]["identical"] is True
    assert run(*ask, "--batch-invariant").exit_code == 2


@pytest.mark.parametrize("drafter", ["tree", "recycle", "adaptive"])
def test_a_draft_of_more_nodes_than_the_target_takes_branches(
    generate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, drafter: str
) -> None:
    # As few rows of logits as a large vocabulary leaves; the flatter the draft, the wider its tree.
    monkeypatch.setattr("edgedec.runtimes.llamacpp.context._LEAST_ROWS", 5)
    monkeypatch.setattr("edgedec.runtimes.llamacpp.context._MOST_ROWS", 5)
    sampling = ("--temperature", 3, "--seed", 5)
    plain = generate("target", *FULL, *sampling, "--drafter", "none")
    drafts = ("--drafter", drafter) if drafter == "recycle" else ("--draft", "draft")
    more = () if drafter == "recycle" else ("--drafter", drafter)
    found = generate("target", *FULL, *sampling, *drafts, *more, "--draft-length", 40)
    assert found["text"] == plain["text"]
    assert found["drafted_tokens"] > 0


def test_a_prompt_longer_than_the_context_is_refused_before_a_file_is_loaded(
    run: Run, one_line: Callable[..., str], files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("edgedec.runtimes.llamacpp.model.LlamaModel.load")
    for limit, more in ((512, ()), (20, ("--max-context", 20))):
        line = one_line(run("generate", "--target", files["target"], "b" * 600, *more))
        assert f"the context holds {limit}: shorten it" in line
    line = one_line(run("generate", "--target", files["target"], "b", "--max-context", 513))
    assert "--max-context 513: expected 1 to 512, the longest context of the target" in line
