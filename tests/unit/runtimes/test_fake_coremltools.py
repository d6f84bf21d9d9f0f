"""The double of coremltools has the shape of the real functions and classes."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import fake_coremltools
import pytest

pytestmark = [pytest.mark.coreml, pytest.mark.filterwarnings("ignore")]


def names(function: Callable[..., Any]) -> list[tuple[str, Any]]:
    """Parameters, and which of them have a default."""
    return [
        (name, parameter.default is inspect.Parameter.empty)
        for name, parameter in inspect.signature(function).parameters.items()
    ]


def test_functions_take_the_same_parameters() -> None:
    import coremltools

    double = fake_coremltools.tools()
    real, fake = coremltools.models, double.models
    assert names(fake.utils.compile_model) == names(real.utils.compile_model)
    for method in ("__init__", "predict", "make_state"):
        assert names(getattr(fake.CompiledMLModel, method)) == names(
            getattr(real.CompiledMLModel, method)
        ), method
    plan, own = real.compute_plan.MLComputePlan, fake.compute_plan.MLComputePlan
    for method in (
        "__init__",
        "load_from_path",
        "get_compute_device_usage_for_mlprogram_operation",
        "get_estimated_cost_for_mlprogram_operation",
    ):
        assert names(getattr(own, method)) == names(getattr(plan, method)), method
    state = real.model.MLState
    for method in ("__init__", "read_state", "write_state"):
        assert names(getattr(fake_coremltools.MLState, method)) == names(getattr(state, method))


def test_records_have_the_fields_that_are_read() -> None:
    import coremltools

    plan = coremltools.models.compute_plan
    fields = {
        plan.MLModelStructure: {"program"},
        plan.MLModelStructureProgram: {"functions"},
        plan.MLModelStructureProgramFunction: {"block"},
        plan.MLModelStructureProgramBlock: {"operations"},
        plan.MLModelStructureProgramOperation: {"operator_name"},
        plan.MLComputePlanDeviceUsage: {"preferred_compute_device"},
        plan.MLComputePlanCost: {"weight"},
    }
    for record, read in fields.items():
        assert read <= {field.name for field in dataclasses.fields(record)}, record


def test_units_and_devices_have_the_same_names() -> None:
    import coremltools

    from edgedec.runtimes.coreml.devices import COMPUTE_UNITS
    from edgedec.runtimes.coreml.placement import _UNITS

    assert set(fake_coremltools.ComputeUnit.__members__) == set(coremltools.ComputeUnit.__members__)
    assert set(COMPUTE_UNITS.values()) <= set(coremltools.ComputeUnit.__members__)
    for name in _UNITS:
        assert inspect.isclass(getattr(coremltools.models.compute_device, name))
        assert inspect.isclass(getattr(fake_coremltools, name))
