"""A decoder of every family goes to a GGUF file and back: the same decoder, the same tensors."""

import dataclasses

import gguf
import numpy as np
import pytest
import tiny_hybrids
from hybrid_reference import HybridReference
from test_golden import CASES, Case
from tiny_hybrids import hybrid_weights, write_hybrid_gguf
from tiny_models import MemoryTensors, random_tensors, tiny_config

from edgedec.errors import CheckpointError, UnsupportedArchitecture
from edgedec.export.gguf import architectures, child, known
from edgedec.export.gguf.file import ModelFile
from edgedec.export.gguf.known import architecture_for
from edgedec.export.gguf.metadata import model_keys
from edgedec.export.gguf.naming import Layout
from edgedec.export.gguf.reading import GgufTensors, decoder_of
from edgedec.export.gguf.writing import write
from edgedec.export.reference import Reference
from edgedec.export.tensors import read
from edgedec.models.registry import architectures as model_types
from edgedec.models.registry import spec_for

CLOSE = 1e-4
# What a file does not say, and what it says in another form; see ``rotations``.
ELSEWHERE = {
    "architecture",
    "vocab_used",
    "ropes",
    "scales",
    "sources",
    "prefixes",
    "position_rows",
}


def is_written(name):
    try:
        architecture_for(Case(name).spec)
    except UnsupportedArchitecture:
        return False
    return True


WRITTEN = [name for name in CASES if is_written(name)]


def written(case, folder, keys=None, tensors=None):
    """The case as a GGUF file in f32; keys of None are left out."""
    file, architecture = folder / "model.gguf", architecture_for(case.spec)
    metadata = {"tokenizer.ggml.model": "none", **model_keys(case.spec, architecture)}
    tensors = tensors or case.tensors
    metadata = {key: value for key, value in (metadata | (keys or {})).items() if value is not None}
    write(file, case.spec, tensors, architecture, metadata, "f32")
    return file


def read_back(file):
    source = ModelFile(file)
    spec, architecture = decoder_of(source)
    return spec, GgufTensors(source, spec, architecture)


def different(case, spec, tensors):
    """Names of the tensors that are not the case's; a factor on queries may have moved there."""
    architecture = architecture_for(case.spec)
    factors = {
        case.spec.name(role, layer): np.float32(architecture.factor(case.spec, role))
        for role in ("q", "q_bias", "q_norm")
        for layer in range(spec.layers)
    }
    found = []
    for name in spec.tensors().keys() | case.arrays.keys():
        own = case.arrays.get(name)
        got = read(tensors, name)
        if own is None:  # llama.cpp wants a bias where there is none
            same = not got.any()
        else:
            same = np.array_equal(got, (own * factors.get(name, 1))[: len(got)])
        found += [] if same else [name]
    return found


def rotations(spec):
    """Cosines and sines of each layer."""
    return [spec.rope_tables(layer, 48) for layer in range(spec.layers)]


class Even:
    """OLMoE as llama.cpp computes it, which no recorded case is: a key for each query."""

    def __init__(self):
        changes = {"num_key_value_heads": 4, "num_experts": 8, "num_experts_per_tok": 3}
        config = tiny_config(model_type="olmoe", intermediate_size=32, **changes)
        self.spec = spec_for(config)
        self.arrays = random_tensors(self.spec, seed=3)
        self.tensors = MemoryTensors(self.arrays)
        self.tokens = list(range(3, 35))
        self.logits = Reference(self.spec, self.tensors).logits(self.tokens)[::3, ::5]

    off = Case.off


MADE = {"olmoe-even": Even}


def case_of(name):
    return MADE[name]() if name in MADE else Case(name)


def test_every_family_is_tried():
    tried = {case_of(name).spec.architecture for name in (*WRITTEN, *MADE)}
    assert tried == set(model_types())


@pytest.mark.parametrize("name", [*WRITTEN, *MADE])
def test_the_same_decoder(name, tmp_path):
    case = case_of(name)
    spec, tensors = read_back(written(case, tmp_path))
    assert different(case, spec, tensors) == []
    biased = {"qkv_bias", "out_bias"} if case.spec.architecture == "gpt_neox" else set()
    for field in dataclasses.fields(spec):
        if field.name not in ELSEWHERE | biased:
            assert getattr(spec, field.name) == getattr(case.spec, field.name), field.name
    for ours, theirs in zip(rotations(spec), rotations(case.spec), strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert case.off(Reference(spec, tensors).logits(case.tokens)) < CLOSE


@pytest.mark.parametrize("name", ["llama", "smollm3", "qwen3", "gpt_neox", "phi3", "olmo2"])
def test_parts_of_a_tensor_are_those_of_the_whole(name, tmp_path):
    case = Case(name)
    spec, tensors = read_back(written(case, tmp_path))
    for stored in spec.tensors():
        whole = read(tensors, stored)
        for start, stop in ((0, 1), (3, 7), (len(whole) - 5, len(whole) + 9)):
            assert np.array_equal(tensors.rows(stored, start, stop), whole[start:stop]), stored


def test_rows_left_as_they_are_are_seen(tmp_path, monkeypatch):
    case = Case("llama")
    file = written(case, tmp_path)
    monkeypatch.setattr(architectures, "turning", lambda head_dim, _: list(range(head_dim)))
    assert {name.split(".")[-2] for name in different(case, *read_back(file))} == {
        "q_proj",
        "k_proj",
    }


def test_a_norm_that_is_stored_less_one_is_seen(tmp_path):
    case = Case("gemma2")
    less = {n: v - 1 if n.endswith("norm.weight") else v for n, v in case.arrays.items()}
    file = written(case, tmp_path, tensors=MemoryTensors(less))
    names = different(case, *read_back(file))
    assert set(names) == {name for name in case.arrays if name.endswith("norm.weight")}


def test_halves_in_the_wrong_order_are_seen(tmp_path, monkeypatch):
    case = Case("phi3")
    file = written(case, tmp_path)
    turned = dataclasses.replace(
        known.KNOWN["phi3"], layout=Layout({"blk.{layer}.ffn_up": ("up", "gate")})
    )
    monkeypatch.setitem(known.KNOWN, "phi3", turned)
    spec, tensors = read_back(file)
    monkeypatch.undo()
    assert {name.split(".")[-2] for name in different(case, spec, tensors)} == {
        "gate_proj",
        "up_proj",
    }


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("llama", {"llama.rope.freq_base": 9000.0}),
        ("llama-yarn", {"llama.rope.scaling.factor": 3.0}),
        ("gemma3_text", {"gemma3.rope.freq_base_swa": 9000.0}),
        ("granite", {"granite.residual_scale": 1.0}),
        ("smollm3-window", {"granite_swa.attention.sliding_window": 11}),
        ("granitemoehybrid-nope", {"granite.rope.scaling.finetuned": True}),
        ("gemma4", {"gemma4.rope.freq_base": 600.0}),
        ("gemma4", {"gemma4.rope.freq_base_swa": 90.0}),
    ],
)
def test_a_wrong_key_is_seen(name, keys, tmp_path):
    case = Case(name)
    spec, tensors = read_back(written(case, tmp_path, keys))
    assert case.off(Reference(spec, tensors).logits(case.tokens)) > 2 * CLOSE


# -- files of others ------------------------------------------------------------------------------


def rewritten(file, out, change):
    """The same file with its tensors, by name, changed."""
    source = gguf.GGUFReader(file)
    writer = gguf.GGUFWriter(out, source.fields["general.architecture"].contents())
    for key, field in source.fields.items():
        value = field.contents()
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}
        add |= {bool: writer.add_bool, list: writer.add_array}
        add[type(value)](key, value)
    tensors = {tensor.name: tensor.data for tensor in source.tensors}
    change(tensors)
    for name, data in tensors.items():
        writer.add_tensor(name, np.array(data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def fuse(tensors):
    """Query, key and value as one tensor, as Phi-3 is published."""
    for name in list(tensors):
        if name.endswith("attn_q.weight"):
            parts = [tensors.pop(name.replace("_q.", f"_{role}.")) for role in "qkv"]
            tensors[name.replace("_q.", "_qkv.")] = np.concatenate(parts)


@pytest.mark.parametrize("shape", [(1, 128), (128,), (2, 64)])
def test_an_axis_of_one_in_front_may_be_there_or_not(shape, tmp_path):
    """As in files that llama.cpp converts, and in those that it quantises."""
    case = Case("granitemoehybrid-mamba")

    def change(tensors):
        for name in tensors:
            if name.endswith("ssm_norm.weight"):
                tensors[name] = tensors[name].reshape(shape)

    file = rewritten(written(case, tmp_path), tmp_path / "changed.gguf", change)
    assert ModelFile(file).shape("blk.0.ssm_norm.weight") == shape
    if shape[0] == 2:
        with pytest.raises(CheckpointError, match=r"ssm_norm.weight is \[2, 64\]"):
            read_back(file)
    else:
        assert different(case, *read_back(file)) == []


def test_query_key_and_value_may_be_one_tensor(tmp_path):
    case = Case("phi3")
    file = rewritten(written(case, tmp_path), tmp_path / "fused.gguf", fuse)
    assert "blk.0.attn_qkv.weight" in ModelFile(file).tensors
    assert different(case, *read_back(file)) == []


@pytest.mark.parametrize(
    ("keys", "wrong"),
    [
        ({"llama.attention.value_length": 8}, "its attention.value_length is 8"),
        ({"llama.rope.scaling.type": "other"}, "scaling other is unknown"),
        ({"llama.attention.head_count_kv": [2, 1]}, "attention.head_count_kv is"),
        ({"llama.attention.head_count_kv": 3}, "cannot share 3"),
        ({"llama.block_count": 3}, "no tensor blk.2"),
        ({"llama.block_count": 1}, "its tensor blk.1"),
        ({"llama.block_count": 1 << 30}, "has 21 tensors"),
        ({"llama.embedding_length": 96}, "token_embd.weight is"),
        ({"llama.rope.dimension_count": 15}, "cannot be rotated"),
        ({"llama.attention.causal": False}, "its tokens read later ones as well"),
    ],
)
def test_what_a_file_says_otherwise_is_refused(keys, wrong, tmp_path):
    with pytest.raises(Exception, match=wrong):
        read_back(written(Case("llama"), tmp_path, keys))


@pytest.mark.parametrize(
    ("keys", "wrong"),
    [
        ({"ssm.time_step_rank": 3}, "128 channels cannot be shared by 3 heads in 1 groups"),
        ({"ssm.time_step_rank": 0}, "128 channels cannot be shared by 0 heads"),
        ({"ssm.time_step_rank": 8}, r"ssm_dt.bias is \[4\], expected \[8\]"),
        ({"ssm.group_count": 2}, "norm over 2 groups"),
        ({"ssm.inner_size": 256}, "256 channels of Mamba with a hidden size of 64"),
        ({"ssm.state_size": 1 << 31}, "state_size is 2147483648"),
        ({"ssm.conv_kernel": 65}, "conv_kernel is 65, expected 2 to 64"),
        (
            {"attention.head_count_kv": [2, 2, 2, 2]},
            "with decoder of attention alone",
        ),
        ({"attention.head_count_kv": [0, 0, 0, 2]}, "no tensor blk.3.attn_q"),
    ],
)
def test_what_a_file_of_mamba_says_otherwise_is_refused(keys, wrong, tmp_path):
    keys = {f"granitehybrid.{name}": value for name, value in keys.items()}
    with pytest.raises(Exception, match=wrong):
        read_back(written(Case("granitemoehybrid-mamba"), tmp_path, keys))


@pytest.mark.parametrize(
    ("keys", "wrong"),
    [
        ({"lfm2.attention.head_count_kv": [0, 0, 2]}, r"head_count_kv is \[0, 0, 2\], expected 4"),
        ({"lfm2.attention.head_count_kv": [0, 1, 2, 0]}, r"have \[1, 2\] key heads"),
        ({"lfm2.attention.head_count_kv": [0, 0, 0, 2]}, "no tensor blk.3.attn_q"),
        ({"lfm2.attention.head_count_kv": 0}, "cannot share 0"),
        ({"lfm2.shortconv.l_cache": 4}, r"shortconv.conv.weight is \[64, 3\], expected \[64, 4\]"),
        ({"lfm2.shortconv.l_cache": 1 << 30}, "l_cache is 1073741824, expected 2 to 64"),
        ({"lfm2.block_count": 1 << 30}, "has 34 tensors|expected 1073741824 sizes"),
        ({"lfm2.attention.sliding_window": 8}, "windows beside short convolutions are unknown"),
    ],
)
def test_what_a_hybrid_says_otherwise_is_refused(keys, wrong, tmp_path):
    with pytest.raises(Exception, match=wrong):
        read_back(written(Case("lfm2"), tmp_path, keys))


@pytest.mark.parametrize(
    ("keys", "wrong"),
    [
        ({"gemma4.attention.shared_kv_layers": 5}, "5 of 6 layers without keys"),
        ({"gemma4.attention.shared_kv_layers": 2}, "no tensor blk.3.attn_k"),
        ({"gemma4.attention.sliding_window_pattern": [True] * 6}, "last layer has a window"),
        ({"gemma4.attention.head_count_kv": [1, 1]}, "expected 6 sizes"),
        ({"gemma4.feed_forward_length": 96}, r"ffn_gate.weight is \[192, 64\]"),
        ({"gemma4.attention.key_length_swa": 8}, "16 channels of 8 of a head"),
        ({"gemma4.embedding_length_per_layer_input": 4}, "per_layer_token_embd.weight is"),
        ({"gemma4.rope.dimension_count": 16}, r"rope_freqs.weight is \[16\], expected \[8\]"),
    ],
)
def test_what_layers_of_two_kinds_say_otherwise_is_refused(keys, wrong, tmp_path):
    with pytest.raises(Exception, match=wrong):
        read_back(written(Case("gemma4_text"), tmp_path, keys))


@pytest.mark.parametrize(
    ("name", "keys", "wrong"),
    [
        ("qwen3_moe", {"qwen3moe.expert_group_count": 2}, "experts that are chosen by groups"),
        ("qwen3_moe", {"qwen3moe.expert_group_count": 1}, None),
        ("qwen3_5_text", {"qwen35.rope.dimension_sections": [1, 0, 0, 3]}, "dimension_sections is"),
        ("qwen3_5_text", {"qwen35.rope.dimension_sections": [2, 1, 1, 0]}, None),
        ("lfm2", {"lfm2.attention.sliding_window": 1 << 20}, None),
        ("llama-yarn", {"llama.rope.scaling.yarn_attn_factor": 1.0}, "attn_factor is not 1.13"),
        ("llama-yarn", {"llama.rope.scaling.yarn_attn_factor": 1.138629436}, None),
        ("llama-yarn", {"llama.rope.scaling.yarn_ext_factor": 0.5}, "yarn_ext_factor is not 1,"),
    ],
)
def test_what_would_be_left_out_is_refused(name, keys, wrong, tmp_path):
    case = Case(name)
    if wrong is None:
        assert different(case, *read_back(written(case, tmp_path, keys))) == []
        return
    with pytest.raises(UnsupportedArchitecture, match=wrong):
        read_back(written(case, tmp_path, keys))


def test_a_number_of_layers_that_is_another_decoders(tmp_path):
    """llama.cpp knows EXAONE 4 32B, which has windows, by its 64 layers."""
    spec = Case("exaone4-full").spec

    def of(layers):
        made = {"ropes": spec.ropes[:1] * layers, "windows": (0,) * layers}
        return dataclasses.replace(spec, layers=layers, **made)

    assert architecture_for(of(63)).name == "exaone4"
    with pytest.raises(UnsupportedArchitecture, match="no decoder of 64 layers that all attend"):
        architecture_for(of(64))


# Keys that others' files may leave out, of decoders that llama.cpp then computes otherwise, or not.
LEFT_OUT = [
    ("gemma2", {"attn_logit_softcapping": None, "final_logit_softcapping": None}),
    ("gemma4_text", {"final_logit_softcapping": None}),
    ("olmo3-yarn", {"rope.freq_base_swa": None}),
    ("llama", {"rope.scaling.factor": 4.0}),
    ("llama", {"rope.scaling.factor": 4.0, "rope.scaling.type": "none"}),
    ("llama-yarn", {"context_length": 32}),
]


@pytest.mark.parametrize(("name", "keys"), LEFT_OUT)
def test_a_key_that_is_left_out_means_what_llama_cpp_takes_it_for(name, keys, tmp_path):
    pytest.importorskip("llama_cpp")
    case = Case(name)
    prefix = architecture_for(case.spec).name
    # Large rows, so that caps have an effect.
    arrays = {n: v * 30 if "embed_tokens." in n else v for n, v in case.arrays.items()}
    keys = {"tokenizer.ggml.model": "no_vocab"} | {f"{prefix}.{n}": v for n, v in keys.items()}
    file = written(case, tmp_path, keys, MemoryTensors(arrays))
    tokens, columns, out = list(range(3, 51)), case.spec.vocab_size, tmp_path / "logits"
    request = {"task": "evaluator", "file": str(file), "tokens": tokens, "columns": columns}
    child.ask({**request, "out": str(out), "texts": [], "threads": 1})
    computed = np.fromfile(out, np.float32).reshape(-1, columns)
    spec, tensors = read_back(file)
    assert np.abs(Reference(spec, tensors).logits(tokens) - computed).max() < 0.01
    meant = Reference(case.spec, MemoryTensors(arrays)).logits(tokens)
    same = np.abs(meant - computed).max() < 0.01
    assert same == (name in ("olmo3-yarn", "llama-yarn") or "llama.rope.scaling.type" in keys)


def test_a_window_that_is_left_out_is_gemmas(tmp_path):
    keys = {"gemma2.attention.sliding_window": None, "gemma2.context_length": 8192}
    spec, _ = read_back(written(Case("gemma2"), tmp_path, keys))
    assert set(spec.windows) == {4096, 0}
    shorter = {**keys, "gemma2.context_length": 4096}
    assert set(read_back(written(Case("gemma2"), tmp_path, shorter))[0].windows) == {0}


def test_no_cap_is_said_to_those_that_cap_without_a_key():
    spec = Case("gemma4_text").spec
    uncapped = dataclasses.replace(spec, scales=dataclasses.replace(spec.scales, logit_cap=0.0))
    keys = model_keys(uncapped, architecture_for(uncapped))
    assert keys["gemma4.final_logit_softcapping"] > 1e6


@pytest.mark.parametrize(
    ("keys", "wrong"),
    [
        ({"ssm.time_step_rank": 3}, "64 channels of values cannot be shared by 3 heads"),
        ({"ssm.group_count": 3}, "or those by 3 keys"),
        ({"ssm.state_size": 0}, "of 0 channels"),
        ({"ssm.conv_kernel": 65}, "conv_kernel is 65, expected 2 to 64"),
        ({"full_attention_interval": 0}, "one of 0 layers attends"),
        ({"full_attention_interval": 9}, "one of 9 layers attends, of 4"),
        ({"full_attention_interval": 4}, "no tensor blk.1.attn_qkv"),
        ({"nextn_predict_layers": 4}, "it says that it has 0 layers"),
        ({"nextn_predict_layers": 9}, "it says that it has 0 layers"),
    ],
)
def test_what_a_file_of_the_delta_rule_says_otherwise_is_refused(keys, wrong, tmp_path):
    keys = {f"qwen35.{name}": value for name, value in keys.items()}
    with pytest.raises(Exception, match=wrong):
        read_back(written(Case("qwen3_5"), tmp_path, keys))


def test_further_prediction_layers_are_left_out(tmp_path, monkeypatch):
    case, further = Case("qwen3_5"), {"blk.4.nextn.eh_proj.weight": np.ones((2, 2), np.float32)}
    monkeypatch.setattr("edgedec.export.gguf.writing.rope_factors", lambda *asked: further)
    keys = {"qwen35.block_count": 5, "qwen35.nextn_predict_layers": 1}
    assert different(case, *read_back(written(case, tmp_path, keys))) == []
    with pytest.raises(UnsupportedArchitecture, match=r"its tensor blk\.4\.nextn"):
        read_back(written(case, tmp_path))


@pytest.mark.parametrize("arch", tiny_hybrids.ARCHITECTURES)
def test_a_hybrid_that_another_program_wrote(tmp_path, arch):
    """Its logits are those of equations that are written down once more."""
    spec, tensors = read_back(write_hybrid_gguf(tmp_path / "model.gguf", arch))
    tokens = np.random.default_rng(3).integers(4, tiny_hybrids.VOCAB, 40).tolist()
    expected = HybridReference(arch, hybrid_weights(arch)).logits(tokens)
    assert [layer for layer in range(4) if spec.mixer(layer) is None] == [3]
    assert np.abs(Reference(spec, tensors).logits(tokens) - expected).max() < CLOSE
