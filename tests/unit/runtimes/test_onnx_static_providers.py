"""Graphs of static shape on providers from packages of their own: OpenVINO's, and Qualcomm's NPU.

Qualcomm's package emulates the NPU on a processor, slowly.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import RuntimeUnavailable
from edgedec.export import ranges
from edgedec.export.onnx_static.activations import IntegerActivations
from edgedec.runtimes._ort import devices
from edgedec.runtimes.onnx_static import executor as executor_module
from edgedec.runtimes.onnx_static.executor import StaticPasses
from edgedec.runtimes.onnx_static.model import StaticModel, computes
from edgedec.testing import SessionContract

pytestmark = pytest.mark.plugin
PACKAGES = {"openvino:cpu": "onnxruntime_ep_openvino", "qnn:cpu": "onnxruntime_qnn"}
# Largest difference of a logit, of about 5: fp16, and of int8 and int4 the rounding of activations
# that ONNX Runtime's own kernels do.
CLOSE = {
    "fp32": 0.05, "fp16": 0.05, "int8": 0.3, "int4": 0.3, "int8 int8": 0.8, "int8 int16": 0.1,
}  # fmt: skip
Written = Callable[[str], Path]


def needs(device: str) -> str:
    """Skip where the package of a device is missing, or does not load."""
    package = PACKAGES[device]
    pytest.importorskip(package, reason=f"{package} is not installed")
    failed = devices.register()
    if package in failed:
        pytest.skip(f"{package} does not load: {failed[package]}")
    if device not in {offer.device.name for offer in devices.available_devices()}:
        pytest.skip(f"{package} has no device {device} here")
    return device


@pytest.fixture(params=PACKAGES)
def device(request: pytest.FixtureRequest) -> str:
    return needs(request.param)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """The folder of tiny graphs with some weights."""
    from tiny_models import write_tiny_graphs

    found: dict[str, Path] = {}

    def write(weights: str) -> Path:
        if weights not in found:
            found[weights] = tmp_path_factory.mktemp(weights)
            stored, *rest = weights.split()
            given = {"activations": rest[0]} if rest else {}
            write_tiny_graphs(found[weights], stored, rows=(1, 8), **given)
        return found[weights]

    return write


@pytest.fixture(scope="module", autouse=True)
def outliers() -> Iterator[None]:
    """Keep some channels apart in every matrix, though random ones have no outliers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "_OUTLIER", 1.2)
        yield


def rows(model: StaticModel) -> FloatArray:
    """Logits after a prompt, token by token, and of a tree after a step back."""
    session = model.open(64)
    session.prefill([3, 5, 7, 9, 11])
    found = []
    for token in (7, 8, 9):
        found.append(np.array(session.forward(TokenTree(token)).logits)[0])
        session.commit([0])
    session.rollback(6)
    tree = TokenTree.chain([8, 2, 3])
    tree.add(4, 0)
    tree.add(6, 1)
    found += list(np.array(session.forward(tree).logits))
    session.close()
    return np.array(found)


@pytest.mark.parametrize("weights", CLOSE)
def test_the_numbers_are_the_processors(device: str, written: Written, weights: str) -> None:
    expected = rows(StaticModel.load(written(weights), threads=1))
    found = rows(StaticModel.load(written(weights), threads=1, device=device))
    assert np.abs(found - expected).max() < CLOSE[weights]
    assert np.abs(found - np.roll(expected, 1, axis=0)).max() > 2  # another row's are far off


@pytest.mark.parametrize(
    "test",
    [
        "test_a_tree_scores_every_path",
        "test_commit_keeps_one_branch",
        "test_forks_part_ways",
        "test_rollback_and_continue",
        "test_rounds_follow_one_another",
        "test_saved_and_loaded_elsewhere",
    ],
)
def test_the_contract(device: str, written: Written, test: str) -> None:
    contract = SessionContract()
    contract.tolerance = 0.1
    getattr(contract, test)(StaticModel.load(written("fp32"), threads=1, device=device))


def test_what_a_provider_read_when_it_was_bound_is_refused(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime copies inputs to OpenVINO's memory when they are bound, and not again."""
    device = needs("openvino:cpu")
    bind = StaticPasses._bind

    def once(self: StaticPasses, *args: Any) -> Any:
        made = bind(self, *args)
        self._bound.clear()
        kept = {field: getattr(made, field) for field in made.__slots__}
        found = self._bound[args[0]] = type(made)(**{**kept, "copied": {}})
        return found

    monkeypatch.setattr(executor_module.StaticPasses, "_bind", once)
    with pytest.raises(RuntimeUnavailable, match="computes other numbers than the processor"):
        StaticModel.load(written("fp32"), threads=1, device=device)


def alone_on_qualcomms_npu(file: str) -> ort.InferenceSession:
    """A session that leaves nothing to the processor."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    devices.put_into(options, devices.choose("qnn:cpu", ()), 1)
    return ort.InferenceSession(file, options)


@pytest.mark.parametrize(
    ("weights", "most"), [("fp32", 0.05), ("int8 int8", 0.8), ("int8 int16", 0.1)]
)
def test_all_of_it_runs_on_qualcomms_npu(written: Written, weights: str, most: float) -> None:
    """All layers and the head, with nothing left to the processor."""
    needs("qnn:cpu")
    file = str(written(weights) / "static-8.onnx")
    there = alone_on_qualcomms_npu(file)
    here = ort.InferenceSession(file, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    feeds = {
        node.name: rng.standard_normal(node.shape, dtype=np.float32) / 2
        for node in here.get_inputs()
    }
    feeds["ids"] = np.arange(8, dtype=np.int32)
    feeds["bias"] = np.where(rng.random(feeds["bias"].shape) < 0.5, 0, -4e4).astype(np.float32)
    for one, other in zip(there.run(None, feeds), here.run(None, feeds), strict=True):
        if one.dtype == np.float32:
            np.testing.assert_allclose(one, other, rtol=0, atol=most)
    expected = here.run(["logits"], feeds)[0]
    assert np.abs(expected - np.roll(expected, 1, axis=0)).max() > 2  # another row's are far off


def test_outliers_read_behind_their_grid_are_lost_on_qualcomms_npu(
    written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin: it leaves grids out where a sum reads them, so that nothing seems to exceed one."""
    from tiny_models import write_tiny_graphs

    device = needs("qnn:cpu")
    monkeypatch.setattr(
        IntegerActivations, "_clipped", lambda self, out, x, grid: self._rounded(out, x, grid)
    )
    write_tiny_graphs(tmp_path, "int8", rows=(1, 8), activations="int16")
    found = rows(StaticModel.load(tmp_path, threads=1, device=device))
    expected = rows(StaticModel.load(tmp_path, threads=1))
    assert np.abs(found - expected).max() > 2 * CLOSE["int8 int16"]


def test_float_activations_of_integer_weights_do_not(written: Written) -> None:
    """The control of the test above."""
    needs("qnn:cpu")
    with pytest.raises(Exception, match="assigned to the default CPU EP"):
        alone_on_qualcomms_npu(str(written("int8") / "static-8.onnx"))


def test_the_control_on_the_processor(written: Written, tmp_path: Path) -> None:
    from tiny_models import write_tiny_graphs

    write_tiny_graphs(tmp_path, "fp32", rows=(1, 8), seed=1)
    model, other = StaticModel.load(written("fp32")), StaticModel.load(tmp_path)
    assert computes(model, model)
    assert not computes(model, other)


def test_packages_have_these_names() -> None:
    for name in PACKAGES.values():
        if importlib.util.find_spec(name):
            assert name in devices._packages()
