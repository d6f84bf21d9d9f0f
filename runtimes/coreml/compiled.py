"""A package compiled by CoreML, through coremltools, on macOS.

Nothing here has run on a Mac yet: it follows coremltools 9.0's documentation of
``compile_model``, ``CompiledMLModel`` and ``MLComputePlan``.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from edgedec._support.fields import one_line
from edgedec.errors import RuntimeUnavailable
from edgedec.runtimes.coreml.devices import COMPUTE_UNITS
from edgedec.runtimes.coreml.placement import Placement, placements


class CompiledProgram:
    """A package, compiled once for all its functions, into a folder that ``close`` removes.

    Args:
        tools: coremltools; None imports it.

    Attributes:
        folder: the ``.mlpackage``.

    Raises:
        RuntimeUnavailable: CoreML does not compile it.

    """

    def __init__(self, folder: Path, tools: Any = None) -> None:
        self.folder, self._tools = folder, tools or _coremltools()
        self._kept = tempfile.TemporaryDirectory(prefix="edgedec-coreml-")
        self._path = str(Path(self._kept.name) / "program.mlmodelc")
        begin = time.perf_counter()
        try:
            self._tools.models.utils.compile_model(str(folder), self._path)
        except Exception as error:  # whatever the system says
            self.close()
            raise RuntimeUnavailable(
                f"{folder}: CoreML does not compile it: {one_line(str(error))}"
            ) from None
        self.compile_s = time.perf_counter() - begin

    def load(self, function: str, device: str) -> Any:
        """Return a function as a ``CompiledMLModel``.

        Raises:
            RuntimeUnavailable: CoreML does not load it there.

        """
        try:
            return self._tools.models.CompiledMLModel(
                self._path, compute_units=self._units(device), function_name=function
            )
        except Exception as error:  # whatever the system says
            raise RuntimeUnavailable(
                f"{self.folder}: CoreML does not load {function} on {device}:"
                f" {one_line(str(error))}"
            ) from None

    def placements(self, device: str) -> dict[str, Placement]:
        """Return where CoreML would compute the operations of each function.

        Raises:
            RuntimeUnavailable: CoreML gives no plan.

        """
        try:
            plan = self._tools.models.compute_plan.MLComputePlan.load_from_path(
                self._path, compute_units=self._units(device)
            )
            return placements(plan)
        except Exception as error:  # whatever the system says
            raise RuntimeUnavailable(
                f"{self.folder}: CoreML gives no compute plan for {device}: {one_line(str(error))}"
            ) from None

    def close(self) -> None:
        """Remove what was compiled."""
        self._kept.cleanup()

    def _units(self, device: str) -> Any:
        return getattr(self._tools.ComputeUnit, COMPUTE_UNITS[device])


def _coremltools() -> Any:
    import coremltools

    return coremltools
