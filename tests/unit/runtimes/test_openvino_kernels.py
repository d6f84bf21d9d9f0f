"""OpenVINO's kernels: when they are used, what they refuse, what they are given."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import MemoryTensors, random_tensors, tiny_config, write_tiny_model

from edgedec.errors import BundleError, InputError, RuntimeUnavailable
from edgedec.export.calibration import kv_scales
from edgedec.export.onnx import GraphOptions, write_model
from edgedec.loading.build import OpenOptions
from edgedec.models.registry import spec_for
from edgedec.records.load import LoadOptions
from edgedec.runtimes import registry
from edgedec.runtimes.onnx.openvino import places

pytest.importorskip("openvino", reason="needs the extra openvino")

from edgedec.runtimes.onnx.openvino import opening
from edgedec.runtimes.onnx.openvino.model import OpenVinoModel
from edgedec.runtimes.onnx.openvino.passes import WIDTHS, padded, ranked
from edgedec.runtimes.onnx.openvino.products import mat_mul_n_bits


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    write_tiny_model(path, "int4")
    return path


def load(folder: Path, **options: Any) -> Any:
    return registry.load("onnx", folder, LoadOptions(threads=1, **options))


@pytest.mark.parametrize("named", [{"device": "openvino"}, {"providers": ("OpenVINO",)}])
def test_it_computes_where_it_is_named(folder: Path, named: dict[str, Any]) -> None:
    assert isinstance(load(folder, **named), OpenVinoModel)
    assert not isinstance(load(folder), OpenVinoModel)


@pytest.mark.parametrize(
    ("named", "error", "said"),
    [
        ({"weight_memory": 1 << 20}, InputError, "weight_memory cannot be combined"),
        (
            {"providers": ("CPUExecutionProvider",)},
            InputError,
            "CPUExecutionProvider cannot be combined",
        ),
    ],
)
def test_what_it_cannot_do_is_refused(
    folder: Path, named: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        load(folder, device="openvino", **named)


def test_without_the_package_it_says_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        places.importlib.util,  # type: ignore[attr-defined]
        "find_spec",
        lambda name: None if name == "openvino" else find(name),
    )
    assert places.find_devices() == []
    with pytest.raises(RuntimeUnavailable, match=r"needs openvino, which .*\[openvino\]"):
        load(folder, device="openvino")


def test_the_draft_stays_on_the_runtimes_own_kernels() -> None:
    assert OpenOptions(device="openvino").of_draft().device is None
    assert OpenOptions(providers=("OpenVINO",)).of_draft().providers == ()
    given = OpenOptions(device="openvino", draft_load=LoadOptions(device="openvino"))
    assert given.of_draft().device == "openvino"
    assert OpenOptions(device="gpu:0").of_draft().device == "gpu:0"


def test_keys_and_values_in_int8_are_refused_in_one_line(tmp_path: Path) -> None:
    spec = spec_for(tiny_config())
    tensors = MemoryTensors(random_tensors(spec))
    scales = kv_scales(spec, tensors, list(range(64)))
    write_model(
        spec, tensors, tmp_path, GraphOptions("tiny", (0,), "fp32", "int8", kv_scales=scales)
    )
    with pytest.raises(RuntimeUnavailable, match="keys and values in int8"):
        OpenVinoModel.compile(tmp_path, threads=1)


def test_a_graph_of_another_form_is_refused(tmp_path: Path, folder: Path) -> None:
    import onnx

    model = onnx.load(folder / "model.onnx")
    (logits,) = [each for each in model.graph.output if each.name == "logits"]
    logits.name = "scores"
    for node in model.graph.node:
        node.output[:] = ["scores" if name == "logits" else name for name in node.output]
        node.input[:] = ["scores" if name == "logits" else name for name in node.input]
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(BundleError, match="unexpected inputs or outputs: export it again"):
        OpenVinoModel.compile(tmp_path, threads=1)


def test_weights_of_an_unknown_form_are_refused() -> None:
    class Node:
        def get_attribute(self, name: str) -> int:
            return {"bits": 2, "block_size": 32, "N": 64, "K": 64}[name]

    with pytest.raises(ValueError, match="weights of 2 bits in blocks of 32"):
        mat_mul_n_bits(Node())


def test_passes_are_padded_to_few_widths() -> None:
    assert [padded(count) for count in (1, 3, 9, 17, 33, 65)] == [2, 4, 10, 17, 48, 65]
    assert all(padded(width) == width for width in WIDTHS)


def test_equal_logits_come_in_the_order_of_their_ids() -> None:
    logits = np.array([[3, 2, 2, 1], [4, 3, 2, 1]], np.float32)
    ids = np.array([[7, 9, 4, 1], [3, 2, 1, 0]])
    found_logits, found_ids = ranked(logits, ids)
    np.testing.assert_array_equal(found_logits, logits)
    np.testing.assert_array_equal(found_ids, [[7, 4, 9, 1], [3, 2, 1, 0]])


def test_it_is_listed() -> None:
    adapter = registry.adapter("onnx")
    (device,) = [one for one in adapter.devices() if one.name == "openvino"]
    assert device.kind == "cpu"


def test_rehearsing_a_long_text_computes_as_many_rows_as_reading_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "_SCORE_BYTES", 1 << 16)
    session = OpenVinoModel.compile(folder, threads=1).open(256)
    rows: list[int] = []
    run = session._passes.run
    monkeypatch.setattr(
        session._passes,
        "run",
        lambda tokens, *a, **k: (rows.append(len(tokens)), run(tokens, *a, **k)),
    )
    session.prefill(range(1, 90))
    read, rows[:] = rows[-2], []
    session.rollback(0)
    session.rehearse(200, 2)
    assert rows[0] <= read < 64
