"""Names of models on a hub: ``org/name``, ``org/name@revision``, ``org/name:Q4_K_M``."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PART = r"[A-Za-z0-9](?:[\w.-]{0,94}\w)?"
_REFERENCE = re.compile(
    rf"(?P<repo>{_PART}/{_PART})(?:@(?P<revision>[\w][\w./-]{{0,127}}))?"
    r"(?::(?P<which>[\w.-]+(?:/[\w.-]+)*))?"
)


@dataclass(frozen=True, slots=True)
class Reference:
    """A model on a hub.

    Attributes:
        repo: as ``Qwen/Qwen3-0.6B``.
        revision: a branch, tag or commit; None is the default branch.
        which: of a repository's GGUF files: a file's name, or its quantisation; of its models for
            onnxruntime-genai a folder; None is the usual.

    """

    repo: str
    revision: str | None = None
    which: str | None = None

    @property
    def where(self) -> str:
        """The repository and the revision that was asked for."""
        return self.repo if self.revision is None else f"{self.repo}@{self.revision}"


def parse(word: str) -> Reference | None:
    """Return what a word means on a hub; None if it cannot be such a name."""
    found = _REFERENCE.fullmatch(word)
    if found is None or ".." in word:
        return None
    return Reference(found["repo"], found["revision"], found["which"])


def hub_folder(name: str) -> str:
    """Return the name of the folder in which huggingface_hub keeps a model, and of its lock."""
    return "models--" + re.split("[:@]", name)[0].replace("/", "--")
