"""The types of options for opening, for those who give them by name; tests hold it complete."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from edgedec.records.load import LoadOptions


class OpenChanges(TypedDict, total=False):
    """Options of ``OpenOptions`` by name: its fields, load options, those of the draft alone."""

    load: LoadOptions
    draft_load: LoadOptions | None
    drafter: str
    draft: str | Path | None
    draft_length: int | str
    draft_depth: int | None
    format: str
    draft_format: str | None
    schedule: str
    max_context: int | None
    context_limit: int | None
    draft_context: int | str | None
    kv_memory: int | None
    conversations: int
    parallel: int
    accept: str | None
    plan: str | Path
    memory: int | str | None
    # load options
    threads: int | None
    batch_invariant: bool | None
    providers: Sequence[str]
    device: str | None
    cores: tuple[int, ...] | None
    weight_memory: int | None
    batch_threads: int | None
    kv: str | None
    flash_attention: bool | None
    gpu_layers: int | None
    mmap: bool | None
    repack: bool | None
    mlock: bool | None
    # the same for the draft alone
    draft_threads: int | None
    draft_batch_invariant: bool | None
    draft_providers: Sequence[str]
    draft_device: str | None
    draft_cores: tuple[int, ...] | None
    draft_weight_memory: int | None
    draft_batch_threads: int | None
    draft_kv: str | None
    draft_flash_attention: bool | None
    draft_gpu_layers: int | None
    draft_mmap: bool | None
    draft_repack: bool | None
    draft_mlock: bool | None
