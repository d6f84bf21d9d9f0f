"""Checkpoints as transformers itself writes them: what their config.json says and leaves out."""

import numpy as np
import pytest
from test_golden import CASES as RECORDED
from test_golden import Case

from edgedec.export.checkpoint import Checkpoint
from edgedec.export.reference import Reference

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

# Transformers has no MiniCPM and no MiMo of its own to write one.
CASES = [name for name in RECORDED if not name.startswith(("minicpm", "mimo"))]
EYES = {
    "vision_config": {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    },
    "mm_tokens_per_image": 4,
    "boi_token_index": 1,
    "eoi_token_index": 2,
    "image_token_index": 3,
}


def model_of(config):
    """A random model of transformers' own class."""
    import torch
    import transformers
    from transformers.modeling_utils import no_init_weights

    config = {"pad_token_id": 0, **config}
    if "text_config" in config:
        config = {**config, **EYES, "text_config": {"pad_token_id": 0, **config["text_config"]}}
    described = transformers.AutoConfig.for_model(**config)
    described._attn_implementation = "eager"
    with no_init_weights():
        model = transformers.AutoModelForImageTextToText if "text_config" in config else None
        model = (model or transformers.AutoModelForCausalLM).from_config(described).eval()
    model.tie_weights()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, values in model.named_parameters():
            norm = name.endswith("norm.weight") and "gemma" not in config["model_type"]
            values.copy_(0.2 * torch.randn(values.shape, generator=generator) + norm)
    return model


@pytest.mark.parametrize("name", CASES)
def test_a_saved_model_is_the_same_model(name, tmp_path):
    import torch

    case = Case(name)
    model = model_of(case.config)
    model.save_pretrained(tmp_path)
    # Past the ids that stand for images.
    tokens = np.random.default_rng(1).integers(4, 96, 40)
    with torch.no_grad():
        expected = model(torch.from_numpy(tokens)[None]).logits[0].numpy()
    checkpoint = Checkpoint.open(tmp_path)
    spec = checkpoint.spec.within(case.within)
    got = Reference(spec, checkpoint.tensors).logits(tokens.tolist())
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-4 * expected.std())
