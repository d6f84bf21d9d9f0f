"""The pair that ships: a small target and a smaller draft that write Python.

`BUNDLE` is what `--bundle demo` opens. `HELDOUT` names the files of the Python standard library
that neither model was trained on. The checkpoints are in the repository only.
"""

from pathlib import Path

BUNDLE = Path(__file__).parent / "bundle"
"""The exported bundle, a folder."""

HELDOUT = Path(__file__).parent / "heldout.txt"
"""Paths relative to the standard library, one a line."""

__all__ = ["BUNDLE", "HELDOUT"]
