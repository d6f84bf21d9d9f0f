"""Records what transformers computes for tiny random decoders; needs torch and transformers.

    python tests/golden/record.py [case ...]

A case is a file NAME.json with a configuration and the seed from which numpy makes its weights,
here and in the test alike: only some logits are recorded, in NAME.npz. Ministral 3, Qwen3.5, Gemma
4 and LFM2's mixtures are of transformers 5 (5.24), all others of the version that the tests have.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers

try:
    from transformers.modeling_utils import no_init_weights
except ImportError:  # transformers 5
    from transformers.initialization import no_init_weights

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "support"))
from tiny_models import random_stored  # noqa: E402

from edgedec.models.registry import spec_for  # noqa: E402

LENGTH = 48


def in_transformers(config: dict[str, object]) -> dict[str, object]:
    """The configuration of the same decoder in transformers."""
    if config["model_type"] in ("qwen3_5", "qwen3_5_moe"):
        text = f"{config['model_type']}_text"
        return {"pad_token_id": 0, **config["text_config"], "model_type": text}
    wrapped = {"gemma3": "gemma3_text", "mistral3": "ministral3"}
    if "text_config" in config:  # gemma4 and gemma4_unified say their own
        own = config["text_config"]
        return {**own, "model_type": wrapped.get(config["model_type"], own["model_type"])}
    if config["model_type"] == "minicpm":
        # Transformers has no MiniCPM of its own; Granite multiplies at the same places.
        return {
            "tie_word_embeddings": True,
            **config,
            "model_type": "granite",
            "embedding_multiplier": config["scale_emb"],
            "attention_multiplier": config["head_dim"] ** -0.5,
            "residual_multiplier": config["scale_depth"] / config["num_hidden_layers"] ** 0.5,
            "logits_scaling": config["hidden_size"] / config["dim_model_base"],
        }
    if config["model_type"] == "mimo":  # Transformers has none; its authors' class is a Qwen2.
        config = {**config, "model_type": "qwen2"}
    return {"pad_token_id": 0, **config}


def together(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """LFM2's experts as transformers 5 has them: in two tensors of each layer."""
    found, first = dict(tensors), "0.w1.weight"
    for stem in [name.removesuffix(first) for name in tensors if name.endswith(f"experts.{first}")]:
        experts = range(sum(name.startswith(stem) for name in tensors) // 3)
        gate, down, up = (
            np.stack([found.pop(f"{stem}{one}.w{way}.weight") for one in experts])
            for way in (1, 2, 3)
        )
        found |= {f"{stem}gate_up_proj": np.concatenate([gate, up], 1), f"{stem}down_proj": down}
    return found


def record(name: str) -> None:
    case = json.loads((HERE / f"{name}.json").read_text("utf-8"))
    config = case["config"]
    spec = spec_for(config)
    tensors = random_stored(spec, seed=case["seed"])
    model_config = transformers.AutoConfig.for_model(**in_transformers(config))
    model_config._attn_implementation = "eager"
    with no_init_weights():  # StableLM's own fails on norms without a bias
        model = transformers.AutoModelForCausalLM.from_config(model_config).eval()
    state = {
        key.replace("model.language_model.", "model."): torch.from_numpy(value)
        for key, value in together(tensors).items()
    }
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected, unexpected
    assert set(missing) <= {"lm_head.weight"}, missing
    assert not missing or spec.tied
    model.tie_weights()
    tokens = np.random.default_rng(7).integers(0, spec.vocab_size, LENGTH)
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens)[None]).logits[0].numpy()
    # Every third row and every fifth column tell as much, and keep the file small.
    np.savez_compressed(HERE / f"{name}.npz", tokens=tokens, logits=logits[::3, ::5])


if __name__ == "__main__":
    for case in sys.argv[1:] or sorted(file.stem for file in HERE.glob("*.json")):
        record(case)
        print(case)
