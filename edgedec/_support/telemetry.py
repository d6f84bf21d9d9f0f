"""Keeps libraries from reporting to their makers what runs on this machine.

ONNX Runtime, since 1.29, and OpenVINO do so unless told otherwise: the one keeps a file of events
and sends model names and hashes to Microsoft, the other forks a process that talks to Google.
"""

from __future__ import annotations

import os
import sys


def switch_off() -> None:
    """Switch it off for libraries imported from now on; what the user has set stays."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    # OpenVINO has no such variable, but does without the module. None keeps it from being imported.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
