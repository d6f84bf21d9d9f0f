"""The interface of a file in ``benchmarks.peers``, and how such files are found.

A peer's file is imported here for its constants and ``models``, and runs in the peer's own
environment for the rest. So it imports nothing of edgedec but for type checking, and its library
inside the functions that need it. A new peer is a new file; nothing else names it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypedDict, cast

from benchmarks import peers
from benchmarks.race import _child

# Paths of the models by role: ``target`` and ``draft``; further names are the peer's own.
Models = Mapping[str, str]
Request = Mapping[str, Any]
# Passed to a peer's functions with the request.
Tools = _child.Tools
# Kinds of drafting, each with settings.
Kinds = tuple[tuple[str, dict[str, Any]], ...]


class Way(TypedDict):
    """One way to decode with a peer.

    ``weights`` says which models it takes and ``kind`` how it drafts: ways with the same weights
    and kind compete, and the best of them on the first prompts decodes the others; ways of the
    kinds ``plain`` and ``auto`` do not compete. The kind ``plain`` does not draft; the texts of the
    other kinds are compared with its text.
    """

    weights: str
    kind: str
    settings: dict[str, Any]


class Maker(Protocol):
    """Makes models in the formats that peers read, see ``models``."""

    @property
    def drafts(self) -> bool:
        """Return whether there is a draft model."""
        ...

    def checkpoint(self, role: str) -> Path:
        """Return a Hugging Face folder."""
        ...

    def bundle(self, weights: str) -> Path:
        """Return the pair exported by edgedec; ``int4-128``: plainly rounded in such blocks."""
        ...

    def gguf(self, role: str, weights: str) -> Path:
        """Return a GGUF file."""
        ...

    def converted(self, peer: str, role: str, weights: str) -> Path:
        """Return what the peer's ``convert`` made of a checkpoint, in its environment."""
        ...

    def converted_pair(self, peer: str, weights: str, draft_weights: str) -> Models:
        """Return what ``convert`` made of both checkpoints."""
        ...


class Peer(Protocol):
    """A peer's file.

    Attributes:
        NAME: for options, records and folders.
        TITLE: for the table, with the version.
        REQUIREMENTS: packages of its environment, with versions; None is this interpreter.
        ENVIRONMENT: name of the peer whose environment it uses, mostly its own.
        WEIGHTS: formats of the target's weights that are measured.
        KINDS: ways of drafting that are measured with each of them; the first is ``plain``.

    A file may also have ``SAMPLED_KINDS``, further kinds that are measured when tokens are sampled;
    ``NOT_SAMPLED``, names of kinds that cannot sample, each with the reason that is reported; and
    ``COUPLED``, the kinds whose sampled text is promised to be that of plain decoding with the same
    seed. What samples must do so at every temperature above 0, with the seed it is given.

    ``WEIGHTS_OF_FILE`` are measured in place of ``WEIGHTS`` where the target is a GGUF file;
    ``file`` is the file itself. Without it such a target is not measured.

    A file that calls ``Maker.converted`` also has ``convert(request, tools)``, which writes the
    checkpoint ``request["checkpoint"]``, a folder or a GGUF file (see ``Tools.folder``), in
    ``request["weights"]`` to folder ``request["out"]``. One
    that needs more than packages has ``build(request, tools)``, which finishes the environment in
    ``request["folder"]``; ``request["pip"]`` is the beginning of a command that installs there.
    OpenVINO's also has ``divergence(request, tools)``, for the section ``fidelity``: it returns
    ``tools.divergence`` of ``request["ids"]`` and ``request["source"]``.
    """

    @property
    def NAME(self) -> str: ...
    @property
    def TITLE(self) -> str: ...
    @property
    def REQUIREMENTS(self) -> tuple[str, ...] | None: ...
    @property
    def ENVIRONMENT(self) -> str: ...
    @property
    def WEIGHTS(self) -> tuple[str, ...]: ...
    @property
    def KINDS(self) -> Kinds: ...

    def models(self, maker: Maker, weights: str) -> Models:
        """Return the models of some weights; called in edgedec's process."""
        ...

    def run(self, request: Request, tools: Tools) -> dict[str, Any]:
        """Decode ``request["prompt"]`` and return ``times``, and ``ids`` or ``text``.

        At ``request["temperature"]`` 0 the most likely token is taken; above it, tokens are drawn
        with ``request["top_p"]`` and ``request["seed"]``, and no other filter.
        ``prompt_tokens`` is how many tokens it read; further fields are recorded as they are.
        """
        ...

    def perplexity(self, request: Request, tools: Tools) -> dict[str, Any]:
        """Return the ``perplexity`` of ``request["ids"]``.

        Also the ``weight_bytes``, if they are not those of the target's files.
        """
        ...


def label(way: Way) -> str:
    """Return a way's name: weights, kind and settings."""
    settings = (f"{name}={value}" for name, value in way["settings"].items())
    return " ".join([way["weights"], way["kind"], *settings])


def file_of(peer: Peer) -> Path:
    """Return the file that runs in the peer's environment."""
    return Path(str(cast(Any, peer).__file__))


def known() -> dict[str, Peer]:
    """Return all peers by name; edgedec itself comes first."""
    found = [
        cast(Peer, importlib.import_module(f"{peers.__name__}.{info.name}"))
        for info in pkgutil.iter_modules(peers.__path__)
    ]
    found.sort(key=lambda peer: (peer.REQUIREMENTS is not None, peer.NAME))
    return {peer.NAME: peer for peer in found}
