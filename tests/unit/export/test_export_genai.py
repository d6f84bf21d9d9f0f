"""A folder for onnxruntime-genai: opened by that runtime, and by our reader of such folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from kinds import in_full
from tiny_lfm2 import CONFIG
from tiny_models import CHECKPOINT_VOCAB, tiny_checkpoint
from tiny_variants import VARIANTS

from edgedec import Pipeline
from edgedec.errors import InputError, UnsupportedArchitecture
from edgedec.export import ExportOptions, ExportReport, export_bundle
from edgedec.export.formats import onnx as onnx_format
from edgedec.text.tokenizer import Tokenizer

PROMPT = "def __lt__(self, other):"


def export(source: Path, out: Path, layout: str = "genai", **options: Any) -> ExportReport:
    given = {"weights": "fp32", "parity": False, "calibration": "none", **options}
    return export_bundle(ExportOptions(source, out, layout=layout, **given))


def tokens(model: Path, count: int = 32, **options: Any) -> list[int]:
    with Pipeline.open(model, threads=1, plan="none", **options) as pipeline:
        done = pipeline.generate(PROMPT, max_new_tokens=count, temperature=0, ignore_eos=True)
    return list(done.token_ids)


def of_genai(folder: Path, count: int = 32, *, tokenizer: bool = False) -> list[int]:
    reason = "onnxruntime-genai is not installed: pip install onnxruntime-genai"
    program = pytest.importorskip("onnxruntime_genai", reason=reason)
    model = program.Model(str(folder))
    params = program.GeneratorParams(model)
    params.set_search_options(max_length=128, do_sample=False)
    generator = program.Generator(model, params)
    ids = Tokenizer.load(folder).encode(PROMPT)
    if tokenizer:
        assert program.Tokenizer(model).encode(PROMPT).tolist() == ids
    generator.append_tokens(ids)
    found = list[int]()
    while not generator.is_done() and len(found) < count:
        generator.generate_next_token()
        found.append(int(generator.get_next_tokens()[0]))
    return found


@pytest.fixture(scope="module", params=["fp32", "int4"])
def both(
    request: pytest.FixtureRequest, repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """The demo's target as a bundle, and as a folder of the other kind."""
    source, root = repository / "models" / "demo" / "target", tmp_path_factory.mktemp("layouts")
    for layout in ("bundle", "genai"):
        export(source, root / layout, layout, weights=request.param)
    return root / "bundle", root / "genai"


@pytest.mark.full  # below are tiny models
def test_onnxruntime_genai_writes_what_the_bundle_writes(both: tuple[Path, Path]) -> None:
    bundle, folder = both
    assert {file.name for file in folder.iterdir()} == {
        "genai_config.json", "model.onnx", "model.onnx.data", "tokenizer.json",
        "tokenizer_config.json",
    }  # fmt: skip
    expected = tokens(bundle, drafter="none")
    assert tokens(folder, drafter="lookup") == expected
    assert of_genai(folder, tokenizer=True) == expected


@pytest.mark.parametrize(
    "name", in_full(["window", "gpt2", "gemma3", "phi3", "smollm3", "qwen3_moe"], 2)
)
def test_what_families_need_is_still_there(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows, which need the bias; positions in tables or learned; rows of attention's own."""
    monkeypatch.setattr(onnx_format, "_LEAST_PADDED", 0)
    if name == "window":
        monkeypatch.setattr(onnx_format, "_ROUNDED", ("fp32",))
    source = tiny_checkpoint(tmp_path / "source", **VARIANTS[name])
    for layout in ("bundle", "genai"):
        export(source, tmp_path / layout, layout)
    expected = tokens(tmp_path / "bundle", drafter="none")
    assert tokens(tmp_path / "genai", drafter="lookup") == expected
    assert of_genai(tmp_path / "genai") == expected


def test_a_window_that_is_left_out_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the texts of this test depend on what the graph is given."""
    source = tiny_checkpoint(tmp_path / "source", **VARIANTS["window"])
    export(source, tmp_path / "right")
    right, write = tokens(tmp_path / "right"), onnx.save

    def unwindowed(model: onnx.ModelProto, file: Path) -> None:
        for node in model.graph.node:
            if node.op_type == "GroupQueryAttention":
                node.input[:] = ["" if "bias" in name else name for name in node.input]
        write(model, file)

    monkeypatch.setattr(onnx, "save", unwindowed)
    export(source, tmp_path / "wrong")
    assert tokens(tmp_path / "wrong") != right


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"formats": ("gguf",)}, "writes onnx, not gguf: leave --format"),
        ({"draft": Path("x")}, "leave --draft out"),
        ({"head": Path("x")}, "leave --head out"),
        ({"kv": "int8"}, "leave --kv int8 out"),
        ({"batch_invariant": True}, "leave --batch-invariant out"),
    ],
)
def test_what_it_cannot_hold_is_refused(
    options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=words):
        export(tmp_path / "none", tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


def test_what_else_layers_keep_is_refused(repository: Path, tmp_path: Path) -> None:
    """States of convolutions; keys and values that layers share, or of several sizes."""
    lfm2 = {name: value for name, value in CONFIG.items() if name != "vocab_size"}
    case = json.loads((repository / "tests/golden/gemma4_text.json").read_text("utf-8"))
    sizes = dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), CHECKPOINT_VOCAB)
    for name, config in (("lfm2", lfm2), ("gemma4", case["config"] | sizes)):
        source = tiny_checkpoint(tmp_path / name, **config)
        with pytest.raises(UnsupportedArchitecture, match="the format genai"):
            export(source, tmp_path / "out")
        assert not (tmp_path / "out").exists()
