"""Options of the functions ``plan`` and ``pull``, which are those of the commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from edgedec._support.options import GGUF, declared, described, option
from edgedec.records.workload import Workload


@described
@dataclass(frozen=True, slots=True)
class PlanOptions(Workload):
    """Options of ``plan``: a typical request, what is measured, and what becomes of the plan."""

    # fmt: off
    memory: int | str | None = option(
        None, "Limit on weights, caches and buffers together, such as 2GB; default: all memory.",
        kind="size", metavar="SIZE",
    )
    prompts: str | Path | Sequence[str] | None = option(
        None, 'Prompts like your own to measure on: lines such as {"prompt": "Hello"}, as `edgedec'
        " generate --prompts` reads them; default: a few that come with edgedec.",
        text="texts like your own to measure on, or the path of a file of them.", kind="file",
        metavar="FILE.jsonl",
    )
    rpc: str | None = option(
        None, "GGUF: also the devices of llama.cpp's RPC servers, for a target that does not fit on"
        " this machine.", group=GGUF, metavar="HOST:PORT[,HOST:PORT]",
    )
    rpc_trust: bool = option(False, "GGUF: take RPC servers at public addresses, too.", group=GGUF)
    refresh: bool = option(False, "Measure again.")
    out: str | Path | None = option(
        None, "Write the plan to a file, for `edgedec generate --plan`.",
        text="a file for the plan.", short="-o", kind="new_file", metavar="FILE.json",
    )
    remember: bool = option(True, text="store the plan, which ``Pipeline.open`` then follows.")
    # fmt: on

    @property
    def workload(self) -> Workload:
        """The typical request alone."""
        return Workload(**{field.name: getattr(self, field.name) for field in fields(Workload)})


@described
@dataclass(frozen=True, slots=True)
class PullOptions:
    """Options of ``pull``: the form of a model in the library, and its name."""

    # fmt: off
    weights: str | None = option(
        None, "How the weights of a checkpoint are stored; default: auto, int4 and, for the"
        " matrices that need it to stay close to the checkpoint, int8.",
        choices=("auto", "int4", "int8", "fp16", "fp32"),
    )
    calibrated: bool | None = option(
        None, "Calibrate the rounding of int4 weights on text that the model generates, which takes"
        " minutes and is closer to the checkpoint, or smaller; or round to nearest. By default"
        " `run` and `pull` round, and `export` calibrates.",
    )
    max_kl: float | None = option(
        None, "With --weights auto: the divergence from the checkpoint, in nats per token on texts"
        " that it writes, that int4 may add; default: 0.05.", metavar="NATS", least=0.001,
    )
    name: str | None = option(
        None, "What to call the model in the library; default: the hub's name, or the folder's.",
        metavar="NAME",
    )
    format: str | None = option(
        None, "onnx: make a bundle of a GGUF file, too; default: a GGUF file stays one.",
        choices=("onnx",),
    )
    # fmt: on


PLAN, PULL = declared(PlanOptions), declared(PullOptions)
