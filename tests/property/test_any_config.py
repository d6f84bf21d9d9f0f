"""Whatever a config.json says: a decoder, or one line about what is wrong with it."""

import json
from pathlib import Path

from example_counts import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edgedec.errors import CheckpointError, UnsupportedArchitecture
from edgedec.models.registry import spec_for

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = [json.loads(file.read_text("utf-8")) for file in sorted(GOLDEN.glob("*.json"))]
CONFIGS = [case["config"] for case in CASES]
# Fields that some files leave out.
FURTHER = [
    "head_dim",
    "layer_types",
    "n_inner",
    "no_rope_layers",
    "num_key_value_heads",
    "partial_rotary_factor",
    "rope_parameters",
    "rope_scaling",
    "sliding_window",
    "sliding_window_pattern",
    "text_config",
]
ROPES = ["linear", "dynamic", "llama3", "yarn", "longrope", "su", "spiral"]

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 300)
    | st.sampled_from([2**31, 10**12, -(10**12)])
    | st.floats()
    | st.sampled_from(["", "silu", "gelu", "full_attention", "model", "\n"])
)
ropes = st.fixed_dictionaries(
    {"rope_type": st.sampled_from(ROPES)},
    optional={
        name: scalars | st.lists(scalars, max_size=8)
        for name in (
            "factor",
            "short_factor",
            "long_factor",
            "low_freq_factor",
            "high_freq_factor",
            "original_max_position_embeddings",
            "attention_factor",
            "beta_fast",
            "beta_slow",
            "rope_theta",
        )
    },
)
values = scalars | st.lists(scalars, max_size=4) | st.dictionaries(st.text(), scalars) | ropes


@st.composite
def configs(draw):
    config = dict(draw(st.sampled_from(CONFIGS)))
    for _ in range(draw(st.integers(1, 3))):
        config[draw(st.sampled_from([*config, *FURTHER]))] = draw(values)
    return config


def yarn(**numbers):
    """A config whose rope is stretched by YaRN."""
    rope = {"rope_type": "yarn", "factor": 2, **numbers}
    return {**CONFIGS[0], "rope_parameters": rope}


def decoder(config):
    """The spec, or None where one line said what is wrong."""
    try:
        return spec_for(config)
    except (CheckpointError, UnsupportedArchitecture) as error:
        said = str(error)
    assert "\n" not in said
    return None


def test_the_recorded_ones_are_decoders():
    assert all(map(decoder, CONFIGS))


@settings(max_examples=examples(400))
@given(configs())
@example({**CONFIGS[0], "num_attention_heads": 10**9})
@example(yarn(beta_slow=None))
@example(yarn(beta_fast=False))
@example(yarn(beta_fast=0))
@example(yarn(attention_factor="1"))
@example(yarn(rope_theta=1))
def test_a_decoder_or_one_line(config):
    spec = decoder(config)
    if spec is None:
        return
    # What was accepted adds up: the emitters divide, split and rotate by these.
    assert min(spec.hidden, spec.ffn, spec.layers, spec.vocab_size, spec.max_context) > 0
    assert spec.heads % spec.kv_heads == 0
    assert len(spec.windows) == len(spec.ropes) == spec.layers
    assert 0 < spec.vocab_used <= spec.vocab_size
    if spec.layers < 100:
        assert spec.parameters > 0
        if spec.rope and spec.head_dim < 10_000:
            layer = spec.ropes.index(spec.rope)
            cos, sin = spec.rope_tables(layer, 3)
            own = spec.at(layer)
            assert cos.shape == sin.shape == (3, own.rotary_dim // 2)
            assert own.rotary_dim <= own.head_dim
