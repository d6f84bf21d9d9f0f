"""Records what transformers computes for tiny Gemma 4 assistants; needs torch, transformers 5.24.

    python tests/golden/record_assistant.py [case ...]

The weights and all that an assistant reads of its target are made by numpy from a seed, here and in
the test alike, so only logits and states are stored.
"""

import sys
from pathlib import Path

import numpy as np
import torch
import transformers

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "support"))
from assistant_case import CASES, FOLDER, NEAR, ROWS, TEXT, WHOLE, config, inputs, tensors  # noqa: E402


def record(case: str) -> None:
    stated = config(case)
    described = transformers.AutoConfig.for_model(**stated)
    described.get_text_config()._attn_implementation = "eager"
    described._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(described).eval()
    weights = {name: torch.from_numpy(values) for name, values in tensors(stated).items()}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected, unexpected
    assert set(missing) <= {"lm_head.weight"}, missing
    model.tie_weights()
    tokens, embedded, state, cache = inputs()
    # A window counts the token itself. Its assistant's mask lets two more rows through, which the
    # target's cache has dropped by then, as the caches of llama.cpp and LiteRT have.
    kept = {NEAR: TEXT["sliding_window"] - 1, WHOLE: ROWS}
    shared = {
        kind: tuple(torch.from_numpy(part[None, :, -kept[kind] :]) for part in parts)
        for kind, parts in cache.items()
    }
    logits, states, carried = [], [], torch.from_numpy(state)[None, None]
    for token in tokens:
        row = torch.from_numpy(embedded[token])[None, None]
        with torch.no_grad():
            out = model(
                inputs_embeds=torch.cat([row, carried], dim=-1),
                position_ids=torch.tensor([[ROWS]]),
                attention_mask=None,
                shared_kv_states=shared,
            )
        carried = out.last_hidden_state
        logits.append(out.logits[0, 0].numpy())
        states.append(carried[0, 0].numpy())
    np.savez_compressed(FOLDER / f"{case}.npz", logits=np.stack(logits), states=np.stack(states))


for case in sys.argv[1:] or CASES:
    record(case)
