"""The command line: thin commands, each calls one library function."""

import click

from edgedec import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="edgedec")
def main() -> None:
    """Decode with a large language model and a small draft, losslessly."""
