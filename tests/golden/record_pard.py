"""Records what PARD's own loop drafts and keeps; needs torch, transformers and its repository.

    python tests/golden/record_pard.py CLONE_OF_AMD-AGI/PARD

Its loop runs as it is, but for CUDA and for the prompt, which is made of ids. The weights are made
by numpy from seeds, here and in the test alike.
"""

import contextlib
import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import torch
from transformers import AutoModelForCausalLM, StaticCache

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "support"))
from pard_case import CASE, DRAFT_LENGTH, NEW_TOKENS, PROMPT, checkpoints  # noqa: E402

ROOM = 256


def module_of(clone: Path):
    spec = importlib.util.spec_from_file_location("pard_infer", clone / "pard" / "pard_infer.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def load(folder: Path):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.forward_gen = model.forward
    return model, StaticCache(config=model.config, max_cache_len=ROOM)


def main() -> None:
    module = module_of(Path(sys.argv[1]))
    read: list[list[int]] = []
    with tempfile.TemporaryDirectory() as scratch:
        target, draft = checkpoints(Path(scratch))
        infer = module.PardInfer(
            DRAFT_LENGTH, NEW_TOKENS, str(draft), str(target), "", True, max_cache_len=ROOM
        )
        infer.speed_logger = lambda *_, **__: 1.0
        infer.get_input = lambda *_, **__: ("", torch.tensor([PROMPT]))
        (model, target_cache), (model_draft, draft_cache) = load(target), load(draft)
        inner = model.forward

        def noted(**given):
            read.append(given["input_ids"][0].tolist())
            return inner(**given)

        model.forward = model.forward_gen = noted
        tokenizer = SimpleNamespace(
            eos_token_id=torch.tensor(-1), decode=lambda ids: read.append(ids.tolist())
        )
        no_cuda = patch.object(
            torch.backends.cuda, "sdp_kernel", lambda **_: contextlib.nullcontext()
        )
        # What it prints of its speed at the end divides by the time, which is none.
        with no_cuda, contextlib.suppress(ZeroDivisionError):
            infer.generate([""], model, model_draft, target_cache, draft_cache, tokenizer)
    *rounds, text = read
    drafts = [tokens[-DRAFT_LENGTH:] for tokens in rounds]
    CASE.write_text(json.dumps({"drafts": drafts, "text": text}) + "\n")


if __name__ == "__main__":
    main()
