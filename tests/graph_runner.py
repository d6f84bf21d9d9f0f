"""Runs an exported graph with onnxruntime alone, without the runtime adapter."""

import numpy as np
import onnxruntime

CAPACITY = 64


def run(folder, spec, parts):
    """Outputs by name of one pass for each part of a text."""
    session = onnxruntime.InferenceSession(
        str(folder / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    shape = (1, spec.kv_heads, CAPACITY, spec.head_dim)
    cache = {
        f"past_{part}_{layer}": np.zeros(shape, np.float32)
        for part in ("key", "value")
        for layer in range(spec.layers)
    }
    done, passes = 0, []
    for tokens in parts:
        count, total = len(tokens), done + len(tokens)
        feed = {
            "input_ids": np.array([tokens], np.int64),
            "position_ids": np.arange(done, total)[None],
            "attention_bias": np.zeros((1, 1, count, total), np.float32),
            "seqlens_k": np.array([total - 1], np.int32),
            "total_sequence_length": np.array(total, np.int32),
            "rows": np.arange(count),
        }
        passes.append(dict(zip(names, session.run(None, feed | cache), strict=True)))
        cache = {name: passes[-1][name.replace("past", "present")] for name in cache}
        done = total
    return passes


def logits(folder, spec, parts):
    """Logits after each token, ``[n, vocab]``."""
    return np.concatenate([outputs["logits"] for outputs in run(folder, spec, parts)])
