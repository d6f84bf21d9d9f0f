"""A GGUF file as the source of an export: its tokenizer, its ends, its blocks."""

import gc
import json
import math

import gguf
import gguf_files
import numpy as np
import onnx
import pytest
from gguf_files import Raw
from tiny_gguf import VOCAB, write_tiny_gguf
from tiny_llama import GOOD, TENSORS
from tiny_models import tiny_checkpoint

from edgedec.errors import EdgedecError, UnsupportedArchitecture
from edgedec.export import ExportOptions, export_bundle
from edgedec.export.gguf.file import ModelFile
from edgedec.export.quantize import PlainRounding, dequantize
from edgedec.export.source import open_source
from edgedec.export.tensors import CountedTensors, PaddedTensors, read
from edgedec.gguf import GgufHeader, load_tokenizer
from edgedec.text.tokenizer import Tokenizer

Q = "model.layers.1.self_attn.q_proj.weight"
DOWN = "model.layers.0.mlp.down_proj.weight"
EMBED = "model.embed_tokens.weight"


@pytest.fixture(scope="module", params=["Q4_0", "Q8_0", "Q5_0", "IQ4_NL", "Q4_1", "F16"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def file(kind, tmp_path_factory):
    plain = kind if kind != "IQ4_NL" else "F16"  # the package reads it and does not write it
    made = write_tiny_gguf(tmp_path_factory.mktemp("made") / "tiny.gguf", weights=plain)
    return made if plain == kind else non_linear(made)


def non_linear(file):
    """The same model with random blocks of IQ4_NL."""
    rng, out = np.random.default_rng(3), file.with_name("nl.gguf")
    source = gguf.GGUFReader(file)
    writer = gguf.GGUFWriter(out, "llama")
    for key, field in source.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            writer.add_key_value(key, field.contents(), field.types[0], *field.types[1:2])
    for tensor in source.tensors:
        if len(tensor.shape) == 1:
            writer.add_tensor(tensor.name, np.array(tensor.data))
            continue
        columns, rows = map(int, tensor.shape)
        blocks = rng.integers(0, 256, (rows, columns // 32, 18), np.uint8)
        scales = rng.uniform(0.01, 0.02, (rows, columns // 32, 1)).astype(np.float16)
        blocks[..., :2] = scales.view(np.uint8)
        data = blocks.reshape(rows, -1)
        writer.add_tensor(tensor.name, data, raw_dtype=gguf.GGMLQuantizationType.IQ4_NL)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def in_blocks(tensors, name, bits, block_size=32):
    parts = list(PlainRounding().blocks(tensors, [name], bits, block_size))
    columns = tensors.shape(name)[1]
    dense = [dequantize(part.packed, part.scales, bits, columns) for part in parts]
    return np.concatenate(dense), sum(part.squared_error for part in parts)


@pytest.mark.parametrize("name", [Q, DOWN, EMBED])
@pytest.mark.parametrize("bits", [4, 8])
def test_blocks_are_copied_where_they_fit(kind, file, bits, name):
    """Number by number, and not otherwise: a second rounding would show in the last bits."""
    source = open_source(file)
    fits = {"Q4_0": 4, "IQ4_NL": 8, "Q5_0": 8, "Q8_0": 8}.get(kind, 99) <= bits
    assert source.tensors.fits(name, bits, 32) == fits
    stored, error = in_blocks(source.tensors, name, bits)
    if fits:
        assert np.array_equal(stored, read(source.tensors, name))
        assert error == 0
    else:  # the control
        assert not np.array_equal(stored, read(source.tensors, name))
        assert error > 0


def test_other_blocks_are_rounded(kind, file):
    source = open_source(file)
    for block_size in (16, 64):
        assert not source.tensors.fits(Q, 8, block_size)


def test_readers_of_readers_copy_too(tmp_path):
    source = open_source(write_tiny_gguf(tmp_path / "tiny.gguf", weights="Q8_0"))
    done = []
    counted = CountedTensors(PaddedTensors(source.tensors, {EMBED: VOCAB + 7}), done.append)
    assert np.array_equal(in_blocks(counted, Q, 8)[0], read(source.tensors, Q))
    assert done[-1] == source.tensors.shape(Q)[0] * source.tensors.shape(Q)[1]
    padded = in_blocks(counted, EMBED, 8)[0]
    assert len(padded) == VOCAB + 7
    assert not padded[VOCAB:].any()


def test_a_scale_that_is_no_number_is_refused(tmp_path):
    file = write_tiny_gguf(tmp_path / "tiny.gguf", weights="Q8_0")
    tensor = ModelFile(file).tensors["blk.1.attn_q.weight"]
    data = bytearray(file.read_bytes())
    data[tensor.start : tensor.start + 2] = b"\xff\x7f"
    file.write_bytes(data)
    source = open_source(file)
    with pytest.raises(EdgedecError, match="NaN"):
        in_blocks(source.tensors, Q, 8)
    with pytest.raises(EdgedecError, match="NaN"):
        read(source.tensors, Q)


def exported(file, out, **options):
    given = {"calibration": "none", "parity": False, **options}
    return export_bundle(ExportOptions(file, out, **given))


def test_the_text_says_once_what_the_weights_were(tmp_path):
    file = write_tiny_gguf(tmp_path / "tiny.gguf", weights="Q4_1")
    report = exported(file, tmp_path / "out", formats=("onnx",), weights="fp32")
    said = [note for model in report.models for note in model.notes if "already" in note]
    assert said == ["its weights were Q4_1 already: what is exported cannot be better"]
    whole = write_tiny_gguf(tmp_path / "whole.gguf", weights="F16")
    report = exported(whole, tmp_path / "other", weights="fp32")
    assert not [note for model in report.models for note in model.notes if "already" in note]


def test_weights_in_the_blocks_of_int4_are_not_calibrated(tmp_path):
    file = write_tiny_gguf(tmp_path / "tiny.gguf", weights="Q4_0")
    report = exported(file, tmp_path / "out", calibration="self", weights="int4")
    errors = report.models[0].errors
    assert set(errors.values()) == {0.0}
    manifest = json.loads((tmp_path / "out/manifest.json").read_text("utf-8"))
    assert manifest["provenance"]["options"]["calibration"] == "none"
    assert manifest["provenance"]["sources"]["target"]["sha256"].keys() == {"tiny.gguf"}


# -- tokenizer ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "head"), [("Q4_0", 4), ("F16", 8)])
def test_a_head_in_the_blocks_of_int4_is_copied_too(tmp_path, kind, head):
    """The control: a head that costs little is otherwise in int8 from the start."""
    file = write_tiny_gguf(tmp_path / "tiny.gguf", weights=kind)
    out = tmp_path / "out"
    more = {"max_kl": 9.0, "calibration": "none", "parity": False}
    export_bundle(ExportOptions(file, out, **more))
    graph = onnx.load(out / "target" / "model.onnx", load_external_data=False).graph
    (node,) = (node for node in graph.node if node.name == "logits")
    assert [one.i for one in node.attribute if one.name == "bits"] == [head]


def test_the_tokenizer_is_the_files_own(tmp_path):
    file = write_tiny_gguf(tmp_path / "tiny.gguf")
    source = open_source(file)
    own, other = load_tokenizer(GgufHeader.read(file)), Tokenizer.load(source.texts)
    for text in ("abba", "!<s>ab</s>", "a b<|eot_id|>", ""):
        assert other.encode(text) == own.encode(text)
    assert (other.bos_id, other.eos_id) == (own.bos_id, own.eos_id)
    assert source.eos_ids == (1, 2)


def test_the_scratch_folder_goes_with_the_checkpoint(tmp_path):
    source = open_source(write_tiny_gguf(tmp_path / "tiny.gguf"))
    texts = source.texts
    assert (texts / "tokenizer.json").is_file()
    del source
    gc.collect()
    assert not texts.exists()


def test_a_folder_of_one_file_is_that_file(tmp_path):
    file = write_tiny_gguf(tmp_path / "tiny.gguf")
    assert open_source(tmp_path).path == file


def test_from_a_folder_to_a_file_and_on(tmp_path):
    """The tokenizer, the ends, the context and the vocabulary are still those of the folder."""
    pytest.importorskip("llama_cpp", reason="a GGUF file is written with the extra gguf")
    folder = tiny_checkpoint(tmp_path / "m", vocab_size=410)
    exported(folder, tmp_path / "gguf", formats=("gguf",), weights="f32")
    first = open_source(folder)
    then = open_source(tmp_path / "gguf/target/model.gguf")
    assert then.eos_ids == first.eos_ids
    assert then.spec.max_context == first.spec.max_context
    one, two = Tokenizer.load(first.texts), Tokenizer.load(then.texts)
    assert two.vocab_size == one.vocab_size
    text = "def f(x):\n    return  x + 1  # it's\n"
    assert two.encode(text) == one.encode(text)
    assert two.chat_template is None or two.chat_template.source == one.chat_template.source


# -- what is refused ------------------------------------------------------------------------------


def test_what_cannot_be_read_back_is_refused_in_a_line(tmp_path):
    with pytest.raises(UnsupportedArchitecture, match="'mamba' cannot be read back"):
        open_source(write_tiny_gguf(tmp_path / "m.gguf", "mamba"))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(EdgedecError, match="cannot be read"):
        open_source(tmp_path / "none.gguf")


def test_a_file_that_became_shorter(tmp_path):
    file = write_tiny_gguf(tmp_path / "tiny.gguf")
    source = open_source(file)
    last = max(ModelFile(file).tensors.values(), key=lambda tensor: tensor.start)
    file.write_bytes(file.read_bytes()[: last.start])
    with pytest.raises(EdgedecError, match="became shorter"):
        source.tensors.file.read(last.name)


@pytest.mark.parametrize(
    ("entries", "wrong"),
    [
        (
            {"tokenizer.chat_template": Raw(8, gguf_files.text(b"{{ a }}\xff"))},
            "chat template is not UTF-8",
        ),
        ({"tokenizer.ggml.scores": 5}, None),
        ({"tokenizer.ggml.token_type": np.ones(3, "i4")}, "token types: the file is damaged"),
        ({"tokenizer.ggml.tokens": [*GOOD["tokenizer.ggml.tokens"], "more"]}, "tokens, and an emb"),
        ({"general.sampling.temp": math.nan}, None),
        ({}, None),
    ],
)
def test_damage_outside_the_decoder(tmp_path, entries, wrong):
    file = gguf_files.write(tmp_path / "file.gguf", {**GOOD, **entries}, TENSORS)
    if wrong is None:
        assert open_source(file).generation.keys() == {"eos_token_id"}
        return
    with pytest.raises(EdgedecError, match=wrong):
        open_source(file)
