"""``python -m edgedec``."""

from edgedec.cli import main

main(prog_name="edgedec")
