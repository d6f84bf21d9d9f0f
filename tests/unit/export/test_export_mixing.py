"""Bits by what matrices lose: which are raised, how many, and what is written."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import graph_runner
import numpy as np
import onnx
import pytest
import tiny_tokenizers
from kinds import each_once, in_full
from tiny_models import (
    CHECKPOINT_VOCAB,
    MemoryTensors,
    random_stored,
    random_tensors,
    save_checkpoint,
    tiny_config,
)

from edgedec.errors import ParityError
from edgedec.export import (
    ExportOptions,
    ExportReport,
    calibration,
    export_bundle,
    sensitivity,
    weighed,
)
from edgedec.export.calibrated import CalibratedRounding
from edgedec.export.mixing import Mixing
from edgedec.export.onnx import GraphOptions, write_model
from edgedec.export.quantize import Blocks, PlainRounding, dequantize, quantize
from edgedec.export.reference import Reference
from edgedec.export.sensitivity import Unit, measure, units
from edgedec.export.tensors import FloatArray, TensorReader
from edgedec.export.weighed import KeptRounding, KeptTensors
from edgedec.models.decoder import DecoderSpec
from edgedec.models.registry import spec_for

DEMO = Path(__file__).parents[3] / "models" / "demo" / "draft"
TEXTS = [np.random.default_rng(3).integers(0, 90, 40).tolist() for _ in range(4)]
LOSSES = (0.2, 0.001, 0.05, 0.02, 0.004, 0.1, 0.0005, 0.01)
ROLES = [("v",), ("q", "k", "down"), ("gate", "up", "o")]
UNITS = [Unit((f"m{n}",), 1000 + n, loss) for n, loss in enumerate(LOSSES)]


# -- how many ------------------------------------------------------------------------------------


class Model:
    """Loses what its matrices in int4 lose, times a factor that nobody knows."""

    def __init__(self, factor: float) -> None:
        self.factor, self.asked = factor, list[frozenset[str]]()

    def lost(self, raised: frozenset[str]) -> float:
        return self.factor * sum(unit.loss for unit in UNITS if unit.names[0] not in raised)

    def __call__(self, raised: frozenset[str]) -> float:
        self.asked.append(raised)
        return self.lost(raised)


def fewest(model: Model, most: float, units: Sequence[Unit] = UNITS) -> Any:
    return Mixing(units, model, most).best(model.lost(frozenset()))


@pytest.mark.parametrize("factor", [0.4, 1.0, 2.5])
@pytest.mark.parametrize("most", [0.3, 0.05, 0.02])
def test_few_matrices_are_raised_and_it_is_close_enough(factor: float, most: float) -> None:
    model = Model(factor)
    found = fewest(model, most)
    assert found.kl_nats == model.lost(found.raised) <= most
    assert len(model.asked) <= 6
    # One fewer would not do, or it is about as close as asked.
    last = next(
        (u for u in sorted(UNITS, key=lambda u: u.loss) if u.names[0] in found.raised), None
    )
    if last is not None:
        fewer = found.raised - set(last.names)
        assert model.lost(fewer) > most or found.kl_nats >= 0.5 * most


@pytest.mark.usefixtures("full_exports")
def test_what_loses_most_by_byte_is_raised_first() -> None:
    large = Unit(("large",), 100_000, 0.21)
    found = Mixing([*UNITS, large], lambda raised: 0.3 if "m0" not in raised else 0.01, 0.05)
    assert found.best(0.6).raised >= {"m0"}
    assert "large" not in found.best(0.6).raised


def test_a_large_matrix_is_tried_with_fewer_of_the_others() -> None:
    """By loss per byte it comes last, but without it nothing is close enough."""
    small = [Unit((f"s{number}",), 1_000, 0.02 - number / 1000) for number in range(20)]
    head = Unit(("head",), 100_000, 0.1)
    losses = {unit.names[0]: unit.loss for unit in (*small, head)}

    def lost(raised: frozenset[str]) -> float:
        return sum(loss for name, loss in losses.items() if name not in raised)

    found = Mixing([*small, head], lost, 0.05).best(lost(frozenset()))
    assert "head" in found.raised
    assert len(found.raised) < 15
    # The control: by loss per byte alone, all the others are there before it is.
    order = sorted((*small, head), key=lambda unit: unit.loss / unit.numbers)
    assert order[0].names == ("head",)


def test_blind_to_losses_more_is_raised() -> None:
    """The control: in another order, more matrices are needed."""
    blind = [Unit(unit.names, unit.numbers, 1.0 / (1 + unit.loss)) for unit in UNITS]
    assert len(fewest(Model(1), 0.05, blind).raised) > len(fewest(Model(1), 0.05).raised)


def test_all_are_raised_where_nothing_less_is_enough() -> None:
    found = Mixing(UNITS, lambda raised: 0.5, 0.05).best(0.6)
    assert (len(found.raised), found.share) == (len(UNITS), 1.0)


def test_close_enough_in_int4_nothing_is_raised() -> None:
    model = Model(1.0)
    assert fewest(model, 0.5).raised == frozenset()
    assert not model.asked


# -- what int4 costs -----------------------------------------------------------------------------

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {},
    "tied": {"tie_word_embeddings": True},
    "experts": {
        "model_type": "qwen3_moe", "moe_intermediate_size": 96, "num_experts": 3,
        "num_experts_per_tok": 2,
    },
}  # fmt: skip


def plant(arrays: dict[str, FloatArray], up: str, down: str) -> None:
    """Give each block of a matrix one large weight, whose input is as much smaller.

    The decoder computes what it did, but int4 leaves little of the matrix's other weights.
    """
    rows = np.arange(len(arrays[up])) % arrays[down].shape[1] % 32 == 0
    arrays[up] = np.where(rows[:, None], arrays[up] / np.float32(60), arrays[up])
    arrays[down] = arrays[down].copy()
    arrays[down][:, ::32] *= np.float32(60)


def lost(spec: DecoderSpec, arrays: dict[str, FloatArray]) -> list[Unit]:
    tensors = MemoryTensors(arrays)
    coarse = KeptTensors(tensors, KeptRounding(PlainRounding(), Path()), 32)
    return measure(spec, tensors, TEXTS, coarse, lambda done, total: None)


@pytest.mark.parametrize("name", in_full(CONFIGS))
def test_a_planted_matrix_is_the_most_sensitive(name: str) -> None:
    spec = spec_for(tiny_config(**CONFIGS[name]))
    arrays = random_tensors(spec, 5)
    prefix = "experts_" if name == "experts" else ""
    sensitive = spec.name(f"{prefix}down", 1)
    honest = _losses(spec, arrays)
    plant(arrays, spec.name(f"{prefix}up", 1), sensitive)
    found = _losses(spec, arrays)
    (planted,) = [names for names in found if sensitive in names]
    assert max(found, key=lambda names: found[names]) == planted
    assert found[planted] > 3 * honest[planted], "the control: it is not by itself"


def test_layers_that_add_nothing_say_nothing_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their loss and their error are zero but for rounding: the ratio of the two is anything."""
    monkeypatch.setattr(sensitivity, "_FOLLOWED", 4)
    spec = spec_for(tiny_config(num_hidden_layers=10))
    arrays = random_tensors(spec, 5)
    for layer in (3, 6, 9):  # followed, as the first is
        for role in ("o", "down"):
            arrays[spec.name(role, layer)] *= 0
    assert all(0 <= loss < 1 for loss in _losses(spec, arrays).values())


@pytest.mark.parametrize("name", in_full(reversed(CONFIGS)))
def test_units_of_each_layer_lose_together_what_it_loses_by_itself(name: str) -> None:
    spec = spec_for(tiny_config(**CONFIGS[name], num_hidden_layers=4))
    arrays = random_tensors(spec, 5)
    losses, texts = _losses(spec, arrays), sensitivity._some(spec, TEXTS)
    for layer in range(spec.layers):
        of_layer = units(spec, layer)
        stored = arrays | {each: _rounded_rows(arrays[each]) for unit in of_layer for each in unit}
        expected, got = (
            np.concatenate([Reference(spec, MemoryTensors(of)).logits(text) for text in texts])
            for of in (arrays, stored)
        )
        shift = log_softmax(expected) - log_softmax(got)
        kl = (np.exp(log_softmax(expected)) * shift).sum(axis=1).mean()
        assert sum(losses[unit] for unit in of_layer) == pytest.approx(kl, rel=0.01), layer


def log_softmax(logits: FloatArray) -> FloatArray:
    wide = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))


def _rounded_rows(array: FloatArray) -> FloatArray:
    tensors = KeptTensors(MemoryTensors({"it": array}), KeptRounding(PlainRounding(), Path()), 32)
    return tensors.rows("it", 0, len(array))


def _losses(spec: DecoderSpec, arrays: dict[str, FloatArray]) -> dict[tuple[str, ...], float]:
    """The losses of units; each matrix of the layers, and the head, is in one of them."""
    found = lost(spec, arrays)
    names = [name for unit in found for name in unit.names]
    named = [name for layer in range(spec.layers) for unit in units(spec, layer) for name in unit]
    assert sorted(names) == sorted([*named, spec.name("head")])
    assert all(unit.loss >= 0 for unit in found)
    return {unit.names: unit.loss for unit in found}


@pytest.mark.usefixtures("full_exports")
def test_a_layers_loss_is_that_of_the_model_with_it_in_int4() -> None:
    spec = spec_for(tiny_config())
    arrays = random_tensors(spec, 5)
    found = lost(spec, arrays)
    names = [name for unit in units(spec, 1) for name in unit]
    told = sum(unit.loss for unit in found if unit.names[0] in names)
    rounded = dict(arrays)
    for each in names:
        done = quantize(arrays[each], 4, 32)
        rounded[each] = dequantize(done.packed, done.scales, 4, arrays[each].shape[1])
    honest, coarse = (Reference(spec, MemoryTensors(a)) for a in (arrays, rounded))
    parts = []
    for text in TEXTS:
        p, q = (_logs(one.logits(text)[:, : spec.vocab_used]) for one in (honest, coarse))
        parts.append((np.exp(p) * (p - q)).sum(axis=1))
    assert told == pytest.approx(float(np.concatenate(parts).mean()), rel=1e-3)


def _logs(logits: FloatArray) -> FloatArray:
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))


# -- what is written -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "model_type"),
    each_once(itertools.product(ROLES, [None, 64]), ["llama", "qwen2", "gpt2"]),
)
def test_a_graph_of_both_computes_with_both(
    how: tuple[tuple[str, ...], int | None], model_type: str, tmp_path: Path
) -> None:
    roles, block = how
    spec = spec_for(tiny_config(model_type=model_type))
    arrays = random_tensors(spec, 5)
    raised = {spec.name(role, 1) for role in roles if spec.gated or role != "gate"}
    options = GraphOptions("tiny", head_bits=8, raised=frozenset(raised), raised_block=block)
    write_model(spec, MemoryTensors(arrays), tmp_path, options)
    # Of widths that fit. The control: with none asked there is none.
    assert (_blocks(tmp_path) == {(4, 32), (8, 32)}) == (block is None)
    assert (8, 64) in _blocks(tmp_path) or block is None
    stored = dict(arrays)
    for layer in range(spec.layers):
        for unit in units(spec, layer):
            for name in unit:
                stored[name] = _rounded(arrays[name], 8 if name in raised else 4)
    expected = Reference(spec, MemoryTensors(stored)).logits(TEXTS[0])
    got = graph_runner.logits(tmp_path, spec, [TEXTS[0]])
    # Activations are rounded in blocks as large as those of the weights.
    assert np.abs(got - expected).max() < (0.3 if block else 0.2) * expected.std()


def _blocks(folder: Path) -> set[tuple[int, int]]:
    """Return the bits and blocks of a graph's quantised products."""
    found = set()
    for node in onnx.load(folder / "model.onnx", load_external_data=False).graph.node:
        if node.op_type in ("MatMulNBits", "GatherBlockQuantized"):
            of = {each.name: each.i for each in node.attribute}
            found.add((of["bits"], of["block_size"]))
    return found


def _rounded(array: FloatArray, bits: int) -> FloatArray:
    done = quantize(array, bits, 32)
    return dequantize(done.packed, done.scales, bits, array.shape[1])


def test_a_kept_matrix_is_rounded_once(tmp_path: Path) -> None:
    asked: list[str] = []

    class Counted(PlainRounding):
        def blocks(
            self, tensors: TensorReader, names: Sequence[str], bits: int, block_size: int
        ) -> Iterator[Blocks]:
            asked.extend(names)
            return super().blocks(tensors, names, bits, block_size)

    tensors = MemoryTensors({"a": np.eye(32, dtype=np.float32)})
    kept = KeptRounding(Counted(), tmp_path)
    first, again = (next(kept.blocks(tensors, ["a"], 4, 32)) for _ in range(2))
    np.testing.assert_array_equal(first.packed, again.packed)
    np.testing.assert_array_equal(first.scales, again.scales)
    assert (first.squared_error, first.squared_weight) == (again.squared_error, 32)
    dense = KeptTensors(tensors, kept, 32).rows("a", 1, 3)
    whole = dequantize(first.packed, first.scales, 4, 32)
    np.testing.assert_array_equal(dense, whole[1:3])
    finer = next(kept.blocks(tensors, ["a"], 8, 32))
    assert finer.squared_error < 1e-6
    assert asked == ["a"]


# -- whole exports -------------------------------------------------------------------------------


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "FEW", 256)


def checkpoint(folder: Path, *, spoilt: bool = True, sharp: float = 4.0) -> Path:
    """A tiny checkpoint that is sure of its next token; int4 spoils one of its matrices."""
    spec = spec_for(config := tiny_config(vocab_size=CHECKPOINT_VOCAB))
    arrays = random_stored(spec, 5)
    arrays["lm_head.weight"] *= np.float32(sharp)
    if spoilt:
        plant(arrays, "model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.down_proj.weight")
    save_checkpoint(folder, config, arrays)
    return tiny_tokenizers.save(tiny_tokenizers.byte_level(), folder)


def exported(target: Path, out: Path, **more: Any) -> ExportReport:
    return export_bundle(ExportOptions(target, out, **{"calibration": "none", **more}))


def bits(report: ExportReport) -> dict[str, int]:
    """The bits of each product, by the name of what it makes."""
    graph = onnx.load(report.path / report.models[0].files[0], load_external_data=False).graph
    return {
        node.name: attribute.i
        for node in graph.node
        for attribute in node.attribute
        if node.op_type == "MatMulNBits" and attribute.name == "bits"
    }


@pytest.mark.usefixtures("few")
def test_pure_int4_is_refused_and_auto_adds_bits_where_they_are_missed(tmp_path: Path) -> None:
    target = checkpoint(tmp_path / "target")
    with pytest.raises(ParityError, match="diverges too far"):
        exported(target, tmp_path / "int4", weights="int4")
    report = exported(target, tmp_path / "auto")
    model = report.models[0]
    assert model.weights in ("int4+int8", "int8")
    assert "of it int8 to stay close: " in model.notes[0]
    assert bits(report)["layers.1.branch"] == 8
    closer = exported(target, tmp_path / "closer", max_kl=0.01).models[0]
    assert closer.parity["kl_nats"] <= model.parity["kl_nats"]
    assert closer.size_bytes >= model.size_bytes


@pytest.mark.usefixtures("few")
def test_a_model_that_is_close_in_int4_stays_in_int4(tmp_path: Path) -> None:
    target = checkpoint(tmp_path / "target", spoilt=False, sharp=0.1)
    report = exported(target, tmp_path / "out", parity=False)
    assert report.models[0].weights == "int4"
    # A head that costs little is in int8 from the start.
    assert {one for name, one in bits(report).items() if name != "logits"} == {4}
    assert report.models[0].notes[0].startswith("int4: ")


def garbage(
    honest: Callable[..., Iterator[Blocks]],
) -> Callable[..., Iterator[Blocks]]:
    def blocks(*more: Any) -> Iterator[Blocks]:
        for each in honest(*more):
            yield Blocks(each.packed, each.scales * np.float32(2), 1.0, each.squared_weight)

    return blocks


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("weights", in_full(["auto", "int4"]))
def test_a_calibration_that_is_worse_is_not_kept(
    weights: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = checkpoint(tmp_path / "target", spoilt=False, sharp=1.0)
    more: dict[str, Any] = {"weights": weights, "calibration": "self", "parity": False}
    if weights == "auto":
        more["max_kl"] = 9.0
    said = "rounded to nearest: on held-out text closer than calibrated"

    class Worse(PlainRounding):
        blocks = garbage(PlainRounding.blocks)

    with monkeypatch.context() as patch:
        patch.setattr(weighed, "PlainRounding", Worse)
        other = exported(target, tmp_path / "other", **more)
        assert not any(note.startswith(said) for note in other.models[0].notes), "the control"
    monkeypatch.setattr(CalibratedRounding, "blocks", garbage(CalibratedRounding.blocks))
    report = exported(target, tmp_path / "out", **more)
    assert any(note.startswith(said) for note in report.models[0].notes)
    plain = exported(target, tmp_path / "plain", **(more | {"calibration": "none"}))
    if weights == "auto":
        for file in plain.models[0].files:
            assert (report.path / file).read_bytes() == (plain.path / file).read_bytes()


@pytest.mark.usefixtures("few")
def test_texts_for_rounding_and_for_measuring_are_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    honest = weighed.write

    def write(job: Any, *more: Any) -> Any:
        seen.append(job)
        return honest(job, *more)

    monkeypatch.setattr(weighed, "write", write)
    exported(checkpoint(tmp_path / "target"), tmp_path / "out", calibration="self", parity=False)
    (job,) = seen
    assert job.texts
    assert job.heldout
    assert not set(job.texts) & set(job.heldout)


@pytest.mark.full  # six files of the demo's draft, each of them measured
@pytest.mark.usefixtures("few")
def test_a_gguf_takes_the_first_type_that_is_close_enough(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")
    more = {"formats": ("gguf",), "weights": "auto", "parity": False}
    coarse, fine = (
        exported(DEMO, tmp_path / str(most), max_kl=most, **more).models[0] for most in (0.3, 0.01)
    )
    assert coarse.weights == "q4_0"
    assert coarse.notes[0].startswith("q4_0: the first of q4_0, ")
    assert fine.weights in ("q5_k_m", "q6_k", "q8_0"), "the control: a smaller limit takes more"
    assert fine.size_bytes > coarse.size_bytes
