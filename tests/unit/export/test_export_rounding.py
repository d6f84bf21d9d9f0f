"""Rounding for what texts bring: every matrix once, in order, each after those before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import graph_runner
import numpy as np
import pytest
from kinds import each_once, in_full
from tiny_models import MemoryTensors, needs_quantised_experts, random_tensors, tiny_config

from edgedec.export import calibrated
from edgedec.export.calibrated import CalibratedRounding
from edgedec.export.onnx import GraphOptions, write_model
from edgedec.export.quantize import Blocks, dequantize, quantize
from edgedec.export.reference import Product, Reference
from edgedec.export.tensors import FloatArray, TensorReader
from edgedec.models.decoder import DecoderSpec
from edgedec.models.registry import spec_for

CASES: dict[str, dict[str, Any]] = {
    "llama": {},
    "tied": {"tie_word_embeddings": True},
    "biased": {"model_type": "qwen2"},
    "normed heads": {"model_type": "qwen3", "head_dim": 32},
    "odd sizes": {"hidden_size": 72, "intermediate_size": 104},
    "capped": {"model_type": "gemma2", "final_logit_softcapping": 2.5},
    "norms after": {"model_type": "olmo2"},
    "parallel": {"model_type": "stablelm", "use_parallel_residual": True},
    "not gated": {"model_type": "gpt2"},
}
EXPERTS = {
    "model_type": "qwen3_moe", "moe_intermediate_size": 96, "num_experts": 3,
    "num_experts_per_tok": 2,
}  # fmt: skip
RNG = np.random.default_rng(3)
TEXTS = [RNG.integers(0, 90, length).tolist() for length in (40, 64, 7, 64)]


class Recorded(CalibratedRounding):
    """Keeps what its matrices became."""

    def __init__(self, *more: Any) -> None:
        super().__init__(*more)
        self.arrays: dict[str, FloatArray] = {}

    def blocks(
        self, tensors: TensorReader, names: Sequence[str], bits: int, block_size: int
    ) -> Iterator[Blocks]:
        for name in names:
            yield from self._kept(name, super().blocks(tensors, [name], bits, block_size), bits)

    def head(
        self, tensors: TensorReader, names: Sequence[str], bits: int, block_size: int
    ) -> Iterator[Blocks]:
        found = super().head(tensors, names, bits, block_size)
        return self._kept("the head", found, bits)

    def _kept(self, name: str, parts: Iterator[Blocks], bits: int) -> Iterator[Blocks]:
        known = list(parts)
        self.arrays[name] = np.concatenate(
            [dequantize(each.packed, each.scales, bits, each.packed.size) for each in known]
        )
        yield from known


def made(
    config: dict[str, Any], folder: Path, head_bits: int = 8
) -> tuple[DecoderSpec, dict[str, FloatArray], Recorded]:
    spec = spec_for(tiny_config(**config))
    arrays = random_tensors(spec, 5)
    tensors = MemoryTensors(arrays)
    rounding = Recorded(spec, tensors, TEXTS, 4, 32)
    options = GraphOptions("tiny", weights="int4", block_size=32, head_bits=head_bits)
    write_model(spec, tensors, folder, options, rounding)
    return spec, arrays, rounding


def what_is_stored(
    spec: DecoderSpec, arrays: dict[str, FloatArray], rounding: Recorded
) -> dict[str, FloatArray]:
    """The checkpoint with what its matrices became."""
    return {
        name: rounding.arrays[name][:, : array.shape[1]] if name in rounding.arrays else array
        for name, array in arrays.items()
    }


def went_through(spec: DecoderSpec, arrays: dict[str, FloatArray], rounding: Recorded) -> None:
    """Check that the texts were read by what is stored."""
    stored = what_is_stored(spec, arrays, rounding)
    # The texts themselves begin with the source's embedding.
    for role in ("embed", "positions"):
        if spec.name(role) in arrays:
            stored[spec.name(role)] = arrays[spec.name(role)]
    list(rounding._work)  # with a tied head nobody asked for what follows the last matrix
    reference = Reference(spec, MemoryTensors(stored))
    for text, stream in zip(TEXTS, rounding._streams, strict=True):
        x = reference.embed(text)
        for layer in range(spec.layers):
            x = reference.layer(layer, x)
        np.testing.assert_allclose(stream, x, rtol=1e-3, atol=1e-3 * np.abs(x).max())


def test_the_head_is_rounded_for_what_the_final_norm_gives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, list[FloatArray]] = {}
    honest = CalibratedRounding._factor

    def factor(self: Any, names: Sequence[str], inputs: Sequence[FloatArray]) -> Any:
        seen.update((name, [x.copy() for x in inputs]) for name in names)
        return honest(self, names, inputs)

    monkeypatch.setattr(CalibratedRounding, "_factor", factor)
    spec, arrays, rounding = made({}, tmp_path, head_bits=4)
    weight = arrays[spec.name("final_norm")]
    for x, stream in zip(seen[spec.name("head")], rounding._streams, strict=True):
        np.testing.assert_allclose(np.square(x / weight).mean(axis=1), 1, rtol=1e-3)
        assert np.abs(np.square(stream / weight).mean(axis=1) - 1).min() > 0.05, "the control"


@pytest.mark.parametrize("name", in_full(CASES, 5))
def test_the_texts_went_through_what_is_stored(name: str, tmp_path: Path) -> None:
    spec, arrays, rounding = made(CASES[name], tmp_path)
    calibrated = {
        spec.name(role, layer)
        for layer in range(spec.layers)
        for role in ("q", "k", "v", "o", "up", "down", *(["gate"] if spec.gated else []))
    }
    assert calibrated <= set(rounding.arrays)
    went_through(spec, arrays, rounding)
    assert rounding.notes == []


@pytest.mark.parametrize("name", in_full(CASES, 2))
def test_a_twin_that_reads_on_with_the_source_is_noticed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = calibrated.dequantize
    monkeypatch.setattr(calibrated, "dequantize", lambda *packed: 1.01 * honest(*packed))
    with pytest.raises(AssertionError):
        test_the_texts_went_through_what_is_stored(name, tmp_path)


@pytest.mark.parametrize(("name", "head_bits"), each_once(CASES, (8, 4)))
def test_the_graph_computes_with_it(name: str, head_bits: int, tmp_path: Path) -> None:
    spec, arrays, rounding = made(CASES[name], tmp_path, head_bits)
    stored = what_is_stored(spec, arrays, rounding)
    head = rounding.arrays.get("the head")
    text = TEXTS[0]
    x = Reference(spec, MemoryTensors(stored)).embed(text)
    if head is not None:
        stored[spec.name("head")] = head[:, : spec.hidden]
    reference = Reference(spec, MemoryTensors(stored))
    for layer in range(spec.layers):
        x = reference.layer(layer, x)
    expected = reference.head(reference.final_norm(x), 0, spec.vocab_size)
    got = graph_runner.logits(tmp_path, spec, [text])
    # Activations are rounded to int8 by the kernel.
    assert np.abs(got - expected).max() < 0.2 * expected.std()
    # What tokens are looked up in is rounded as a table, also where it is the head.
    assert (head is None) == (spec.tied and spec.hidden % 32 == 0)


def test_layers_are_told_when_their_matrices_are_done(tmp_path: Path) -> None:
    spec = spec_for(tiny_config(tie_word_embeddings=True))
    tensors, told = MemoryTensors(random_tensors(spec, 5)), []
    rounding = CalibratedRounding(spec, tensors, TEXTS, 4, 32, lambda *step: told.append(step))
    write_model(spec, tensors, tmp_path, GraphOptions("tiny", head_bits=8), rounding)
    assert told == [(1, 2), (2, 2)]


@needs_quantised_experts
@pytest.mark.parametrize("renormalised", [False, True])
def test_an_expert_is_rounded_for_the_tokens_that_reach_it(
    renormalised: bool, tmp_path: Path
) -> None:
    config = EXPERTS | {"norm_topk_prob": renormalised}
    spec, arrays, rounding = made(config, tmp_path)
    went_through(spec, arrays, rounding)
    roles = ("q", "k", "v", "o", "experts_up", "experts_gate", "experts_down")
    assert {spec.name(role, 1) for role in roles} <= set(rounding.arrays)
    assert not [note for note in rounding.notes if "experts" in note]
    got = graph_runner.logits(tmp_path, spec, [TEXTS[0]])
    expected = Reference(spec, MemoryTensors(what_is_stored(spec, arrays, rounding))).logits(
        TEXTS[0]
    )
    assert np.abs(got - expected).max() < 0.2 * expected.std()
    # By its products on those tokens; the weights themselves are further off.
    reference = Reference(spec, MemoryTensors(arrays))
    lost = {"calibrated": 0.0, "plain": 0.0}

    def hear(asked: Product) -> None:
        if asked.name != spec.name("experts_up", 0):
            return
        rows = slice(asked.start, asked.stop)
        weights = arrays[asked.name][rows]
        plain = quantize(weights, 4, 32)
        ways = {
            "calibrated": rounding.arrays[asked.name][rows],
            "plain": dequantize(plain.packed, plain.scales, 4, weights.shape[1]),
        }
        for name, rounded in ways.items():
            lost[name] += float(np.square(asked.x @ (weights - rounded).T).sum())

    for text in TEXTS:
        reference.layer(0, reference.embed(text), hear)
    assert lost["calibrated"] < 0.75 * lost["plain"]


@needs_quantised_experts
def test_an_expert_that_no_token_reaches_is_rounded_plainly_and_counted(tmp_path: Path) -> None:
    spec = spec_for(tiny_config(**EXPERTS))
    arrays = random_tensors(spec, 5)
    # Of equal shares the first two of three experts win.
    arrays[spec.name("router", 1)] = np.zeros_like(arrays[spec.name("router", 1)])
    rounding = Recorded(spec, MemoryTensors(arrays), TEXTS, 4, 32)
    options = GraphOptions("tiny", weights="int4", block_size=32)
    write_model(spec, MemoryTensors(arrays), tmp_path, options, rounding)
    assert rounding.notes == [
        "1 of 6 experts rounded without calibration: no token of the texts reached them"
    ]
    for role in ("up", "gate", "down"):
        name = spec.name(f"experts_{role}", 1)
        rows = len(arrays[name]) // 3
        plain = quantize(arrays[name], 4, 32)
        expected = dequantize(plain.packed, plain.scales, 4, arrays[name].shape[1])
        same = (rounding.arrays[name] == expected).all(axis=1)
        assert same[2 * rows :].all()
        assert not same[: 2 * rows].all()


def test_what_cannot_be_calibrated_is_rounded_plainly_and_said(tmp_path: Path) -> None:
    spec = spec_for(tiny_config())
    arrays = random_tensors(spec, 5)
    arrays[spec.name("attention_norm", 1)] = np.full(spec.hidden, np.nan, np.float32)
    rounding = Recorded(spec, MemoryTensors(arrays), TEXTS, 4, 32)
    options = GraphOptions("tiny", weights="int4", block_size=32)
    with np.errstate(all="ignore"):
        write_model(spec, MemoryTensors(arrays), tmp_path, options, rounding)
    assert rounding.notes[0].startswith(f"{spec.name('q', 1)} is rounded without calibration:")
    # Every matrix from there on, each by its name.
    assert [note.split()[0] for note in rounding.notes] == [
        *(spec.name(role, 1) for role in ("q", "k", "v", "o", "up", "gate", "down")),
        spec.name("head"),
    ]
