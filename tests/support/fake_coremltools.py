"""A double of coremltools on macOS, which computes with the interpreter of the saved file.

It has the shape of the real functions and classes, which ``test_fake_coremltools`` compares. Faults
are given by name.
"""

from __future__ import annotations

import enum
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from edgedec.coreml import Package
from edgedec.coreml.constants import Constants
from edgedec.coreml.interpreter import Interpreter, empty_state
from edgedec.coreml.types import Kind


class ComputeUnit(enum.Enum):
    ALL = 1
    CPU_AND_GPU = 2
    CPU_ONLY = 3
    CPU_AND_NE = 4


class MLCPUComputeDevice:
    pass


class MLGPUComputeDevice:
    pass


class MLNeuralEngineComputeDevice:
    pass


PREFERRED = {
    ComputeUnit.CPU_ONLY: MLCPUComputeDevice,
    ComputeUnit.CPU_AND_GPU: MLGPUComputeDevice,
    ComputeUnit.CPU_AND_NE: MLNeuralEngineComputeDevice,
}


class MLState:
    """States by name in fp16; with the fault ``apart`` each function has its own."""

    def __init__(self, proxy) -> None:
        self.__proxy__ = proxy

    def of(self, function: str) -> dict[str, np.ndarray]:
        apart = "apart" in self.__proxy__.faults
        return self.__proxy__.states(function if apart else "")

    def read_state(self, name):
        return self.of("top_1")[name].astype(np.float16)

    def write_state(self, name, value):
        assert value.dtype in (np.float16, np.float32)
        if "not written" not in self.__proxy__.faults:
            self.of("top_1")[name][...] = value


class _States:
    def __init__(self, function, faults) -> None:
        self.faults, self._function, self._kept = faults, function, {}

    def states(self, name: str):
        return self._kept.setdefault(name, empty_state(self._function))


class CompiledMLModel:
    """A function of a compiled package; ``tools`` gives a class of it with some faults."""

    faults: tuple[str, ...]
    calls: Counter[str]

    def __init__(
        self, path, compute_units=ComputeUnit.ALL, function_name=None, optimization_hints=None,
        asset=None,
    ):  # fmt: skip
        self.calls[f"load {function_name}"] += 1
        if "not loaded" in self.faults and function_name == "logits_8":
            raise RuntimeError("Error -14")
        self._name = function_name
        constants = Constants(Package.open(Path(path)), exact=False)
        self._interpreter = Interpreter(constants, function_name)

    def make_state(self):
        return MLState(_States(self._interpreter.function, self.faults))

    def predict(self, data, state=None):
        function = self._interpreter.function
        assert type(data) is dict
        assert set(data) == set(function.inputs)
        for name, type_ in function.inputs.items():
            kind = np.float16 if type_.kind is Kind.FLOAT16 else np.int32
            assert data[name].dtype == kind, name
        if "not computed" in self.faults and self._name == "top_4":
            raise RuntimeError("Unable to compute the prediction:\nE5RT -1")
        if "no move" in self.faults and self._name.startswith("move"):
            return {"done": data["source"]}
        found = self._interpreter.run(data, state.of(self._name))
        for fault in self.faults:
            BREAKS.get((fault, self._name.split("_")[0]), lambda name, found: None)(
                self._name, found
            )
        return {
            name: value.astype(np.float16) if value.dtype == np.float32 else value
            for name, value in found.items()
        }


def _turn(name, found) -> None:
    if name == "logits_16":
        found["logits"] = np.roll(found["logits"], 1, axis=0)


def _other_ids(name, found) -> None:
    if name == "top_8":
        found["top_1"] = (found["top_1"] + 1) % 96


def _overflow(name, found) -> None:
    if name == "logits_4":
        found["logits"][0, 0] = np.nan


def _louder(name, found) -> None:
    found["logits"] = found["logits"] * np.float32(1.1)


def _reversed(name, found) -> None:
    found |= {each: found[each][:, ::-1] for each in ("top_0", "top_1")}


# What faults do with the outputs of functions.
BREAKS = {
    ("rows turned", "logits"): _turn,
    ("wrong ids", "top"): _other_ids,
    ("overflow", "logits"): _overflow,
    ("noise", "logits"): _louder,
    ("unsorted", "top"): _reversed,
}


class MLComputePlan:
    """The plan of a compiled package: gathers on the processor, the rest where it is asked for."""

    faults: tuple[str, ...]
    calls: Counter[str]

    def __init__(self, proxy) -> None:
        path, self._units = proxy
        package = Package.open(Path(path))
        functions = {
            name: SimpleNamespace(block=SimpleNamespace(operations=[
                SimpleNamespace(operator_name=f"ios18.{each.type}")
                for each in package.function(name).operations
            ]))
            for name in package.names
        }  # fmt: skip
        program = None if "no program" in self.faults else SimpleNamespace(functions=functions)
        self.model_structure = SimpleNamespace(program=program)

    def get_compute_device_usage_for_mlprogram_operation(self, operation):
        kind = operation.operator_name.removeprefix("ios18.")
        if kind == "read_state" or kind.startswith("const"):
            return None
        device = MLCPUComputeDevice if kind == "gather" else PREFERRED[self._units]
        return SimpleNamespace(preferred_compute_device=device(), supported_compute_devices=[])

    def get_estimated_cost_for_mlprogram_operation(self, operation):
        if operation.operator_name == "ios18.read_state":
            return None
        return SimpleNamespace(weight=0.5 if operation.operator_name == "ios18.linear" else 0.1)

    @classmethod
    def load_from_path(cls, path, compute_units=ComputeUnit.ALL):
        cls.calls["plan"] += 1
        if "no plan" in cls.faults:
            raise RuntimeError("MLComputePlan is not supported.")
        return cls((path, compute_units))


def tools(*faults: str) -> SimpleNamespace:
    """The module ``coremltools``, on a Mac with these faults; ``calls`` counts calls."""
    calls: Counter[str] = Counter()
    given = {"faults": faults, "calls": calls}

    def compile_model(model, destination_path=None):
        calls["compile"] += 1
        if "not compiled" in faults:
            raise RuntimeError("Error compiling model:\n\"unknown op 'slice_update'\"")
        assert destination_path.endswith(".mlmodelc")
        shutil.copytree(model, destination_path)
        return destination_path

    plan = type("MLComputePlan", (MLComputePlan,), given)
    models = SimpleNamespace(
        utils=SimpleNamespace(compile_model=compile_model),
        CompiledMLModel=type("CompiledMLModel", (CompiledMLModel,), given),
        compute_plan=SimpleNamespace(MLComputePlan=plan),
    )
    return SimpleNamespace(ComputeUnit=ComputeUnit, calls=calls, models=models)
