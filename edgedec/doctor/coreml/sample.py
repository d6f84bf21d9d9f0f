"""Small decoders with random weights, for owners of Macs who have no bundle yet."""

from __future__ import annotations

from pathlib import Path

from edgedec.doctor.forms import RandomTensors
from edgedec.export.needed import explained_imports
from edgedec.models.registry import spec_for

# Heads of 64 as in real models; tensors that a device does not refuse for being small.
_CONFIG = {
    "model_type": "llama",
    "hidden_act": "silu",
    "vocab_size": 4096,
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
# The forms and weights that an export has by default, and palettes, which crashed for others.
SAMPLES = (("slice", "int4"), ("blend", "int4"), ("blend", "lut4"))


def write_samples(folder: Path) -> dict[str, Path]:
    """Write the samples; return their packages by name.

    Raises:
        RuntimeUnavailable: the extra ``export`` is not installed.

    """
    with explained_imports():
        from edgedec.export.coreml import FOLDER, ProgramOptions, write_program
    spec = spec_for(_CONFIG)
    found = {}
    for form, weights in SAMPLES:
        name = f"sample {form} {weights}"
        place = folder / f"{form}-{weights}"
        place.mkdir()
        write_program(spec, RandomTensors(spec), place, ProgramOptions(name, (), weights, form))
        found[name] = place / FOLDER
    return found
