"""CoreML programs: every kind of decoder and of weights computes what its source does."""

import json
from pathlib import Path

import numpy as np
import pytest
from coreml_checks import CHECKS
from kinds import nightly
from tiny_models import (
    MemoryTensors,
    random_tensors,
    tiny_checkpoint,
    tiny_config,
    write_tiny_program,
)
from tiny_variants import VARIANTS

from edgedec.coreml import Package
from edgedec.coreml.constants import Constants
from edgedec.errors import EdgedecError, InputError, ParityError, UnsupportedArchitecture
from edgedec.export import ExportOptions, export_bundle
from edgedec.export.coreml import ProgramOptions, write_program
from edgedec.export.coreml import parity as parity_module
from edgedec.export.coreml.palettes import palettes
from edgedec.export.coreml.parity import StoredTensors, layer_error
from edgedec.export.options import parse_rows
from edgedec.export.quantize import dequantize, quantize
from edgedec.models.registry import spec_for
from edgedec.runtimes.coreml.model import CoremlModel

MIXTURES = {"qwen3_moe", "olmoe"}
KINDS = {"llama": {}, **VARIANTS}
FORMS = ("slice", "blend")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", nightly(sorted(set(KINDS) - MIXTURES), 4))
def test_every_kind_of_decoder(tmp_path: Path, kind: str, form: str) -> None:
    spec, tensors = write_tiny_program(tmp_path, form, **KINDS[kind])
    for name in ("files", "types", "layers", "source"):
        CHECKS[name](tmp_path / "model.mlpackage", spec, MemoryTensors(tensors))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["llama", "gemma2", "gpt2"])
def test_the_functions_share_a_cache(tmp_path: Path, kind: str, form: str) -> None:
    spec, tensors = write_tiny_program(tmp_path, form, **KINDS[kind])
    CHECKS["states"](tmp_path / "model.mlpackage", spec, MemoryTensors(tensors))


@pytest.mark.parametrize("form", FORMS)
def test_rounding_of_one_layer_is_no_error_of_the_next(tmp_path: Path, form: str) -> None:
    # The first layer adds much, and its rounding is far more than the second adds.
    spec = spec_for(tiny_config())
    tensors = random_tensors(spec)
    tensors[spec.name("down", 0)] *= 30
    for written in ("o", "down"):
        tensors[spec.name(written, 1)][:] = 0
    tensors = {
        name: values.astype(np.float16).astype(np.float32) for name, values in tensors.items()
    }
    write_program(spec, MemoryTensors(tensors), tmp_path, ProgramOptions("tiny", form=form))
    package = Package.open(tmp_path / "model.mlpackage")
    constants = Constants(package, exact=True)
    assert layer_error(spec, package, constants, list(range(16))) < 1e-4


@pytest.mark.parametrize("kind", sorted(MIXTURES))
def test_a_mixture_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    with pytest.raises(UnsupportedArchitecture, match=rf"\({kind}\) is a mixture of experts"):
        write_tiny_program(tmp_path, **KINDS[kind])
    assert not list(tmp_path.iterdir())


@pytest.mark.coreml
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", nightly(sorted(set(KINDS) - MIXTURES), 4))
def test_coremltools_accepts_every_kind(tmp_path: Path, kind: str, form: str) -> None:
    from coreml_loader import check_with_coremltools

    write_tiny_program(tmp_path, form, **KINDS[kind])
    assert check_with_coremltools(tmp_path / "model.mlpackage") > 1000


# -- weights ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("weights", "most"), [("int8", 0.02), ("int4", 0.2), ("lut4", 0.2)])
@pytest.mark.parametrize("form", FORMS)
def test_quantised_weights(tmp_path: Path, form: str, weights: str, most: float) -> None:
    spec, tensors = write_tiny_program(tmp_path, form, weights)
    package = Package.open(tmp_path / "model.mlpackage")
    package.check()
    constants = Constants(package, exact=True)
    assert layer_error(spec, package, constants, list(range(16))) < 1e-4
    stored = StoredTensors(spec, package, constants)
    for name, values in tensors.items():
        if values.ndim == 2:
            error = np.linalg.norm(stored.rows(name, 0, len(values)) - values)
            assert 0 < error < most * np.linalg.norm(values), name


def test_int4_is_the_rounding_of_the_other_formats(tmp_path: Path) -> None:
    spec, tensors = write_tiny_program(tmp_path, "slice", "int4")
    package = Package.open(tmp_path / "model.mlpackage")
    stored = StoredTensors(spec, package, Constants(package, exact=True))
    name = spec.name("down", 1)
    blocks = quantize(tensors[name], 4, 32)
    scales = blocks.scales.astype(np.float16).astype(np.float32)
    expected = dequantize(blocks.packed, scales, 4, tensors[name].shape[1])
    np.testing.assert_array_equal(stored.rows(name, 0, len(expected)), expected)


@pytest.mark.coreml
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("weights", ["int8", "int4", "lut4"])
def test_coremltools_accepts_quantised_weights(tmp_path: Path, weights: str) -> None:
    from coreml_loader import check_with_coremltools

    write_tiny_program(tmp_path, "slice", weights)
    assert check_with_coremltools(tmp_path / "model.mlpackage") > 1000


def test_sixteen_values_need_no_more_than_a_palette() -> None:
    rng = np.random.default_rng(0)
    colours = np.sort(rng.standard_normal(16)).astype(np.float16).astype(np.float32)
    rows = colours[rng.integers(0, 16, (8, 64))]
    found = palettes(rows, 8)
    assert found.squared_error < 1e-3 * found.squared_weight
    normal = rng.standard_normal((8, 512)).astype(np.float32)
    # Lloyd's optimum for a normal distribution and sixteen values has an error of 0.0095.
    assert palettes(normal, 8).squared_error < 0.011 * float(np.vdot(normal, normal))


@pytest.mark.parametrize("value", [0.0, 1e-3, -0.25])
def test_a_palette_of_equal_values_has_that_value(value: float) -> None:
    """The middle of a bin around it would be up to 0.0002 away."""
    rows = np.full((8, 64), value, np.float32)
    found = palettes(rows, 8)
    assert found.squared_error <= 1e-6 * float(np.vdot(rows, rows))


def test_a_palette_with_an_outlier_loses_no_more_than_zeros_would() -> None:
    """All other values are in one bin, whose middle is far from them."""
    rows = np.random.default_rng(4).standard_normal((8, 64), dtype=np.float32)
    others = float(np.vdot(rows, rows))
    rows[0, 0] = 2e4
    assert palettes(rows, 8).squared_error < 1.1 * others


def test_weights_stand_in_the_file_once(tmp_path: Path) -> None:
    spec, _ = write_tiny_program(tmp_path, "slice", "fp16")
    package = Package.open(tmp_path / "model.mlpackage")
    tables = 4 * 2 * 256 * 8  # cosines and sines in float32
    assert package.weight_bytes < 2 * spec.parameters + tables + 64 * 200


def test_widths_that_blocks_do_not_divide(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedArchitecture, match="use --weights int8 or fp16"):
        write_tiny_program(tmp_path, "slice", "int4", intermediate_size=120)


def test_values_beyond_fp16(tmp_path: Path) -> None:
    spec = spec_for(tiny_config())
    tensors = random_tensors(spec)
    tensors[spec.name("down", 1)][0, 0] = 1e5
    with pytest.raises(InputError, match="beyond fp16"):
        write_program(spec, MemoryTensors(tensors), tmp_path, ProgramOptions("tiny"))


# -- exports ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny")


def test_a_pair_in_its_default_forms(checkpoint: Path, tmp_path: Path) -> None:
    options = ExportOptions(
        checkpoint, tmp_path / "b", draft=checkpoint, formats=("coreml",), weights="fp16"
    )
    report = export_bundle(options)
    forms = {}
    for model in report.models:
        assert model.parity["fp32_layer_error"] < 1e-4
        path = report.path / model.files[0]
        forms[model.role] = CoremlModel.load(path, device="reference").facts.form
    assert forms == {"target": "slice", "draft": "blend"}
    manifest = json.loads((report.path / "manifest.json").read_text("utf-8"))
    assert manifest["roles"]["target"]["variants"]["coreml"]["kv"] == "fp16"


def test_several_formats_in_one_bundle(checkpoint: Path, tmp_path: Path) -> None:
    options = ExportOptions(
        checkpoint, tmp_path / "b", formats=("onnx", "coreml"), calibration="none",
        weights="onnx=int8,coreml=int8", form="blend", rows=(1, 2), max_context=64,
    )  # fmt: skip
    report = export_bundle(options)
    assert [model.format for model in report.models] == ["onnx", "coreml"]
    model = CoremlModel.load(report.path / report.models[1].files[0], device="reference")
    assert model.capabilities.row_widths == (1, 2)
    assert model.info.max_context == 64
    assert model.facts.form == "blend"


def test_int4_is_calibrated(checkpoint: Path, tmp_path: Path) -> None:
    plain, calibrated = (
        export_bundle(
            ExportOptions(
                checkpoint, tmp_path / name, formats=("coreml",), calibration=name, parity=False
            )
        ).models[0]
        for name in ("none", "self")
    )
    assert plain.weights == calibrated.weights == "int4"
    assert plain.errors != calibrated.errors


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rows": (1, 4), "formats": ("onnx",)}, "--rows is for coreml"),
        ({"form": "slice", "formats": ("onnx",)}, "--form is for coreml"),
        ({"kv": "int8"}, "--kv int8 is for onnx"),
        ({"weights": "q4_0"}, "not a weight format of coreml"),
        ({"rows": (1, 200), "max_context": 64}, "--rows up to 200"),
        ({"max_context": 257}, "--max-context 257"),
    ],
)
def test_options_that_make_no_sense(
    checkpoint: Path, tmp_path: Path, changes: dict, words: str
) -> None:
    options = ExportOptions(checkpoint, tmp_path / "b", **{"formats": ("coreml",), **changes})
    with pytest.raises(EdgedecError, match=words):
        export_bundle(options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "4,8", "1,1", "1,8,4", "1,x", "1,4,1000", "0,1", "1,-4"])
def test_widths_that_make_no_sense(text: str) -> None:
    with pytest.raises(InputError, match="expected widths that ascend from 1"):
        parse_rows(text)
    assert parse_rows("1, 4,8") == (1, 4, 8)


def test_an_export_that_computes_something_else_fails(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parity_module, "LAYER_FLOOR", 1e-9)
    with pytest.raises(ParityError, match="layer 0 of the CoreML program differs"):
        export_bundle(
            ExportOptions(checkpoint, tmp_path / "b", formats=("coreml",), weights="fp16")
        )
    assert not list(tmp_path.iterdir())
