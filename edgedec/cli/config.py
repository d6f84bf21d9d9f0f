"""``edgedec config``: shows the defaults and where they come from."""

from __future__ import annotations

import click

from edgedec.cli import _config, _options


@click.command()
@_options.as_json
def command(as_json: bool) -> None:
    """Show the defaults of run, chat and generate, and their file.

    The file is config.toml in the user's config folder, or $EDGEDEC_CONFIG. It may set model,
    draft, drafter, threads and memory; options of the command line take precedence. As a file:

    \b
    model = "Qwen/Qwen3-0.6B"
    threads = 4
    memory = "2GB"

    \b
    edgedec config
    edgedec config --json
    """  # fmt: skip
    from edgedec._support import user_folders
    from edgedec._support.model_path import DEMO
    from edgedec.cli import _output

    found, file = _config.read(), user_folders.config_file()
    without = {"model": DEMO, "draft": "auto", "drafter": "auto"}
    if as_json:
        values = {name: found.get(name, without.get(name)) for name in _config.SETTINGS}
        _output.print_json({"file": str(file), "exists": file.exists(), "settings": values})
        return
    rows = [("file", f"{file}{'' if file.exists() else ' (not there)'}")]
    for name in _config.SETTINGS:
        default = f"{without.get(name, 'decided by each command')} (no setting)"
        rows.append((name, str(found[name]) if name in found else default))
    _output.table(rows)
