"""The command line: thin commands, one file each, which call one library function.

A command's file is found by its name and imported when it is called or listed, so it must not
import anything heavy at the top.
"""

import click

from edgedec._version import __version__
from edgedec.cli._group import FolderGroup, current_name


@click.group(
    cls=FolderGroup,
    context_settings={"help_option_names": ["-h", "--help"], "token_normalize_func": current_name},
)
@click.version_option(__version__, "-V", "--version", prog_name="edgedec")
def main() -> None:
    """Decode with a large language model and a small draft, losslessly.

    \b
    edgedec demo                       see what it does
    edgedec run MODEL "Hello"          answer; MODEL is a file, a folder or a name
    edgedec chat MODEL                 talk to it
    edgedec serve MODEL                OpenAI's and Ollama's API, and a page

    EDGEDEC_DEBUG=1 shows where an error comes from.
    """


__all__ = ["main"]
