"""Interrupts a session of ONNX Runtime inside a run of the graph, always at the same one."""

from __future__ import annotations

from typing import Any

from edgedec.runtimes._ort.session import OrtSession


def interrupt_in_run(session: OrtSession, number: int) -> list[int]:
    """Interrupt the session when ONNX Runtime has the run of this number; counted from 1.

    Returns:
        The runs that were computed to their end; it grows as they are.

    """
    runner, begun, ended = session._runner, list[int](), list[int]()
    honest = runner._run

    def run(*arguments: Any) -> None:
        begun.append(len(begun) + 1)
        if begun[-1] == number:
            session.interrupt()
        honest(*arguments)
        ended.append(begun[-1])

    runner._run = run
    return ended
