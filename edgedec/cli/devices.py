"""``edgedec devices``: what each runtime can compute on."""

from __future__ import annotations

from typing import Any

import click

from edgedec.cli import _options


@click.command()
@_options.as_json
def command(as_json: bool) -> None:
    """List what the runtimes can compute on.

    \b
    edgedec devices
    edgedec devices --json
    """
    from edgedec.cli import _output

    found = devices()
    if as_json:
        _output.print_json(found)
        return
    for name, facts in found.items():
        click.echo(name)
        for line in facts.get("devices", [facts.get("missing")]):
            click.echo(f"  {line}")


def devices() -> dict[str, dict[str, Any]]:
    """By runtime: its devices, or what is missing."""
    from edgedec.errors import RuntimeUnavailable
    from edgedec.runtimes import registry

    found: dict[str, dict[str, Any]] = {}
    for name in registry.names():
        try:
            found[name] = {"devices": registry.adapter(name).devices()}
        except RuntimeUnavailable as error:
            found[name] = {"missing": str(error)}
    return found
