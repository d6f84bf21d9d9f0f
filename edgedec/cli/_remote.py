"""Options that name devices of other machines, for commands that look at places.

Other commands have them among the runtimes' options.
"""

from __future__ import annotations

import os

import click


def _trust(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Trust every address, also in the child processes that measure."""
    if value:
        from edgedec.records.place import RPC_TRUST  # imports numpy

        os.environ[RPC_TRUST] = "1"


OPTIONS = [
    click.option("--rpc", metavar="HOST:PORT[,HOST:PORT]",
                 help="GGUF: also the devices of llama.cpp's RPC servers, for a target that does "
                 "not fit on this machine."),
    click.option("--rpc-trust", is_flag=True, expose_value=False, callback=_trust,
                 help="GGUF: take RPC servers at public addresses, too."),
]  # fmt: skip
