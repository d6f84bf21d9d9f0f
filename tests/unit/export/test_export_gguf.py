"""GGUF exports from end to end on tiny checkpoints."""

import dataclasses
import json
import math

import numpy as np
import pytest
import tiny_qwen3_5
from kinds import in_full
from tiny_gguf import write_tiny_gguf
from tiny_models import (
    CHECKPOINT_VOCAB,
    leftovers,
    random_stored,
    save_checkpoint,
    tiny_checkpoint,
)

from edgedec.bundle import Bundle
from edgedec.errors import ExportError, InputError, ParityError
from edgedec.export import ExportOptions, export_bundle
from edgedec.export.checkpoint import read_json
from edgedec.export.formats import gguf as gguf_format
from edgedec.export.gguf import child
from edgedec.export.gguf.metadata import sampling_keys
from edgedec.export.gguf.quantize import FTYPES
from edgedec.generation.own_sampling import sampling_of
from edgedec.gguf.sampling import KEYS, stated_sampling
from edgedec.loading.sources import Models
from edgedec.models.registry import spec_for

gguf = pytest.importorskip("gguf")
pytest.importorskip("llama_cpp")


@pytest.fixture
def target(tmp_path):
    return tiny_checkpoint(tmp_path / "big")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "made" / "bundle"


def export(target, out, weights="f32", **more):
    options = {"formats": ("gguf",), "weights": weights, "calibration": "none", **more}
    return export_bundle(ExportOptions(target, out, **options))


def tensors(out):
    return {t.name: t for t in gguf.GGUFReader(out / "target" / "model.gguf").tensors}


def keys(out):
    return gguf.GGUFReader(out / "target" / "model.gguf").fields


def test_a_pair(target, tmp_path, out):
    draft = tiny_checkpoint(tmp_path / "small", seed=1, num_hidden_layers=1)
    heard = []
    options = ExportOptions(target, out, draft, formats=("gguf",), weights="q8_0")
    report = export_bundle(options, lambda *step: heard.append(step))
    bundle = Bundle.open(out, verify=True)
    assert bundle.formats == ("gguf",)
    for role in bundle.roles:
        variant = role.variant("gguf")
        assert variant.path.read_bytes()[:4] == b"GGUF"
        assert (variant.weights, variant.kv) == ("q8_0", "f16")
    assert [model.format for model in report.models] == ["gguf", "gguf"]
    assert report.models[0].parity["same_tokens"] == 1.0
    assert all(0 <= done <= total for _, done, total in heard)
    for model in report.models:
        assert model.worst[0].endswith(".weight")
        assert 0.001 < model.worst[1] < 0.02
    names = [path.name for path in (out / "target").iterdir()]
    assert names == ["model.gguf"]
    assert not leftovers(out)
    # The report can be written as JSON.
    told = {**dataclasses.asdict(report), "path": str(report.path)}
    read = json.loads(json.dumps(told, allow_nan=False))
    assert (read["path"], read["size_bytes"]) == (str(out), report.size_bytes)
    model = read["models"][0]
    assert model["files"] == ["target/model.gguf"]
    assert model["errors"] == report.models[0].errors
    assert "blk.0.ffn_up.weight" in model["errors"]
    written = bundle.manifest["roles"]["target"]["variants"]["gguf"]
    assert model["parity"] == written["parity"]


def test_both_formats_in_one_bundle(target, out):
    weights = "onnx=int8,gguf=q8_0"
    report = export(target, out, weights, formats=("onnx", "gguf"))
    bundle = Bundle.open(out, verify=True)
    assert set(bundle.formats) == {"onnx", "gguf"}
    assert bundle.target.variant("onnx").weights == "int8"
    assert bundle.target.variant("gguf").weights == "q8_0"
    written = bundle.manifest["roles"]["target"]["variants"]
    for model in report.models:
        assert written[model.format]["parity"] == model.parity
        assert model.parity["kl_nats"] < 0.02
    assert {"gguf", "onnx"} <= set(bundle.manifest["provenance"]["versions"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"formats": ("onnx", "gguf"), "weights": "q4_0"}, "say for which format"),
        ({"formats": ("tensorrt",)}, r"no format 'tensorrt': .* gguf, onnx"),
        ({"formats": ()}, "no format"),
        ({"formats": ("gguf", "gguf")}, "expected each of them once"),
        ({"weights": "int4"}, "not a weight format of gguf"),
        ({"weights": "onnx=int4"}, "'onnx' is not exported here"),
        ({"weights": "gguf=q4_0,gguf2=q4_0"}, "'gguf2' is not exported here"),
        ({"kv": "int8"}, "choose it with --kv"),
        ({"block_size": 64}, "--block-size 64 is for onnx"),
        ({"formats": ("onnx",), "weights": "int8", "imatrix_text": __file__}, "--imatrix-text"),
    ],
)
def test_options_that_make_no_sense(target, out, changes, words):
    with pytest.raises(InputError, match=words):
        export(target, out, **changes)
    assert not out.exists()
    assert not leftovers(out)


@pytest.mark.parametrize(
    ("generation", "stated"),
    [
        (
            {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "eos_token_id": 0},
            {"temperature": 0.6, "top_k": 20, "top_p": 0.95},
        ),
        ({"do_sample": True}, {"temperature": 1.0}),
        (
            {"do_sample": False, "temperature": 0.6, "repetition_penalty": 1.1},
            {"repetition_penalty": 1.1},
        ),
        ({"temperature": True, "top_p": "0.9", "top_k": -1}, {"top_k": 0}),
        ({"do_sample": False}, {}),
    ],
)
def test_the_sampling_that_a_checkpoint_asks_for(generation, stated):
    assert stated_sampling(sampling_keys(generation)) == stated


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400])
@pytest.mark.parametrize("name", ["temperature", "top_k"])
def test_sampling_that_is_no_number_is_left_out(name: str, value: float) -> None:
    found = sampling_keys({name: value, "top_p": 0.5})
    assert found == {"general.sampling.top_p": 0.5}
    assert stated_sampling({KEYS[name]: value, KEYS["top_p"]: 0.5}) == {"top_p": 0.5}


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                              "original_max_position_embeddings": 2**33}},
            "original_context_length is 8589934592, which a GGUF file cannot hold",
        ),
        ({"rope_theta": 1e14}, None),
    ],
)  # fmt: skip
def test_numbers_that_a_file_cannot_hold(tmp_path, changes, wrong):
    options = ExportOptions(
        tiny_checkpoint(tmp_path / "from", **changes), tmp_path / "out",
        formats=("gguf",), weights="f16", parity=False,
    )  # fmt: skip
    if wrong is None:
        export_bundle(options)
        return
    with pytest.raises(ExportError, match=wrong):
        export_bundle(options)
    assert not (tmp_path / "out").exists()


def test_a_bundle_and_its_file_ask_for_the_same_sampling(target, out):
    generation = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95}
    (target / "generation_config.json").write_text(json.dumps(generation))
    export(target, out, parity=False)
    bundle = Models.find(out).sources["target"][0]
    file = Models.find(out / "target" / "model.gguf").sources["target"][0]
    assert bundle.generation == generation
    assert sampling_of(file.generation) == sampling_of(bundle.generation) is not None


@pytest.mark.parametrize("formats", [("gguf",), ("onnx",)])
def test_a_path_that_is_no_utf8(target, tmp_path, formats):
    out = tmp_path / "bad\udcff" / "bundle"
    with pytest.raises(InputError, match="expected a path in UTF-8"):
        export(target, out, weights=None, formats=formats)
    assert not out.parent.exists()


def test_what_the_file_says(target, out):
    config = read_json(target / "config.json")
    (target / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "<|end|>", "chat_template": "{{ messages }}"})
    )
    export(target, out, parity=False)
    fields = keys(out)
    assert fields["general.architecture"].contents() == "llama"
    assert fields["general.name"].contents() == "big"
    assert fields["general.license"].contents() == "mit"
    assert fields["llama.context_length"].contents() == config["max_position_embeddings"]
    assert fields["llama.attention.head_count_kv"].contents() == config["num_key_value_heads"]
    assert fields["tokenizer.ggml.eos_token_id"].contents() == config["eos_token_id"]
    assert fields["tokenizer.chat_template"].contents() == "{{ messages }}"
    assert fields["tokenizer.ggml.add_bos_token"].contents() is False
    found = tensors(out)
    assert len(fields["tokenizer.ggml.tokens"].contents()) == CHECKPOINT_VOCAB
    assert found["token_embd.weight"].shape.tolist() == [64, CHECKPOINT_VOCAB]
    assert "output.weight" in found
    assert found["blk.0.attn_norm.weight"].tensor_type.name == "F32"


def test_a_tied_head_is_there_once(tmp_path, out):
    target = tiny_checkpoint(tmp_path / "m", tie_word_embeddings=True)
    export(target, out, "f16", parity=False)
    assert "output.weight" not in tensors(out)


@pytest.mark.parametrize(("stored", "kept"), [("float16", "F16"), ("float32", "F32")])
def test_what_is_quantised_was_not_rounded_before(target, out, monkeypatch, stored, kept):
    """The plain file in between has the checkpoint's own precision."""
    config = read_json(target / "config.json")
    arrays = random_stored(spec_for(config))
    save_checkpoint(target, config, {n: a.astype(stored) for n, a in arrays.items()})
    seen = {}
    ask = child.ask

    def look(request, on_wait=lambda: None):
        if request["task"] == "quantiser":
            reader = gguf.GGUFReader(request["source"])
            seen.update({t.name: t.tensor_type.name for t in reader.tensors})
        return ask(request, on_wait)

    monkeypatch.setattr(child, "ask", look)
    export(target, out, "q8_0", parity=False)
    assert seen["blk.0.ffn_up.weight"] == kept
    assert seen["blk.0.ffn_norm.weight"] == "F32"


def test_weights_that_half_precision_cannot_hold(target, out):
    config = read_json(target / "config.json")
    arrays = random_stored(spec_for(config))
    arrays["model.layers.0.mlp.up_proj.weight"][3, 5] = 1e5
    save_checkpoint(target, config, arrays)
    with pytest.raises(ExportError, match=r"blk.0.ffn_up.weight .* use bf16 or f32"):
        export(target, out, "f16", parity=False)
    assert not leftovers(out)
    export(target, out, "bf16", parity=False)
    assert tensors(out)["blk.0.ffn_up.weight"].tensor_type.name == "BF16"


def test_rows_that_fit_no_block(tmp_path, out):
    """What llama.cpp falls back to is reported; where nothing fits it is refused."""
    target = tiny_checkpoint(tmp_path / "m", intermediate_size=256)
    report = export(target, out, "q4_k_m", parity=False)
    assert report.models[0].notes == (
        "rows that fit no block of q4_k_m: matrices fell back, 12 to Q5_0, 2 to Q8_0",
    )
    kinds = [t.tensor_type.name for t in tensors(out).values()]
    assert kinds.count("Q5_0") == 12
    with pytest.raises(ExportError, match=r"q4_k_m needs rows in multiples of 256.* q4_0 or q8_0"):
        export(tiny_checkpoint(tmp_path / "n"), out, "q4_k_m", parity=False, overwrite=True)
    assert Bundle.open(out).target.source == "m"


def test_parity_is_part_of_the_export(target, out):
    """Random weights are chaotic: four bits are far from them, and that is said in figures."""
    with pytest.raises(ParityError, match=r"target in q4_0 diverges .* try --weights q8_0"):
        export(target, out, "q4_0")
    assert not out.exists()
    assert not leftovers(out)


def test_parity_compares_the_file_with_its_source(target, out):
    """Not the other way round: the source's perplexity is the same, whatever was written."""
    figures = {
        weights: export(target, out.with_name(weights), weights).models[0].parity
        for weights in ("f32", "q8_0")
    }
    full, eight = figures["f32"], figures["q8_0"]
    assert full["perplexity_source"] == eight["perplexity_source"]
    assert full["perplexity"] != eight["perplexity"]


@pytest.mark.parametrize("weights", in_full(["q4_0", "q4_k_m", "iq4_xs", "q6_k"], 2))
def test_errors_are_those_of_the_stored_weights(tmp_path, out, weights):
    target = tiny_checkpoint(tmp_path / "m", hidden_size=256, intermediate_size=256)
    report = export(target, out, weights, parity=False)
    stored = tensors(out)["blk.1.ffn_down.weight"]
    source = random_stored(spec_for(read_json(target / "config.json")))
    source = source["model.layers.1.mlp.down_proj.weight"]
    lost = gguf.quants.dequantize(stored.data, stored.tensor_type) - source
    expected = np.linalg.norm(lost) / np.linalg.norm(source)
    found = report.models[0].errors["blk.1.ffn_down.weight"]
    assert found == pytest.approx(expected, rel=1e-4)


def test_the_same_export_twice_is_the_same(target, tmp_path):
    made = []
    for name in ("one", "two"):
        export(target, tmp_path / name, "q8_0", parity=False)
        made.append((tmp_path / name / "target" / "model.gguf").read_bytes())
    assert made[0] == made[1]


def test_a_text_says_what_matters(tmp_path, out, monkeypatch):
    """Weighted, the columns that the text uses come out closer, the others less close."""
    target = tiny_checkpoint(tmp_path / "m", hidden_size=256, intermediate_size=256)
    text = tmp_path / "text.txt"
    text.write_text("def add(left, right):\n    return left + right\n" * 40)
    found = {}
    ask = child.ask

    def look(request, on_wait=lambda: None):
        if request.get("importance"):
            with np.load(request["importance"]) as stored:
                found.update({name: stored[name] for name in stored.files})
        return ask(request, on_wait)

    monkeypatch.setattr(child, "ask", look)
    errors = {}
    for name, imatrix in (("plain", None), ("weighted", text)):
        made = out.with_name(name)
        export(target, made, "q4_k_m", parity=False, imatrix_text=imatrix)
        errors[name] = weighted_error(target, made, found or None)
        if imatrix is None:
            plain = made
    expected = {"output.weight"} | {
        f"blk.{layer}.{stem}.weight"
        for layer in (0, 1)
        for stem in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    }
    assert set(found) == expected
    assert weighted_error(target, out.with_name("weighted"), found) < 0.95 * weighted_error(
        target, plain, found
    )
    text.write_text("short")
    with pytest.raises(InputError, match="expected 128 or more"):
        export(target, out, "q4_k_m", imatrix_text=text)


def test_a_sparse_mixture(tmp_path, out):
    """Experts are one tensor each way, quantised expert by expert, weighed or not."""
    mixture = {"num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True}
    sizes = {"hidden_size": 256, "moe_intermediate_size": 64}
    target = tiny_checkpoint(tmp_path / "m", model_type="qwen3_moe", **mixture, **sizes)
    text = tmp_path / "text.txt"
    text.write_text("def add(left, right):\n    return left + right\n" * 40)
    report = export(target, out, "q8_0")
    assert report.models[0].parity["kl_nats"] < 0.02
    export(target, out.with_name("weighed"), "q5_0", imatrix_text=text, parity=False)
    for made, kind in ((out, "Q8_0"), (out.with_name("weighed"), "Q5_0")):
        experts = tensors(made)["blk.1.ffn_down_exps.weight"]
        assert experts.shape.tolist() == [64, 256, 4]
        assert experts.tensor_type.name == kind
    assert tensors(out)["blk.1.ffn_gate_inp.weight"].tensor_type.name == "F32"


def test_a_delta_rule_with_several_values_of_a_key(tmp_path, out, monkeypatch):
    """Its output's columns are weighed in the order of the file's heads."""
    sizes = {"hidden_size": 256, "linear_key_head_dim": 64, "linear_value_head_dim": 64}
    config = {**tiny_qwen3_5.CONFIG, **sizes, "vocab_size": CHECKPOINT_VOCAB}
    config["layer_types"] = ["linear_attention", "full_attention"] * 2
    target = tiny_checkpoint(tmp_path / "m", **config)
    text = tmp_path / "text.txt"
    text.write_text("def add(left, right):\n    return left + right\n" * 40)
    found = {}
    found["moved"] = importances(target, out.with_name("moved"), text, monkeypatch)
    monkeypatch.setattr("edgedec.export.gguf.importance.columns", lambda *asked: [])
    found["unmoved"] = importances(target, out.with_name("unmoved"), text, monkeypatch)
    heads = {name: each["blk.0.ssm_out.weight"].reshape(4, 64) for name, each in found.items()}
    np.testing.assert_array_equal(heads["moved"], heads["unmoved"][[0, 2, 1, 3]])
    assert heads["moved"].std() > 0
    kinds = {name: each.tensor_type.name for name, each in tensors(out.with_name("moved")).items()}
    assert kinds["blk.0.attn_qkv.weight"] == "Q4_0"
    assert kinds["blk.0.ssm_conv1d.weight"] == kinds["blk.0.ssm_a"] == "F32"


def importances(target, made, text, monkeypatch):
    """What an export in q4_0 weighs columns by."""
    found, ask = {}, child.ask

    def look(request, on_wait=lambda: None):
        if request.get("importance"):
            with np.load(request["importance"]) as stored:
                found.update({name: stored[name] for name in stored.files})
        return ask(request, on_wait)

    with monkeypatch.context() as patched:
        patched.setattr(child, "ask", look)
        export(target, made, "q4_0", imatrix_text=text, parity=False)
    return found


def test_an_importance_matrix_is_made_where_it_changes_something(tmp_path):
    """Of llama.cpp's types one alone has the same blocks with it, and so needs no text."""
    source = write_tiny_gguf(tmp_path / "plain.gguf", hidden=256, ffn=256, layers=1)
    rng, weighing = np.random.default_rng(0), tmp_path / "importance.npz"
    matrices = [one for one in gguf.GGUFReader(source).tensors if len(one.shape) > 1]
    np.savez(weighing, **{one.name: rng.random(int(one.shape[0])) ** 8 + 1e-3 for one in matrices})
    unchanged = set()
    for weights, (ftype, _) in FTYPES.items():
        made = []
        for importance in (None, str(weighing)):
            out = tmp_path / f"{weights}-{len(made)}.gguf"
            child.ask(
                {"task": "quantiser", "source": str(source), "out": str(out), "ftype": ftype,
                 "threads": 1, "buffer_bytes": 1 << 20, "importance": importance}
            )  # fmt: skip
            made.append([bytes(one.data) for one in gguf.GGUFReader(out).tensors])
        if made[0] == made[1]:
            unchanged.add(weights)
    assert unchanged == FTYPES.keys() - {*gguf_format.CALIBRATED} == {"q8_0"}


def weighted_error(target, made, weights):
    """Squared error of one matrix, each column weighed by what the text says of it."""
    if weights is None:
        return None
    name = "blk.0.ffn_down.weight"
    stored = tensors(made)[name]
    values = gguf.quants.dequantize(stored.data, stored.tensor_type)
    spec = spec_for(read_json(target / "config.json"))
    source = random_stored(spec)["model.layers.0.mlp.down_proj.weight"]
    return float((np.square(values - source) * weights[name]).sum())


def test_a_smaller_context(target, out):
    export(target, out, max_context=64, parity=False)
    assert keys(out)["llama.context_length"].contents() == 64
    assert Bundle.open(out).target.dims["max_context"] == 64
