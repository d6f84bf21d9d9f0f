"""Published configurations: the numbers each model is known to have, and what is refused."""

import numpy as np
import pytest
from kinds import in_full
from tiny_models import (
    MemoryTensors,
    canonical_tensors,
    random_stored,
    save_checkpoint,
    tiny_config,
)

from edgedec._support.amounts import size
from edgedec.errors import CheckpointError, UnsupportedArchitecture
from edgedec.export.checkpoint import Checkpoint
from edgedec.export.onnx import GraphOptions, write_model
from edgedec.export.onnx.options import kept_rows
from edgedec.export.tensors import CanonicalTensors, read
from edgedec.models.registry import architectures, spec_for
from edgedec.runtimes.onnx.graph import States


def sizes(hidden, ffn, layers, heads, kv_heads, vocab_size, context):
    return {
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocab_size,
        "max_position_embeddings": context,
    }


GRANITE4 = {
    "model_type": "granitemoehybrid",
    "layer_types": ["attention"] * 2,
    "num_local_experts": 0,
    "shared_intermediate_size": 128,
}
GRANITE_H = GRANITE4 | {
    "layer_types": ["mamba", "attention"],
    "mamba_n_heads": 4,
    "mamba_d_state": 16,
    "num_local_experts": 4,
    "intermediate_size": 32,
}
QWEN_LAYERS = {"layer_types": ["linear_attention", "full_attention"]}
LFM2_H = {
    "model_type": "lfm2_moe",
    "layer_types": ["conv", "full_attention"],
    "num_dense_layers": 1,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}
QWEN_H = {"model_type": "qwen3_5_text", **QWEN_LAYERS}
GRANITE_H_LAYERS = ["attention" if at in (5, 15, 25, 35) else "mamba" for at in range(40)]
LFM2_LAYERS = ["full_attention" if at in (2, 5, 8, 10, 12, 14) else "conv" for at in range(16)]
ALPHA = {"type": "dynamic", "alpha": 1000.0, "rope_theta": "x"}
LONG = {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [2.0] * 48}
MIXTURE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
GEMMA4 = {
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "num_hidden_layers": 4,
    "num_kv_shared_layers": 1,
    "vocab_size_per_layer_input": 96,
    "hidden_size_per_layer_input": 8,
    "head_dim": 16,
    "global_head_dim": 32,
}
FURTHER = {
    "granitemoehybrid": GRANITE_H,
    "gemma4": GEMMA4,
    "gemma4_text": GEMMA4,
    "gemma4_unified": GEMMA4 | {"hidden_size_per_layer_input": 0},
    "gpt_neox": {"num_key_value_heads": None},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": LFM2_H,
    "olmoe": MIXTURE,
    "qwen3_moe": MIXTURE,
    "qwen3_5": QWEN_LAYERS,
    "qwen3_5_text": QWEN_LAYERS,
    "qwen3_5_moe": {**QWEN_LAYERS, **MIXTURE},
    "qwen3_5_moe_text": {**QWEN_LAYERS, **MIXTURE},
    "stablelm": {"qk_layernorm": True},
}


OF_IMAGES = ("gemma3", "gemma4", "gemma4_unified", "mistral3", "qwen3_5", "qwen3_5_moe")
# What is not given is what the file leaves out too. Parameters as the model cards have them.
PUBLISHED = {
    "SmolLM2-135M": (
        {"model_type": "llama", **sizes(576, 1536, 30, 9, 3, 49152, 8192)}
        | {"tie_word_embeddings": True, "rope_theta": 100000},
        134_515_008,
    ),
    "Llama-3.2-1B": (
        {"model_type": "llama", **sizes(2048, 8192, 16, 32, 8, 128256, 131072)}
        | {"tie_word_embeddings": True, "head_dim": 64},
        1_235_814_400,
    ),
    "gemma-2-2b": (
        {"model_type": "gemma2", **sizes(2304, 9216, 26, 8, 4, 256000, 8192)},
        2_614_341_888,
    ),
    "gemma-3-1b": (
        {"model_type": "gemma3_text", **sizes(1152, 6912, 26, 4, 1, 262144, 32768)}
        | {"sliding_window": 512},
        999_885_952,
    ),
    "Qwen3.5-0.8B, text": (
        {"model_type": "qwen3_5", "tie_word_embeddings": True}
        | {
            "text_config": {
                **sizes(1024, 3584, 24, 8, 2, 248320, 262144),
                "model_type": "qwen3_5_text",
                "linear_num_value_heads": 16,
                "rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.25},
            }
        },
        752_393_024,
    ),
    "gemma-3-4b, text": (
        {"model_type": "gemma3"}
        | {
            "text_config": {
                "hidden_size": 2560,
                "intermediate_size": 10240,
                "num_hidden_layers": 34,
                "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
                "sliding_window": 1024,
            }
        },
        3_880_263_168,
    ),
    "Phi-3-mini-128k": (
        {"model_type": "phi3", **sizes(3072, 8192, 32, 32, 32, 32064, 131072)}
        | {"rope_scaling": LONG, "original_max_position_embeddings": 4096},
        3_821_079_552,
    ),
    "Phi-4-mini": (
        {"model_type": "phi3", **sizes(3072, 8192, 32, 24, 8, 200064, 131072)}
        | {"rope_scaling": LONG, "partial_rotary_factor": 0.75, "tie_word_embeddings": True},
        3_836_021_760,
    ),
    "SmolLM3-3B": (
        {"model_type": "smollm3", **sizes(2048, 11008, 36, 16, 4, 128256, 65536)},
        3_075_098_624,
    ),
    "stablelm-2-1_6b": (
        {"model_type": "stablelm", **sizes(2048, 5632, 24, 32, 32, 100352, 4096)}
        | {"use_qkv_bias": True},
        1_644_515_328,
    ),
    "OLMo-2-0425-1B": (
        {"model_type": "olmo2", **sizes(2048, 8192, 16, 16, 16, 100352, 4096)},
        1_484_916_736,
    ),
    "granite-3.0-2b": (
        {"model_type": "granite", **sizes(2048, 8192, 40, 32, 8, 49155, 4096)}
        | {"tie_word_embeddings": True},
        2_533_531_648,
    ),
    "gpt2": (
        {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12}
        | {"n_positions": 1024, "vocab_size": 50257},
        124_439_808,
    ),
    "pythia-70m": (
        {"model_type": "gpt_neox", **sizes(512, 2048, 6, 8, None, 50304, 2048)},
        70_426_624,
    ),
    "granite-4.0-micro": (
        {"model_type": "granitemoehybrid", **sizes(2560, 8192, 40, 40, 8, 100352, 131072)}
        | {"layer_types": ["attention"] * 40, "shared_intermediate_size": 8192}
        | {"num_local_experts": 0, "position_embedding_type": "rope", "tie_word_embeddings": True},
        3_402_836_480,
    ),
    **{
        f"granite-4.0-h-{name}": (
            {"model_type": "granitemoehybrid", **sizes(*shape, 100352, 131072)}
            | {"layer_types": GRANITE_H_LAYERS, "mamba_d_state": 128, "tie_word_embeddings": True}
            | {"shared_intermediate_size": shared, "mamba_n_heads": shape[0] // 32}
            | {"num_local_experts": experts, "num_experts_per_tok": used},
            parameters,
        )
        for name, shape, shared, experts, used, parameters in (
            ("micro", (2048, 8192, 40, 32, 8), 8192, 0, 0, 3_191_396_096),
            ("tiny", (1536, 512, 40, 12, 4), 1024, 64, 6, 6_939_037_248),
            ("small", (4096, 768, 40, 32, 8), 1536, 72, 10, 32_207_337_984),
        )
    },
    **{
        f"LFM2-{name}": (
            {"model_type": "lfm2", **sizes(hidden, stated, 16, heads, 8, 65536, 128_000)}
            | {"layer_types": LFM2_LAYERS, "block_ff_dim": stated, "conv_L_cache": 3},
            parameters,
        )
        for name, hidden, stated, heads, parameters in (
            ("350M", 1024, 6656, 16, 354_483_968),
            ("1.2B", 2048, 12288, 32, 1_170_340_608),
        )
    },
    "LFM2-8B-A1B": (
        {"model_type": "lfm2_moe", **sizes(2048, 7168, 24, 32, 8, 65536, 128_000)}
        | {"moe_intermediate_size": 1792, "num_experts": 32, "num_experts_per_tok": 4}
        | {
            "layer_types": [
                "full_attention" if at in (2, 6, 10, 14, 18, 21) else "conv" for at in range(24)
            ]
        },
        8_339_930_560,
    ),
    "EXAONE-4.0-1.2B": (
        {"model_type": "exaone4", **sizes(2048, 4096, 30, 32, 8, 102400, 65536)}
        | {"head_dim": 64, "sliding_window": None, "tie_word_embeddings": True},
        1_279_391_488,
    ),
    "Olmo-3-7B": (
        {"model_type": "olmo3", **sizes(4096, 11008, 32, 32, 32, 100278, 65536)},
        7_298_011_136,
    ),
    "ERNIE-4.5-0.3B": (
        {"model_type": "ernie4_5", **sizes(1024, 3072, 18, 16, 2, 103424, 131072)},
        360_748_032,
    ),
    "MiniCPM-2B": (
        {"model_type": "minicpm", **sizes(2304, 5760, 40, 36, 36, 122753, 4096)},
        2_724_880_896,
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters(name):
    config, parameters = PUBLISHED[name]
    assert spec_for(config).parameters == parameters


def test_what_published_files_leave_out():
    found = {name: spec_for(config) for name, (config, _) in PUBLISHED.items()}
    assert found["gemma-2-2b"].windows == (4096, 0) * 13
    assert found["gemma-3-1b"].windows == ((512,) * 5 + (0,)) * 4 + (512,) * 2
    near, whole = found["gemma-3-4b, text"].ropes[4:6]
    assert (near.theta, near.kind) == (10_000, "default")
    assert (whole.theta, whole.kind, whole.scaling["factor"]) == (1_000_000, "linear", 8)
    assert found["gemma-3-1b"].attention_scale == 256**-0.5
    assert found["Phi-4-mini"].rotary_dim == 96
    assert found["Phi-3-mini-128k"].rope.scaling["attention_factor"] == pytest.approx(1.190238)
    assert [rope is None for rope in found["SmolLM3-3B"].ropes] == [False, False, False, True] * 9
    assert found["stablelm-2-1_6b"].rotary_dim == 16
    assert found["pythia-70m"].rotary_dim == 16
    assert found["Qwen3.5-0.8B, text"].attending == (3, 7, 11, 15, 19, 23)
    assert found["Qwen3.5-0.8B, text"].rotary_dim == 64
    assert found["LFM2-350M"].ffn == 4608
    assert found["LFM2-1.2B"].attending == (2, 5, 8, 10, 12, 14)
    assert found["LFM2-1.2B"].rope.theta == 1_000_000
    assert found["LFM2-1.2B"].tied


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("LFM2-350M", "LFM2-350M"),
        ("Qwen3.5-0.8B", "Qwen3.5-0.8B, text"),
        ("granite-4.0-h-micro", "granite-4.0-h-micro"),
    ],
)
def test_states_are_as_large_as_the_page_says(repository, name, model):
    spec = spec_for(PUBLISHED[model][0])
    states = States.parse(kept_rows(spec), spec.layers)
    read = 4 * len(states.layers) * (states.rows * states.width + int(np.prod(states.state or 0)))
    page = (repository / "docs/hybrids.md").read_text("utf-8")
    assert f"| {name} | {size(read)} | {size(states.bytes)} |" in page


def test_what_few_files_say():
    def made(**fields):
        return spec_for(tiny_config(**fields))

    yarn = {"type": "yarn", "original_max_position_embeddings": 32}
    cooler, warmer = (
        made(rope_scaling={**yarn, "factor": factor}).rope.scaling["attention_factor"]
        for factor in (0.5, 4.0)
    )
    assert cooler == 1.0 < warmer
    conv = {"model_type": "lfm2", **FURTHER["lfm2"], "intermediate_size": 99}
    assert (made(**conv).ffn, made(**conv, block_ffn_dim_multiplier=None).ffn) == (256, 66)
    own = {"model_type": "gemma4_text", **GEMMA4, "num_kv_shared_layers": 0}
    own["num_global_key_value_heads"] = 1
    heads = [
        [one.kv_heads for one in made(**own, attention_k_eq_v=alike).sizes]
        for alike in (False, True)
    ]
    assert heads == [[2, 2, 2, 2], [2, 1, 2, 1]]
    long = {name: [1.0] * 8 for name in ("short_factor", "long_factor")}
    assert made(model_type="phi3", rope_scaling={"type": "yarn", **long}).rope.kind == "longrope"
    limited, whole = (
        made(model_type="ministral3", rope_parameters={**yarn, "factor": 4.0, **more}).max_context
        for more in ({"llama_4_scaling_beta": 0.1}, {})
    )
    assert limited < whole
    assert (
        made(**GRANITE4).rope is None is not made(**GRANITE4, position_embedding_type="rope").rope
    )
    neox = tiny_config(model_type="gpt_neox", num_key_value_heads=None)
    neox.pop("hidden_act", None)
    assert spec_for(neox).activation == "gelu"


def test_longrope_is_chosen_by_the_context():
    config, _ = PUBLISHED["Phi-3-mini-128k"]
    spec = spec_for(config)
    long, short = (one.rope_tables(0, 3)[0] for one in (spec, spec.within(4096)))
    warmer = np.float32(spec.rope.scaling["attention_factor"])
    np.testing.assert_allclose(short[1, 0], warmer * np.cos(1.0), rtol=1e-6)
    np.testing.assert_allclose(long[1, 0], warmer * np.cos(0.5), rtol=1e-6)


def test_ropes_as_transformers_5_writes_them():
    """The same decoders, told in the newer form."""
    gemma = PUBLISHED["gemma-3-4b, text"][0]["text_config"]
    kinds = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000.0},
    }
    newer = {k: v for k, v in gemma.items() if k != "rope_scaling"} | {"rope_parameters": kinds}
    expected, found = (spec_for({"model_type": "gemma3", "text_config": c}) for c in (gemma, newer))
    assert [(r.theta, r.kind) for r in found.ropes] == [(r.theta, r.kind) for r in expected.ropes]
    neox, _ = PUBLISHED["pythia-70m"]
    rope = {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}
    found = spec_for({**neox, "rope_parameters": rope})
    assert (found.rotary_dim, found.rope.theta) == (32, 500.0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "gemma2", "hidden_activation": "relu"}, "activation 'relu'"),
        ({"model_type": "gemma3_text", "use_bidirectional_attention": True}, "bidirectional"),
        ({"model_type": "gemma3_text", "layer_types": ["chunked_attention"] * 2}, "layer_types"),
        ({"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": True}, "inverse_layer"),
        ({"model_type": "gpt2", "add_cross_attention": True}, "cross_attention"),
        ({"model_type": "minicpm", "num_experts": 8}, "num_experts"),
        ({"model_type": "phi3", "lm_head_bias": True}, "lm_head_bias"),
        ({**GRANITE4, "layer_types": ["attention", "conv"]}, "mamba and attention only"),
        ({**GRANITE4, "layer_types": None}, "layer_types is None, expected mamba and"),
        ({**GRANITE_H, "mamba_conv_bias": False}, "mamba_conv_bias is false"),
        ({**GRANITE_H, "mamba_proj_bias": True}, "without biases"),
        ({"model_type": "lfm2", "layer_types": ["conv", "mamba"]}, "conv and full_attention only"),
        ({"model_type": "lfm2", "conv_bias": True}, "LFM2 without biases"),
        ({**LFM2_H, "norm_topk_prob": False}, "shares that add up to 1"),
        ({**LFM2_H, "routed_scaling_factor": 2.5}, "shares that add up to 1"),
        ({**LFM2_H, "use_expert_bias": False}, "with their bias"),
        ({**QWEN_H, "layer_types": ["linear_attention", "conv"]}, "linear_attention and full"),
        ({**QWEN_H, "attention_bias": True}, "Qwen3.5 without biases"),
        ({**QWEN_H, "num_experts": 8}, "without experts: take a dense one"),
        ({"model_type": "hunyuan_v1_dense", "rope_scaling": {"alpha": 9.0}}, "not dynamic"),
        ({"model_type": "mistral3", "text_config": {"model_type": "x"}}, "text_config is a 'x'"),
        ({"rope_scaling": {"type": "yarn", "factor": 2, "mscale": 0.7}}, "mscale 0.7"),
        ({"model_type": "qwen2", "layer_types": ["full_attention", "linear"]}, "layer_types"),
        ({"model_type": "minicpm", "sparse_config": {"block": 64}}, "sparse attention"),
        ({"model_type": "granite", "partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 5.0}}}, "by kind of layer"),
        ({"quantization_config": {"bits": 4}}, "quantised already"),
        ({"quantization_config": {"why": ["long"] * 999}}, "quantised already"),
        ({"model_type": "mistral3", "text_config": {"model_type": []}}, r"text_config is a \[\]"),
        ({"rope_scaling": {"rope_type": ["yarn"]}}, r"rope scaling \['yarn'\]"),
    ],
)
def test_arithmetic_that_is_not_written_here_is_refused(changes, words):
    with pytest.raises(UnsupportedArchitecture, match=words) as caught:
        spec_for(tiny_config(**changes))
    assert len(str(caught.value)) < 300


WINDOWED = ["sliding_attention", "full_attention"]


@pytest.mark.parametrize(
    ("kind", "fields", "missing"),
    [
        ("mistral", {}, (4096, 4096)),
        ("exaone4", {"layer_types": WINDOWED}, (4096, 0)),
        ("qwen2", {"layer_types": WINDOWED, "use_sliding_window": True}, (4096, 0)),
        ("qwen3", {"layer_types": WINDOWED, "use_sliding_window": True}, (4096, 0)),
        ("qwen3_moe", {"use_sliding_window": True}, (4096, 4096)),
        ("olmo3", {"layer_types": WINDOWED}, (4096, 0)),
        ("gemma2", {}, (4096, 0)),
        ("smollm3", {"layer_types": WINDOWED, "use_sliding_window": True}, (0, 0)),
        ("phi3", {}, (0, 0)),
        ("ministral3", {}, (0, 0)),
    ],
)
def test_a_window_that_is_null_is_none_and_one_that_is_missing_is_the_usual_one(
    kind, fields, missing
):
    config = tiny_config(model_type=kind, **FURTHER.get(kind, {}) | fields)
    config.pop("sliding_window", None)
    assert spec_for(config).windows == missing
    assert spec_for({**config, "sliding_window": None}).windows == (0, 0)
    size = spec_for({**config, "sliding_window": 7}).windows
    assert size == tuple(7 if window else 0 for window in missing) or not any(missing)


def test_granite_4_that_states_no_number_of_experts_has_the_usual_eight():
    config = tiny_config(**GRANITE_H)
    del config["num_local_experts"]
    assert spec_for(config).experts.count == 8
    assert spec_for({**config, "num_local_experts": 0}).experts is None


@pytest.mark.parametrize("kind", OF_IMAGES)
def test_what_a_file_says_of_the_whole_model_holds_for_its_text(kind):
    config, spec, _ = checkpoint_of(kind)
    text = {name: v for name, v in config["text_config"].items() if name != "tie_word_embeddings"}
    for tied in (True, False):
        of_all = {**config, "text_config": text, "tie_word_embeddings": tied}
        assert spec_for(of_all).tied is tied
        assert spec_for({**config, "tie_word_embeddings": tied}).tied is spec.tied  # the text's own
    with pytest.raises(UnsupportedArchitecture, match="quantised already"):
        spec_for({**config, "quantization_config": {"bits": 4}})
    with pytest.raises(CheckpointError, match=f"no text_config, which {kind} needs"):
        spec_for({"model_type": kind})


def test_a_text_of_mistral3_that_does_not_say_what_it_is():
    """transformers takes it for Mistral's, which has a window by default."""
    text = tiny_config(model_type="mistral")
    text.pop("sliding_window", None)
    named, newer = (
        spec_for({"model_type": "mistral3", "text_config": {**text, "model_type": kind}})
        for kind in ("mistral", "ministral3")
    )
    without = {name: value for name, value in text.items() if name != "model_type"}
    assert named == spec_for({"model_type": "mistral3", "text_config": without}) != newer


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "gemma3"}, "no text_config"),
        ({"model_type": "mistral3"}, "no text_config"),
        ({"model_type": "gemma2", "attn_logit_softcapping": -1}, "attn_logit_softcapping is -1"),
        ({"model_type": "stablelm", "partial_rotary_factor": 1.5}, "expected at most 1"),
        ({"model_type": "stablelm", "partial_rotary_factor": 0.2}, "3 channels of a head"),
        ({"model_type": "smollm3", "no_rope_layers": [1]}, "list of 2 zeros and ones"),
        ({"model_type": "smollm3", "layer_types": ["full_attention"]}, "1 layer_types for 2"),
        ({"model_type": "phi3", "rope_scaling": {"type": "su"}}, "list of 8 numbers"),
        ({"model_type": "granite", "logits_scaling": 0}, "logits_scaling is 0"),
        ({**GRANITE_H, "layer_types": ["mamba"] * 2}, "no layer attends"),
        ({**GRANITE_H, "layer_types": ["mamba"]}, "1 layer_types for 2"),
        ({**GRANITE_H, "mamba_n_heads": 3}, "128 channels cannot be shared by 3 heads"),
        ({**GRANITE_H, "mamba_d_head": 64}, "by 4 heads of Mamba"),
        ({**GRANITE_H, "mamba_n_groups": 3}, "in 3 groups"),
        ({**GRANITE_H, "mamba_d_conv": 1}, "mamba_d_conv is 1, expected 2 to 64"),
        ({**GRANITE_H, "num_experts_per_tok": 9}, "uses 9 experts of 4"),
        ({"model_type": "lfm2", "layer_types": ["conv"] * 2}, "no layer attends"),
        ({"model_type": "qwen3_5"}, "no text_config"),
        ({**QWEN_H, "layer_types": ["linear_attention"] * 2}, "no layer attends"),
        ({**QWEN_H, "linear_num_key_heads": 3}, "32 linear value heads cannot share 3 keys"),
        ({**QWEN_H, "linear_conv_kernel_dim": 1}, "kernel_dim is 1, expected 2 to 64"),
        ({**QWEN_H, "rope_parameters": [1]}, r"rope_parameters is \[1\], expected an object"),
        ({"model_type": "lfm2", "layer_types": ["conv"]}, "1 layer_types for 2"),
        ({**LFM2_H, "num_dense_layers": 2}, "2 of 2 layers are without experts"),
        ({"model_type": "lfm2", "conv_L_cache": 1}, "conv_L_cache is 1, expected 2 to 64"),
        ({"model_type": "olmo3", "layer_types": ["full_attention"]}, "1 layer_types for 2"),
        ({"model_type": "olmoe", "num_experts": 2**31 - 1}, "expected a size of at most 10000"),
        ({"model_type": "stablelm", "num_attention_heads": 2**31 - 1}, "a size of at most 10000"),
        ({"model_type": "hunyuan_v1_dense", "rope_scaling": ALPHA}, "rope_theta is 'x'"),
        ({"rope_theta": 10**400}, "expected at most 1e[+]15"),
        ({"rope_theta": float("nan")}, "rope_theta is nan"),
        ({"max_position_embeddings": 10**400}, "expected at most 1e[+]15"),
        ({"rope_scaling": {"type": "linear", "factor": 10**400}}, "factor is 1000"),
        ({"rope_scaling": {"type": "linear", "factor": 1e-320}}, "factor of the rope is 1e-320"),
        ({"rope_scaling": {"type": "yarn", "factor": 4, "beta_fast": 1e-320}}, "is 1e-320"),
        ({"rope_scaling": LONG | {"short_factor": [10**400] * 8}}, "list of 8 numbers"),
    ],
)
def test_fields_that_make_no_sense(changes, words):
    with pytest.raises(CheckpointError, match=words):
        spec_for(tiny_config(**changes))


# -- tensors --------------------------------------------------------------------------------------


def checkpoint_of(kind):
    """Configuration, spec and stored tensors of a tiny decoder of that kind."""
    config = tiny_config(**{"model_type": kind, **FURTHER.get(kind, {})})
    if kind in OF_IMAGES:
        text = {**config, "model_type": "ministral3" if kind == "mistral3" else kind}
        config = {"model_type": kind, "text_config": {**text, "tie_word_embeddings": True}}
    spec = spec_for(config)
    return config, spec, random_stored(spec, 3)


@pytest.mark.parametrize("kind", in_full(architectures(), 10))
def test_a_checkpoint_reads_as_its_tensors_in_memory(tmp_path, kind):
    config, spec, stored = checkpoint_of(kind)
    opened = Checkpoint.open(save_checkpoint(tmp_path, config, stored)).tensors
    for name, tensor in canonical_tensors(spec, stored).items():
        np.testing.assert_array_equal(read(opened, name), tensor)
        assert opened.shape(name) == tensor.shape == spec.tensors()[name]
        half = len(tensor) // 2
        np.testing.assert_array_equal(opened.rows(name, half, half + 3), tensor[half : half + 3])


@pytest.mark.parametrize("kind", in_full(reversed(architectures()), 10))
def test_every_stored_tensor_is_needed(tmp_path, kind):
    config, _, stored = checkpoint_of(kind)
    name = sorted(stored)[len(stored) // 2]
    wrong = stored | {name: stored[name][:-1]}
    with pytest.raises(CheckpointError, match=r"config\.json says"):
        Checkpoint.open(save_checkpoint(tmp_path, config, wrong))
    del stored[name]
    with pytest.raises(CheckpointError, match="has no tensor"):
        Checkpoint.open(save_checkpoint(tmp_path, config, stored))


@pytest.mark.parametrize(
    ("kind", "ours", "theirs"),
    [
        ("gpt2", "transformer.", ""),
        ("gemma3", "model.", "language_model.model."),
        ("gemma3", "model.", "model.language_model."),
    ],
)
def test_other_beginnings_of_names(tmp_path, kind, ours, theirs):
    config, spec, stored = checkpoint_of(kind)
    renamed = {theirs + name.removeprefix(ours): tensor for name, tensor in stored.items()}
    assert not renamed.keys() & stored.keys()
    renamed["vision_tower.weight"] = np.ones(3, np.float32)
    opened = Checkpoint.open(save_checkpoint(tmp_path, config, renamed)).tensors
    for name, tensor in canonical_tensors(spec, stored).items():
        np.testing.assert_array_equal(read(opened, name), tensor)


def test_query_key_and_value_by_hand():
    """Three ways to keep them in one tensor."""
    _, spec, stored = checkpoint_of("phi3")
    whole = stored["model.layers.1.self_attn.qkv_proj.weight"]
    got = canonical_tensors(spec, stored)
    np.testing.assert_array_equal(got[spec.name("k", 1)], whole[64:96])
    _, spec, stored = checkpoint_of("gpt2")
    whole = stored["transformer.h.1.attn.c_attn.weight"]
    got = canonical_tensors(spec, stored)
    np.testing.assert_array_equal(got[spec.name("v", 1)], whole[:, 128:].T)
    _, spec, stored = checkpoint_of("gpt_neox")
    whole = stored["gpt_neox.layers.1.attention.query_key_value.weight"]
    got = canonical_tensors(spec, stored)
    by_head = whole.reshape(4, 3, 16, 64)
    np.testing.assert_array_equal(got[spec.name("k", 1)], by_head[:, 1].reshape(64, 64))


def test_a_turned_matrix_is_read_in_parts(monkeypatch):
    """No more of it than a chunk is in memory at a time."""
    monkeypatch.setattr("edgedec.export.tensors.CHUNK_NUMBERS", 1000)
    _, spec, stored = checkpoint_of("gpt2")
    asked = []

    class Watched(MemoryTensors):
        def rows(self, name, start, stop):
            asked.append((stop - start) * int(np.prod(self.shape(name)[1:])))
            return super().rows(name, start, stop)

    reader = CanonicalTensors(Watched(stored), spec.tensors(), spec.origins())
    got = reader.rows(spec.name("up", 1), 5, 9)
    assert max(asked) <= 1000
    np.testing.assert_array_equal(got, stored["transformer.h.1.mlp.c_fc.weight"][:, 5:9].T)


def test_heads_that_the_kernel_cannot_take(tmp_path):
    spec = spec_for(tiny_config(head_dim=20))
    with pytest.raises(UnsupportedArchitecture, match="heads of 20 channels"):
        write_model(spec, MemoryTensors({}), tmp_path, GraphOptions("tiny"))
