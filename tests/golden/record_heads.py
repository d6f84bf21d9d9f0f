"""Records what speculators' own code computes for tiny random heads; needs torch and speculators.

    python tests/golden/record_heads.py [case ...]

The weights are made by numpy from a seed, here and in the test alike, so only logits are stored.
"""

import sys
from pathlib import Path

import numpy as np
import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "support"))
from heads_case import CASES, FOLDER, LENGTH, STEPS, TARGET, config, inputs, tensors  # noqa: E402
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig  # noqa: E402
from tiny_models import random_stored  # noqa: E402

from edgedec.models.registry import spec_for  # noqa: E402


def record(case: str) -> None:
    stated = {k: v for k, v in config(case).items() if k != "architectures"}
    described = Eagle3SpeculatorConfig(**stated)
    described.transformer_layer_config._attn_implementation = "eager"
    model = Eagle3DraftModel(described).eval()
    target = random_stored(spec_for(TARGET))
    state = {name: torch.from_numpy(values) for name, values in tensors(case).items()}
    state["embed_tokens.weight"] = torch.from_numpy(target["model.embed_tokens.weight"])
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected, unexpected
    assert all(name.startswith("verifier") or name == "t2d" for name in missing), missing
    logits: list[np.ndarray] = []
    model.lm_head.register_forward_hook(lambda _m, _i, out: logits.append(out[0].numpy()))
    tokens, states = inputs()
    with torch.no_grad():
        model(
            torch.from_numpy(states)[None],
            torch.from_numpy(tokens)[None],
            document_ids=torch.zeros(1, LENGTH, dtype=torch.long),
            ttt_steps=STEPS,
        )
    np.savez_compressed(FOLDER / f"{case}.npz", logits=np.stack(logits))


for case in sys.argv[1:] or CASES:
    record(case)
