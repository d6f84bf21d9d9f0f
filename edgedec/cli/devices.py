"""``edgedec devices``: what each runtime can compute on."""

from __future__ import annotations

import dataclasses
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
        if "missing" in facts:
            click.echo(f"  {facts['missing']}")
        for device in facts.get("devices", []):
            provider = f" {device['provider']}" if device["provider"] else ""
            click.echo(f"  {device['name']}{provider}: {device['description']}")


def devices() -> dict[str, dict[str, Any]]:
    """By runtime: its devices, or what is missing."""
    from edgedec.errors import RuntimeUnavailable
    from edgedec.runtimes import registry

    found: dict[str, dict[str, Any]] = {}
    for name in registry.names():
        try:
            listed = registry.adapter(name).devices()
        except RuntimeUnavailable as error:
            found[name] = {"missing": str(error)}
        else:
            found[name] = {"devices": [dataclasses.asdict(device) for device in listed]}
    return found
