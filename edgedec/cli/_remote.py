"""Options that name devices of other machines, for commands that look at places.

Other commands have them among the runtimes' options.
"""

from __future__ import annotations

import os

import click

from edgedec.cli._flags import flag
from edgedec.records.function_options import PLAN
from edgedec.records.place import RPC_TRUST


def _trust(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Trust every address, also in the child processes that measure."""
    if value:
        os.environ[RPC_TRUST] = "1"


OPTIONS = [
    flag(PLAN["rpc"]),
    flag(PLAN["rpc_trust"], expose_value=False, callback=_trust),
]
