"""The pair that ships: a small target and a smaller draft that write Python.

`BUNDLE` is what `--bundle demo` opens. `HELDOUT` is source text that neither model was
trained on. The checkpoints and the recipe stand beside them in the repository only.
"""

from pathlib import Path

BUNDLE = Path(__file__).parent / "bundle"
"""The exported bundle, a folder."""

HELDOUT = Path(__file__).parent / "heldout.txt"
"""Held-out Python source, UTF-8."""

__all__ = ["BUNDLE", "HELDOUT"]
