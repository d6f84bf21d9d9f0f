"""Where CoreML would compute the operations of a program, from its ``MLComputePlan``."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

# The devices of a plan, by the names of coremltools' classes.
_UNITS = {
    "MLCPUComputeDevice": "cpu",
    "MLGPUComputeDevice": "gpu",
    "MLNeuralEngineComputeDevice": "ane",
}
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where CoreML would compute one function; a plan, not a measurement.

    Attributes:
        operations: number of operations, constants apart, by ``cpu``, ``gpu``, ``ane`` and
            ``unknown``.
        cost: share of the function's estimated cost, by the same names.

    """

    operations: dict[str, int]
    cost: dict[str, float]

    def __str__(self) -> str:
        """Return the units in words, the one with most operations first."""
        total = sum(self.operations.values())
        if not total:
            return "no operations"
        priced = sum(self.cost.values()) > 0
        parts = []
        for unit, count in sorted(self.operations.items(), key=lambda item: -item[1]):
            cost = f", {self.cost.get(unit, 0.0):.0%} of the cost" if priced else ""
            parts.append(f"{unit} {count} of {total}{cost}")
        return "; ".join(parts)


def placements(plan: Any) -> dict[str, Placement]:
    """Return the placement of each function of an ``MLComputePlan``.

    Raises:
        ValueError: it is not the plan of a program.

    """
    program = plan.model_structure.program
    if program is None:
        raise ValueError("its plan is not that of a program")
    return {
        str(name): _placement(plan, function.block.operations)
        for name, function in program.functions.items()
    }


def _placement(plan: Any, operations: Any) -> Placement:
    counts: Counter[str] = Counter()
    costs: defaultdict[str, float] = defaultdict(float)
    for operation in operations:
        # Names begin with that of the operation set: ``ios18.const``.
        if str(operation.operator_name).rsplit(".", 1)[-1].startswith("const"):
            continue
        usage = plan.get_compute_device_usage_for_mlprogram_operation(operation)
        unit = UNKNOWN
        if usage is not None:
            unit = _UNITS.get(type(usage.preferred_compute_device).__name__, UNKNOWN)
        counts[unit] += 1
        cost = plan.get_estimated_cost_for_mlprogram_operation(operation)
        if cost is not None:
            costs[unit] += float(cost.weight)
    total = sum(costs.values())
    shares = {unit: cost / total for unit, cost in costs.items()} if total > 0 else {}
    return Placement(dict(counts), shares)
