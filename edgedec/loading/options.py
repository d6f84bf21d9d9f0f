"""Options for opening a target and its draft, set by a user or by a plan."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgedec.decoding.sampling.params import check_whole
from edgedec.errors import InputError
from edgedec.records.load import LoadOptions, check_threads
from edgedec.records.plan import SEQUENTIAL
from edgedec.runtimes import registry

# Fields that only some runtimes take.
_OWN = ("batch_threads", "kv", "flash_attention", "gpu_layers", "mmap", "mlock")


@dataclass(frozen=True, slots=True)
class OpenOptions:
    """Options of opening a pipeline; those of a model apply to target and draft.

    Attributes:
        threads, row_invariant, providers, device, cores: see ``LoadOptions``.
        batch_threads: threads of a pass over many tokens, as in prefill; None is ``threads``.
        kv: data type of keys and values: ``f32``, ``f16``, ``q8_0`` or ``q4_0``.
        flash_attention: on or off.
        gpu_layers: number of layers on the device; -1 is all.
        mmap: map the weights instead of reading them.
        mlock: keep the weights in memory.
        draft: a drafter's name; ``auto`` is ``hybrid`` with a draft model, else ``text``; ``none``
            is plain decoding.
        draft_model: a GGUF file, or a bundle whose target drafts; None is the draft that
            comes with the target.
        draft_length: ``auto`` measures costs and decides each round; a number is fixed.
        draft_load: load options of the draft; None is those of the target.
        draft_depth: longest path of a drafted tree of a fixed length; None is that length.
        format: of the target's files, if a bundle has several, and of the draft's if available;
            ``auto`` takes the fastest one.
        draft_format: of the draft's files if it differs from the target's.
        schedule: ``sequential``, or ``overlapped``: to draft while the target verifies.
        max_context: most tokens of a text with its prompt; None is the smaller of the model's limit
            and ``context_limit``.
        context_limit: like ``max_context``, but set by a plan.
        kv_memory: bytes for all key/value caches; None sets no limit.
        accept: an acceptance rule's name; None is the Gumbel coupling, with which a seed gives the
            text of plain decoding, near-ties aside (see below).
        plan: the plan of ``edgedec plan`` to follow: ``auto`` is the last one, unless an option
            here is one that plans decide; or a file that it wrote; or ``none``.
        memory: bytes for weights, caches and buffers together. A plan that fits is made, after
            measuring the models if needed; None sets no limit.
        runtime_options: options, by name, that an installed package's runtime declares.

    ``row_invariant=True`` makes a seed's text independent of the drafts, even at near-ties, and
    keeps drafters from branching. None does so for bundles exported with ``row_invariant``, and
    otherwise only where it costs nothing (fp32), since padding makes rounds without a draft slower
    than plain decoding. Without it, quantised weights round differently in passes of different
    widths: where two tokens are nearly tied, a drafted text may diverge from the plain one, and two
    runs of one seed from each other, since draft lengths follow measured time. Each token is still
    drawn from the target's distribution.

    """

    threads: int | None = None
    batch_threads: int | None = None
    row_invariant: bool | None = None
    providers: Sequence[str] = ()
    kv: str | None = None
    flash_attention: bool | None = None
    device: str | None = None
    gpu_layers: int | None = None
    mmap: bool | None = None
    mlock: bool | None = None
    cores: tuple[int, ...] | None = None
    draft: str = "auto"
    draft_model: Path | None = None
    draft_length: int | str = "auto"
    draft_load: LoadOptions | None = None
    draft_depth: int | None = None
    format: str = "auto"
    draft_format: str | None = None
    schedule: str = SEQUENTIAL
    max_context: int | None = None
    context_limit: int | None = None
    kv_memory: int | None = None
    accept: str | None = None
    plan: str | Path = "auto"
    memory: int | None = None
    runtime_options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_threads("threads", self.threads)
        for name, value in self._own().items():
            if name in registry.options():  # an unknown one is refused by the runtime
                registry.options()[name].check(value)
        for name in ("draft_depth", "max_context", "context_limit", "kv_memory", "memory"):
            check_whole(f"{name} is", getattr(self, name))
        length = self.draft_length
        if length != "auto" and (not isinstance(length, int) or length < 0):
            raise InputError(f"draft_length is {length!r:.60}: expected auto or 0 and more")
        if not isinstance(self.draft, str):
            raise InputError(f"draft is {self.draft!r:.60}: expected a drafter's name, or auto")
        for name in ("draft_model", "plan"):
            path = getattr(self, name)
            if path is not None and not isinstance(path, (str, os.PathLike)):
                raise InputError(f"{name} is {path!r:.60}: expected a path")

    def of_target(self, row_invariant: bool | None) -> LoadOptions:
        """Return the target's load options."""
        return LoadOptions(
            threads=self.threads,
            row_invariant=row_invariant,
            providers=self.providers,
            device=self.device,
            cores=self.cores,
            **self._own(),
        )

    def of_draft(self) -> LoadOptions:
        """Return the draft's load options; never row-invariant: it does not decide the text."""
        return (self.draft_load or self.of_target(None)).changed(row_invariant=False)

    def _own(self) -> dict[str, Any]:
        """Return the chosen options that runtimes declare."""
        named = {name: getattr(self, name) for name in _OWN if getattr(self, name) is not None}
        return {**named, **self.runtime_options}
