"""Runs an exported graph with onnxruntime alone, without the runtime adapter."""

import numpy as np
import onnxruntime

CAPACITY = 64


def run(folder, spec, parts):
    """Outputs by name of one pass for each part of a text."""
    return list(passes(folder, spec, parts))


def tree(folder, spec, tokens, nodes):
    """Logits of each node of a tree after ``tokens``; nodes are ``(token, parent)``."""
    seen = np.full((len(nodes), len(nodes)), -np.inf, np.float32)
    depths = []
    for i, (_, parent) in enumerate(nodes):
        depths.append(0 if parent < 0 else depths[parent] + 1)
        seen[i, i] = 0
        if parent >= 0:
            seen[i, seen[parent] == 0] = 0
    changes = {"position_ids": np.array([depths]) + len(tokens), "attention_bias": seen}
    outputs = list(passes(folder, spec, [tokens, [token for token, _ in nodes]], changes))
    return outputs[-1]["logits"]


def passes(folder, spec, parts, last=None):
    """Outputs of each pass; ``last`` has positions and a bias for the last part."""
    session = onnxruntime.InferenceSession(
        str(folder / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    kinds = {"tensor(float)": np.float32, "tensor(int8)": np.int8}
    # Rows that a recurrence has with the empty state.
    rows = {"p": max((kind.kept for kind in spec.mixers if kind), default=0)}
    cache = {
        past.name: np.zeros(
            [rows.get(d, CAPACITY) if type(d) is str else d for d in past.shape], kinds[past.type]
        )
        for past in session.get_inputs()
        if past.name.startswith("past_")
    }
    done = 0
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
        if any(name.startswith("past_state") for name in cache):
            feed |= {"real_rows": np.ones((1, count, 1), np.float32),
                     "returned_rows": np.arange(count)}  # fmt: skip
        if last and total == sum(map(len, parts)):
            feed["position_ids"] = last["position_ids"]
            feed["attention_bias"][0, 0, :, done:] = last["attention_bias"]
        outputs = dict(zip(names, session.run(None, feed | cache), strict=True))
        for name, past in cache.items():
            present = outputs[name.replace("past", "present")]
            if name.startswith("past_inputs"):
                # A convolution reads those of the last tokens, a recurrence the pass's after them.
                recurs = name.replace("inputs", "state") in cache
                used = past.shape[1] - rows["p"] if recurs else present.shape[1]
                present = np.concatenate([past, present], 1)[:, used:]
            cache[name] = present
        yield outputs
        done = total


def logits(folder, spec, parts):
    """Logits after each token, ``[n, vocab]``."""
    return np.concatenate([outputs["logits"] for outputs in run(folder, spec, parts)])
