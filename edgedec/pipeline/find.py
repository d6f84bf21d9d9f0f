"""Finds the models that Python names, as the command line does."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgedec._support.model_path import is_gguf, ready

if TYPE_CHECKING:
    from edgedec.export import Progress


@dataclass(frozen=True, slots=True)
class Find:
    """Finds models by the words for them; see ``edgedec.library.locate.path_of``."""

    progress: Progress | None = None
    _: KW_ONLY
    download: bool = False
    format: str | None = None

    def path(self, word: str | Path) -> str | Path:
        """Return the path of the model that a word means."""
        there = ready(word)
        if there is not None and not (self.format == "onnx" and is_gguf(there)):
            return there
        from edgedec.library.locate import path_of

        return path_of(word, progress=self.progress, download=self.download, format=self.format)

    def draft(self, word: Path | None) -> Path | None:
        """Return the path of a draft model, if there is one."""
        return None if word is None else Path(self.path(word))
