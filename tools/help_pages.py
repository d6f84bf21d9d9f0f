"""Write docs/cli.md from the commands, docs/api.md from the docstrings, docs/errors.md from uses.

The tables of published drafts in docs/guides are written from edgedec/library/published.py,
those of docs/measured/published.md from its record, and edgedec/pipeline/names.pyi, the types of
options by name, from their declarations.

--check compares instead of writing.
"""

import difflib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import api_page
import click
import measured_published
import names_stub
import published_page
import wrong_uses_page

from edgedec.cli import main

PAGES = Path(__file__).resolve().parents[1] / "docs"
HEAD = "# Command line\n\nWritten from the commands by `make help-pages`; do not edit.\n"


def page() -> str:
    """The whole page, Markdown."""
    return "\n".join([HEAD, *sections(main, click.Context(main, info_name="edgedec"))])


def sections(command: click.Command, context: click.Context) -> Iterator[str]:
    """The section of one command, then those of its sub-commands by name."""
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield f"## {context.command_path}\n\n```\n{usage}\n```\n"
    yield from paragraphs(command.help or "")
    yield from table(command, context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                yield from sections(child, click.Context(child, info_name=name, parent=context))


def paragraphs(text: str) -> Iterator[str]:
    """The help text; a paragraph under click's no-wrap mark becomes a code block."""
    for paragraph in inspect.cleandoc(text.split("\f")[0]).split("\n\n"):
        if paragraph.startswith("\b\n"):
            yield f"```\n{inspect.cleandoc(paragraph[2:])}\n```\n"
        elif paragraph:
            yield " ".join(paragraph.split()) + "\n"


def table(command: click.Command, context: click.Context) -> Iterator[str]:
    """Options, one row each."""
    # Arguments stand in the usage line; newer versions of click list them here as well.
    options = [p for p in command.get_params(context) if isinstance(p, click.Option)]
    records = [option.get_help_record(context) for option in options]
    rows = [f"| `{cell(left)}` | {cell(right)} |" for left, right in filter(None, records)]
    if rows:
        yield "\n".join(["| Option | Meaning |", "|---|---|", *rows]) + "\n"


def cell(text: str) -> str:
    """One line that a Markdown table can hold."""
    return " ".join(text.split()).replace("|", "\\|")


def run(name: str, fresh: str, check: bool) -> int:
    """Write a page, or say whether the one on disk is up to date; the exit code."""
    file = PAGES.parent / name
    old = file.read_text("utf-8") if file.exists() else ""
    if not check:
        file.write_text(fresh, "utf-8")
        return 0
    if fresh != old:
        changes = difflib.unified_diff(old.splitlines(), fresh.splitlines(), name, "now")
        print("\n".join(changes))
        print(f"{name} is out of date: run make help-pages", file=sys.stderr)
        return 1
    print(f"{name} is up to date")
    return 0


if __name__ == "__main__":
    pages = {"cli.md": page(), "api.md": api_page.page(), "errors.md": wrong_uses_page.page()}
    pages |= {name: published_page.page(name) for name in published_page.PARTS}
    measured = "measured/published.md"
    pages[measured] = published_page.page(measured, measured_published.PARTS)
    pages = {f"docs/{name}": fresh for name, fresh in pages.items()}
    pages["edgedec/pipeline/names.pyi"] = names_stub.page()
    sys.exit(max(run(name, fresh, "--check" in sys.argv[1:]) for name, fresh in pages.items()))
