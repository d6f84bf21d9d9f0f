"""The text of a published model is that of llama.cpp alone, from the file and exported to ONNX."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from llamacpp_alone import Alone
from real_prompts import LONG, PROMPTS

from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.pipeline import Pipeline

COUNT = 32
TEXTS = [*PROMPTS.values(), LONG]
# Where sums are added in another order, a digit of a quantised activation tips. In logits; what no
# model would have chosen is several below the best.
NEAR_TIE = 0.5
# llama.cpp and the export differ on Gemma by hundredths of a logit, transformers and the export do
# not.
FP32 = {"SmolLM2": 1e-3, "gemma-3": 0.05}


@pytest.fixture(scope="module", params=["smollm2", "gemma3"])
def file(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(request.param)
    return found


@contextmanager
def alone(file: Path, **options: bool) -> Iterator[Alone]:
    model = Alone(file, **options)
    yield model
    model.close()


def plain(model: Path, asked: Sequence[str] = TEXTS) -> list[tuple[list[int], list[int]]]:
    """Return each prompt's tokens and its greedy text's, decoded plainly."""
    with Pipeline.open(model, drafter="none", plan="none", threads=1) as pipeline:
        prompts = [pipeline.tokenizer.encode(text) for text in asked]
        ask = {"max_new_tokens": COUNT, "ignore_eos": True}
        return [(prompt, pipeline.generate(prompt, **ask).token_ids) for prompt in prompts]


def farthest(model: Alone, texts: Sequence[tuple[list[int], list[int]]]) -> float:
    """Return how far the texts are from llama.cpp's greedy ones, in logits."""
    return max(float(model.gaps(*text).max()) for text in texts)


def test_the_file_writes_llamacpps_text(file: Path) -> None:
    texts = plain(file)
    with alone(file) as model:
        assert [prompt for prompt, _ in texts] == [model.encode(text) for text in TEXTS]
        assert farthest(model, texts) <= NEAR_TIE
        # The control: another prompt's text is not this prompt's.
        (prompt, _), (_, other) = texts[:2]
        assert farthest(model, [(prompt, other)]) > 2 * NEAR_TIE


def test_exported_to_fp32_it_writes_the_text_of_the_same_weights_in_llamacpp(
    file: Path, exported: Callable[[Path, str], Path], requantised: Callable[[Path, str], Path]
) -> None:
    (limit,) = (limit for name, limit in FP32.items() if file.name.startswith(name))
    texts = plain(exported(file, "fp32"))
    with alone(requantised(file, "f32"), f32=True) as model:
        assert [prompt for prompt, _ in texts] == [model.encode(text) for text in TEXTS]
        assert farthest(model, texts) <= limit
        # The control: the published file rounds activations, so it would be seen here.
        assert difference(model, exported(file, "fp32"), texts[0]) <= limit
    with alone(file) as model:
        assert farthest(model, texts) <= NEAR_TIE
        assert difference(model, exported(file, "fp32"), texts[0]) > 10 * limit


def difference(model: Alone, bundle: Path, text: tuple[list[int], list[int]]) -> float:
    """Return the largest difference of two models' logits along a text."""
    rows = model.rows(*text)
    (other,) = logits(bundle, [text])
    return float(np.abs(rows - other[:, : rows.shape[1]]).max())


def logits(bundle: Path, texts: Sequence[tuple[list[int], list[int]]]) -> list[FloatArray]:
    """Return what each token of each text is chosen from, ``[tokens, vocab]``."""
    kept = []
    with Pipeline.open(bundle, drafter="none", plan="none", threads=1) as pipeline:
        session = pipeline.target.open(2048)
        for prompt, text in texts:
            session.rollback(0)
            session.prefill(prompt[:-1])
            tree = TokenTree.chain([prompt[-1], *text[:-1]])
            found = session.forward(tree).logits
            assert found is not None
            kept.append(found.copy())
            session.commit(list(range(len(tree))))
        session.close()
    return kept


@pytest.mark.parametrize(("weights", "floor"), [("int8", 0.02), ("int4", 0.6)])
def test_rounding_for_onnx_stays_close(
    smollm2: Path, exported: Callable[[Path, str], Path], weights: str, floor: float
) -> None:
    """Mean KL of the exported model from the fp32 one, in nats, along the fp32 one's texts."""
    source = exported(smollm2, "fp32")
    texts = plain(source, TEXTS[:4])
    pairs = zip(logits(source, texts), logits(exported(smollm2, weights), texts), strict=True)
    found = float(np.mean([divergence(*pair) for pair in pairs]))
    assert 0 < found < floor


def divergence(expected: FloatArray, found: FloatArray) -> float:
    """Return the mean KL of rows, in nats."""
    one, two = log_softmax(expected), log_softmax(found)
    return float((np.exp(one) * (one - two)).sum(1).mean())


def log_softmax(rows: FloatArray) -> FloatArray:
    wide = rows.astype(np.float64) - rows.max(1, keepdims=True)
    found: FloatArray = wide - np.log(np.exp(wide).sum(1, keepdims=True))
    return found
