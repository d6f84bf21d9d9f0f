"""Exports from end to end on tiny checkpoints, and what ends them early."""

import json
import shutil
import sys

import graph_runner
import numpy as np
import onnxruntime
import pytest
import tiny_tokenizers
from kinds import in_full
from tiny_models import (
    CHECKPOINT_VOCAB,
    leftovers,
    needs_int8_cache,
    random_tensors,
    save_checkpoint,
    tiny_checkpoint,
)

from edgedec.bundle import Bundle
from edgedec.bundle.manifest import MANIFEST
from edgedec.errors import (
    CheckpointError,
    InputError,
    ParityError,
    RuntimeUnavailable,
)
from edgedec.export import ExportOptions, export_bundle
from edgedec.export.checkpoint import Checkpoint, read_json
from edgedec.export.reference import Reference
from edgedec.models.registry import spec_for


@pytest.fixture
def target(tmp_path):
    return tiny_checkpoint(tmp_path / "big")


@pytest.fixture
def draft(tmp_path):
    return tiny_checkpoint(tmp_path / "small", seed=1, num_hidden_layers=1)


@pytest.fixture
def out(tmp_path):
    return tmp_path / "made" / "bundle"


def test_a_pair(target, draft, out):
    heard = []
    report = export_bundle(
        ExportOptions(target, out, draft, weights="int8"), lambda *step: heard.append(step)
    )
    bundle = Bundle.open(out, verify=True)
    assert [role.source for role in bundle.roles] == ["big", "small"]
    assert bundle.target.dims["vocab_size"] == CHECKPOINT_VOCAB
    assert bundle.target.licence == "mit"
    assert bundle.draft.dims["layers"] == 1
    assert report.size_bytes == bundle.size_bytes
    assert [model.role for model in report.models] == ["target", "draft"]
    assert report.models[0].worst[1] < 0.02
    assert report.models[0].parity["tokens"] > 100
    assert (
        bundle.manifest["roles"]["target"]["variants"]["onnx"]["parity"] == report.models[0].parity
    )
    stages = list(dict.fromkeys(stage for stage, _, _ in heard))
    assert stages == ["target", "target parity", "draft", "draft parity", "hashes"]
    assert all(0 <= done <= total for _, done, total in heard)
    assert not leftovers(out)


@pytest.mark.parametrize("weights", ["fp32", "fp16", "int8", "int4"])
def test_the_graph_in_the_bundle(target, out, weights):
    export_bundle(ExportOptions(target, out, weights=weights, parity=False, calibration="none"))
    opened = Checkpoint.open(target)
    tokens = [5, 300, 17, 200, 4, 4]
    expected = Reference(opened.spec, opened.tensors).logits(tokens)
    got = graph_runner.logits(out / "target", opened.spec, [tokens])
    used = Bundle.open(out).target.dims["vocab_used"]
    spread = expected[:, :used].std()
    tolerance = {"fp32": 1e-4, "fp16": 0.05, "int8": 0.5, "int4": 8}[weights]
    assert np.abs(got - expected)[:, :used].max() < tolerance * spread
    # Columns that are no token never win.
    assert used < CHECKPOINT_VOCAB
    assert np.isneginf(got[:, used:]).all()


@needs_int8_cache
def test_keys_and_values_in_int8(target, out):
    report = export_bundle(ExportOptions(target, out, weights="int8", kv="int8"))
    assert Bundle.open(out).target.variant("onnx").kv == "int8"
    assert report.models[0].parity["kl_nats"] < 0.02


def test_families_that_pad_differently_get_the_same_columns(target, tmp_path, out):
    wider = {"vocab_size": CHECKPOINT_VOCAB + 64, "tie_word_embeddings": True}
    draft = tiny_checkpoint(tmp_path / "small", **wider)
    export_bundle(ExportOptions(target, out, draft, weights="fp32"))
    dims = [role.dims for role in Bundle.open(out).roles]
    assert {d["vocab_size"] for d in dims} == {CHECKPOINT_VOCAB + 64}
    assert len({d["vocab_used"] for d in dims}) == 1


def test_the_same_export_twice_is_the_same(target, tmp_path):
    made = []
    for name in ("one", "two"):
        export_bundle(ExportOptions(target, tmp_path / name, parity=False))
        made.append(Bundle.open(tmp_path / name).manifest)
    assert made[0] == made[1]


def test_parity_is_part_of_the_export(target, out):
    """Random weights are chaotic: int4 is far from them, and that is said in figures."""
    with pytest.raises(ParityError, match=r"int4 diverges .* agreement 0\.\d+ \(at least"):
        export_bundle(ExportOptions(target, out, weights="int4", calibration="none"))
    assert not out.exists()
    assert not leftovers(out)


def test_a_text_of_ones_own(target, out, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("def add(left, right):\n    return left + right\n" * 4)
    report = export_bundle(ExportOptions(target, out, weights="int8", parity_text=text))
    assert 20 < report.models[0].parity["tokens"] < 150
    text.write_text("short")
    with pytest.raises(InputError, match="expected 32 or more"):
        export_bundle(ExportOptions(target, out, parity_text=text, overwrite=True))
    text.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="UTF-8"):
        export_bundle(ExportOptions(target, out, parity_text=text, overwrite=True))
    assert Bundle.open(out, verify=True)


def test_another_tokenizer_is_kept_apart(target, tmp_path, out):
    """A draft may read text otherwise; then each model has its own files and columns."""
    draft = tiny_checkpoint(tmp_path / "small", vocab_size=410)
    tiny_tokenizers.save(tiny_tokenizers.llama(), draft)
    report = export_bundle(ExportOptions(target, out, draft, weights="int8"))
    assert report.models[0].notes == ()
    assert "another tokenizer, which lowers acceptance: " in report.models[1].notes[0]
    bundle = Bundle.open(out, verify=True)
    assert bundle.target.tokenizer.name == "tokenizer"
    assert bundle.draft.tokenizer.name == "draft-tokenizer"
    assert bundle.target.tokenizer_hash != bundle.draft.tokenizer_hash
    kept = (bundle.draft.tokenizer / "tokenizer.json").read_bytes()
    assert kept == (draft / "tokenizer.json").read_bytes()
    assert [role.dims["vocab_size"] for role in bundle.roles] == [CHECKPOINT_VOCAB, 410]


def test_the_same_tokenizer_is_there_once(target, draft, out):
    export_bundle(ExportOptions(target, out, draft, weights="int8", parity=False))
    bundle = Bundle.open(out)
    assert bundle.target.tokenizer == bundle.draft.tokenizer
    assert not (out / "draft-tokenizer").exists()


def test_more_ids_than_rows(tmp_path, out):
    with pytest.raises(CheckpointError, match="the model only 96"):
        export_bundle(ExportOptions(tiny_checkpoint(tmp_path / "m", vocab_size=96), out))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"weights": "int3"}, "not a weight format of onnx"),
        ({"block_size": 31}, "--block-size 31: expected one of 16, 32, 64"),
        ({"block_size": "32"}, "expected a whole number"),
        ({"max_context": 0}, "expected 1 to"),
        ({"max_context": 1 << 40}, "expected 1 to"),
        ({"kv": "int4"}, "kv is 'int4': expected one of fp32, int8"),
        ({"layout": "gnai"}, "layout is 'gnai': expected one of bundle, genai"),
        ({"formats": ("coreml",), "form": "slcie"}, "expected one of slice, blend"),
        ({"max_kl": 0}, "max_kl is 0: expected 0.001 or more"),
        ({"max_kl": float("nan")}, "max_kl is nan"),
        ({"max_kl": "0.1"}, "max_kl is '0.1': expected a number"),
        ({"weights": "onnx=int4,onnx=fp32"}, "onnx occurs twice"),
    ],
)
def test_options_that_make_no_sense(target, out, changes, words):
    with pytest.raises(InputError, match=words):
        export_bundle(ExportOptions(target, out, parity=False, **changes))
    assert not leftovers(out)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"formats": ("gguf", "coreml"), "kv": "int8"}, "--kv int8 is for onnx"),
        ({"formats": ("coreml",), "kv": "int8", "weights": "fp16"}, "--kv int8 is for onnx"),
        ({"draft_weights": "int8"}, "--draft-weights int8 is for a draft: add --draft"),
        ({"weights": "fp16", "block_size": 64}, "--block-size 64 is for weights in int4"),
        ({"formats": ("coreml",), "weights": "int8", "block_size": 64}, "--block-size 64 is for"),
        ({"weights": "int8", "max_kl": 0.1}, "--max-kl 0.1 is for --weights auto"),
        ({"weights": "int8", "parity_text": "sample"}, "--parity-text is for the comparison"),
    ],
)
def test_options_that_nothing_reads_are_refused(target, out, tmp_path, changes, words):
    if "parity_text" in changes:
        changes = {"parity_text": tmp_path / "sample.txt"}
        changes["parity_text"].write_text("some text\n" * 30)
    with pytest.raises(InputError, match=words):
        export_bundle(ExportOptions(target, out, parity=False, **changes))
    assert not leftovers(out)


def test_options_that_one_of_several_models_reads_hold(target, draft, out):
    """The control: a draft in int4 has blocks, and its divergence is chosen."""
    more = {"weights": "fp16", "draft_weights": "auto", "block_size": 64, "max_kl": 9.0}
    made = ExportOptions(target, out, draft, parity=False, calibration="none", **more)
    export_bundle(made)
    assert Bundle.open(out).draft.variant("onnx").weights.startswith("int4")


def test_a_sample_that_is_too_short_matters_only_where_it_is_read(target, out):
    with pytest.raises(InputError, match="gives 16 tokens to compare on"):
        export_bundle(ExportOptions(target, out, weights="fp32", max_context=16))
    export_bundle(ExportOptions(target, out, weights="fp32", max_context=16, parity=False))
    assert Bundle.open(out).target.dims["max_context"] == 16


def test_nan_weights_leave_nothing(target, out):
    config = read_json(target / "config.json")
    tensors = random_tensors(spec_for(config))
    tensors["model.norm.weight"][3] = np.nan
    save_checkpoint(target, config, tensors)
    with pytest.raises(CheckpointError, match="NaN"):
        export_bundle(ExportOptions(target, out, parity=False))
    assert not out.exists()
    assert not leftovers(out)


def test_an_onnxruntime_too_old_for_int8_caches(target, out, monkeypatch):
    monkeypatch.setattr(onnxruntime, "__version__", "1.26.0")
    with pytest.raises(
        RuntimeUnavailable, match=r"needs onnxruntime 1\.27 or newer, this is 1\.26"
    ):
        export_bundle(ExportOptions(target, out, kv="int8"))
    assert not leftovers(out)


def test_without_the_extra_it_says_what_to_install(target, out, monkeypatch, forget):
    forget(lambda name: name.startswith("edgedec.export."))
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(RuntimeUnavailable, match=r"needs onnx, which .*\[export\]"):
        export_bundle(ExportOptions(target, out))


def test_a_draft_that_is_the_target_is_warned_of(target, draft, out, tmp_path, caplog):
    (tmp_path / "again").symlink_to(target)
    for given, warned in ((target, True), (tmp_path / "again", True), (draft, False)):
        caplog.clear()
        options = ExportOptions(target, out, given, weights="fp32", parity=False, overwrite=True)
        export_bundle(options)
        assert ("the draft is the target itself" in caplog.text) is warned


def test_a_draft_with_a_foreign_tokenizer_is_warned_of_before_work_begins(
    target, draft, out, tmp_path, caplog, monkeypatch
):
    from edgedec.export import bundling

    class Began(Exception):
        pass

    def begin(*_, **__):
        raise Began

    foreign = tmp_path / "foreign"
    shutil.copytree(draft, foreign)
    file = foreign / "tokenizer.json"
    file.write_text(file.read_text("utf-8").replace('"!"', '"¿"', 1), "utf-8")
    monkeypatch.setattr(bundling, "appearing", begin)
    for given, warned in ((foreign, True), (draft, False)):
        caplog.clear()
        with pytest.raises(Began):
            export_bundle(ExportOptions(target, out, given, weights="fp32", parity=False))
        assert ("another tokenizer, which lowers acceptance" in caplog.text) is warned


def test_the_checkpoint_is_left_as_it_was(target, out):
    before = {path.name: path.read_bytes() for path in target.iterdir()}
    export_bundle(ExportOptions(target, out, weights="int8"))
    assert {path.name: path.read_bytes() for path in target.iterdir()} == before


def test_the_manifest_names_no_machine(target, out, tmp_path):
    export_bundle(ExportOptions(target, out, weights="int8", parity=False))
    text = (out / MANIFEST).read_text()
    assert str(tmp_path) not in text
    assert json.loads(text)["created_by"].startswith("edgedec ")
    moved = tmp_path / "moved"
    shutil.move(out, moved)
    Bundle.open(moved, verify=True)


def test_a_manifest_is_json_whatever_the_checkpoint_states(target, out, caplog):
    """Python reads NaN and 1e999 as numbers; other readers of a manifest do not."""
    stated = '{"temperature": NaN, "top_p": 1e999, "top_k": 20, "do_sample": true}'
    (target / "generation_config.json").write_text(stated)
    export_bundle(ExportOptions(target, out, weights="fp32", parity=False))

    def refuse(name):
        raise ValueError(name)

    made = json.loads((out / MANIFEST).read_text(), parse_constant=refuse)
    assert made["generation"] == {"top_k": 20, "do_sample": True}
    assert "the model's own temperature is nan: left out" in caplog.text
    assert "the model's own top_p is inf: left out" in caplog.text


@pytest.mark.parametrize(
    ("stated", "asked", "context"),
    in_full(
        [
            (4 << 20, None, 4 << 20),
            (4 << 20, 1 << 19, 1 << 19),
            (1 << 26, None, 1 << 24),
            (1 << 20, None, 1 << 20),
            (2048, None, 2048),
            (1 << 18, 1 << 18, 1 << 18),
        ],
        3,
    ),
)
def test_what_positions_take_does_not_grow_with_the_context(tmp_path, stated, asked, context):
    source = tiny_checkpoint(tmp_path / "long", max_position_embeddings=stated)
    out = tmp_path / "bundle"
    report = export_bundle(
        ExportOptions(source, out, weights="fp32", parity=False, max_context=asked)
    )
    assert Bundle.open(out).target.dims["max_context"] == context
    notes = [note for note in report.models[0].notes if "--max-context" in note]
    assert len(notes) == (asked is None and context < stated)
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    # Whole tables of 4,194,304 positions would take 256 MB.
    assert size < 24 << 20


def test_a_context_beyond_every_graph_is_refused(tmp_path):
    source = tiny_checkpoint(tmp_path / "long", max_position_embeddings=1 << 26)
    with pytest.raises(InputError, match="at most 16777216 positions"):
        export_bundle(ExportOptions(source, tmp_path / "bundle", max_context=1 << 25))
    assert not (tmp_path / "bundle").exists()


@pytest.mark.full
def test_a_cache_of_fixed_size_is_short_unless_it_is_asked_for(tmp_path):
    source = tiny_checkpoint(tmp_path / "long", max_position_embeddings=1 << 20)
    report = export_bundle(
        ExportOptions(source, tmp_path / "out", formats=("coreml",), weights="fp16", parity=False)
    )
    assert any("of 1048576 tokens: --max-context" in note for note in report.models[0].notes)
    assert Bundle.open(tmp_path / "out").target.dims["max_context"] < 1 << 19
