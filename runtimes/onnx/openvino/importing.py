"""Imports OpenVINO when it is first needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgedec._support.fields import one_line
from edgedec.errors import RuntimeUnavailable

if TYPE_CHECKING:
    from edgedec.runtimes.onnx.openvino.model import OpenVinoModel


def model_class() -> type[OpenVinoModel]:
    """Return the class of models on OpenVINO.

    Raises:
        RuntimeUnavailable: the package does not load.

    """
    try:
        from edgedec.runtimes.onnx.openvino.model import OpenVinoModel
    except (ImportError, OSError) as error:
        raise RuntimeUnavailable(f"openvino does not load: {one_line(str(error))}") from error
    return OpenVinoModel
