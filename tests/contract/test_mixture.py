"""Sparse mixtures in every format of weights: the contract, parity after export, refusals."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tiny_granite
import tiny_lfm2
import tiny_qwen3_5
from kinds import again
from tiny_models import needs_quantised_experts, tiny_checkpoint, tiny_config, write_tiny_model

from edgedec.bundle import Bundle
from edgedec.errors import (
    CheckpointError,
    InputError,
    ParityError,
    RuntimeUnavailable,
    UnsupportedArchitecture,
)
from edgedec.export import ExportOptions, export_bundle
from edgedec.export import weights as exported_weights
from edgedec.models.registry import spec_for
from edgedec.models.traits import Experts
from edgedec.pipeline import GenerateOptions, Pipeline
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.testing import SessionContract

# As in the published ones, one renormalises and the other does not.
KINDS: dict[str, dict[str, Any]] = {
    "qwen3_moe": {
        "model_type": "qwen3_moe",
        "moe_intermediate_size": 64,
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "norm_topk_prob": True,
    },
    "olmoe": {"model_type": "olmoe", "num_experts": 8, "num_experts_per_tok": 3},
}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
# With layers that keep a state; an MLP beside the experts, or in the first layers.
HYBRIDS: dict[str, dict[str, Any]] = {
    "granitemoehybrid": tiny_granite.CONFIG
    | {"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 32},
    "qwen3_5_moe_text": {
        **tiny_qwen3_5.CONFIG,
        **_EXPERTS,
        "model_type": "qwen3_5_moe_text",
        "shared_expert_intermediate_size": 64,
    },
    "lfm2_moe": {
        **tiny_lfm2.CONFIG,
        **_EXPERTS,
        "model_type": "lfm2_moe",
        "num_dense_layers": 1,
    },
}
# A token that is nearly as well off with another expert goes there for a bit that tipped.
TOLERANCE = {"fp32": 1e-4, "fp16": 1e-4, "int8": 0.6, "int4": 0.6}
# A state passes on what a sum in another order changes.
OF_STATES = 1e-3


CASES = [
    pytest.param((kind, weights), marks=needs_quantised_experts if "int" in weights else ())
    for kind in (*KINDS, *HYBRIDS)
    for weights in TOLERANCE
]


@pytest.fixture(scope="module", params=again(CASES), ids="-".join)
def written(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[float, OnnxModel]:
    kind, weights = request.param
    folder = tmp_path_factory.mktemp(kind)
    write_tiny_model(folder, weights, **(KINDS | HYBRIDS)[kind])
    tolerance = max(TOLERANCE[weights], OF_STATES if kind in HYBRIDS else 0.0)
    return tolerance, OnnxModel.load(folder, threads=1, batch_invariant=False)


class TestMixture(SessionContract):
    @pytest.fixture
    def model(self, written: tuple[float, OnnxModel]) -> OnnxModel:
        self.tolerance, model = written
        return model


@needs_quantised_experts
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", ["fp32", "int8", "int4"])
def test_exported_and_used(kind: str, weights: str, tmp_path: Path) -> None:
    # Most experts are used: rounding sends some tokens elsewhere, where shares are small.
    mixture = {"num_experts": 4, "num_experts_per_tok": 3}
    target = tiny_checkpoint(tmp_path / "target", **{**KINDS[kind], **mixture})
    out = tmp_path / "out"
    # Random logits are too even for the floor of int4; its layout has a test of its own.
    report = export_bundle(ExportOptions(target, out, weights=weights, parity=weights != "int4"))
    (model,) = report.models
    dims = Bundle.open(out).target.dims
    assert (dims["experts"], dims["experts_used"]) == (4, 3)
    if weights != "int4":
        assert model.parity["kl_nats"] < (1e-9 if weights == "fp32" else 0.02)
        assert model.parity["fp32_layer_error"] < 1e-4
    assert ("layers.0.branch.gate_up" in model.errors) == (weights != "fp32")
    texts = []
    for draft in ("none", "lookup"):
        with Pipeline.open(out, drafter=draft, draft_length=3, threads=1) as pipeline:
            options = GenerateOptions(max_new_tokens=24, ignore_eos=True)
            texts.append(pipeline.generate("def f(x):", options).token_ids)
    if weights == "fp32":  # quantised rows differ with the width of a pass
        assert texts[0] == texts[1]


def test_parity_sees_an_expert_in_anothers_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tiny_checkpoint(tmp_path / "target", **KINDS["olmoe"])
    form = exported_weights.kernel_form

    def fewer(kind: Experts, renormalised: bool = True) -> dict[str, str | int | float]:
        return form(dataclasses.replace(kind, used=kind.used - 1), renormalised)

    monkeypatch.setattr("edgedec.export.weights.kernel_form", fewer)
    with pytest.raises(ParityError):
        export_bundle(ExportOptions(target, tmp_path / "out", weights="fp32"))


@needs_quantised_experts
def test_the_graph_has_one_kernel_a_layer_and_the_router_whole(tmp_path: Path) -> None:
    for weights, kernel in (("fp32", "MoE"), ("int4", "QMoE")):
        folder = tmp_path / weights
        spec, _ = write_tiny_model(folder, weights, **KINDS["olmoe"])
        graph = onnx.load(folder / "model.onnx", load_external_data=False).graph
        kinds = [node.op_type for node in graph.node]
        assert kinds.count(kernel) == spec.layers
        (router,) = (t for t in graph.initializer if t.name == spec.name("router", 0))
        assert router.data_type == onnx.TensorProto.FLOAT


def test_rows_in_turn() -> None:
    from tiny_models import MemoryTensors

    from edgedec.export.tensors import InterleavedTensors

    gate, up = np.arange(10.0).reshape(5, 2), -np.arange(10.0).reshape(5, 2)
    both = InterleavedTensors(MemoryTensors({"gate": gate, "up": up}), "gate", "up")
    assert both.shape("any") == (10, 2)
    whole = both.rows("any", 0, 10)
    np.testing.assert_array_equal(whole[0::2], gate)
    np.testing.assert_array_equal(whole[1::2], up)
    for start in range(10):
        for stop in range(start, 11):
            np.testing.assert_array_equal(both.rows("any", start, stop), whole[start:stop])


@pytest.mark.parametrize(
    ("kind", "changes", "error", "words"),
    [
        ("qwen3_moe", {"mlp_only_layers": [1]}, UnsupportedArchitecture, "mlp_only_layers"),
        ("qwen3_moe", {"decoder_sparse_step": 2}, UnsupportedArchitecture, "only some layers"),
        ("qwen3_moe", {"num_experts_per_tok": 7}, CheckpointError, "7 experts of 6"),
        ("qwen3_moe", {"num_experts": 0}, CheckpointError, "num_experts"),
        ("qwen3_moe", {"moe_intermediate_size": None}, CheckpointError, "moe_intermediate_size"),
        ("olmoe", {"clip_qkv": 8.0}, UnsupportedArchitecture, "clip_qkv"),
    ],
)
def test_configurations_that_are_refused(
    kind: str, changes: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        spec_for(tiny_config(**{**KINDS[kind], **changes}))


def test_an_older_onnxruntime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "__version__", "1.30.2")
    with pytest.raises(RuntimeUnavailable, match=r"1\.31 or newer, this is 1\.30\.2"):
        write_tiny_model(tmp_path, "int4", **KINDS["olmoe"])
    write_tiny_model(tmp_path, "fp16", **KINDS["olmoe"])


@needs_quantised_experts
def test_what_the_kernels_do_not_compute_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedArchitecture, match="silu only"):
        write_tiny_model(tmp_path, "fp32", **{**KINDS["olmoe"], "hidden_act": "gelu"})
    with pytest.raises(InputError, match="--block-size 16"):
        write_tiny_model(tmp_path, "int4", **{**KINDS["olmoe"], "intermediate_size": 48})
