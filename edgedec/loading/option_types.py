"""The types of options for opening, for those who give them by name; tests hold it complete."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from edgedec.records.load import LoadOptions


class OpenChanges(TypedDict, total=False):
    """Options of ``OpenOptions`` by name: its fields, load options, those of the draft alone."""

    drafter: str
    draft: str | Path | None
    draft_length: int | str
    draft_depth: int | None
    draft_context: int | None
    threads: int | None
    device: str | None
    provider: str | Sequence[str]
    memory: int | str | None
    max_context: int | None
    kv_memory: int | str | None
    plan: str | Path
    accept: str | None
    batch_invariant: bool | None
    parallel: int
    conversations: int
    format: str
    draft_format: str | None
    schedule: str
    context_limit: int | None
    cores: tuple[int, ...] | None
    # of one runtime
    weight_memory: int | str | None
    batch_threads: int | None
    kv: str | None
    flash_attention: bool | None
    gpu_layers: int | None
    mmap: bool | None
    repack: bool | None
    mlock: bool | None
    rpc: str | None
    rpc_trust: bool | None
    # the same for the draft alone
    draft_threads: int | None
    draft_device: str | None
    draft_providers: str | Sequence[str]
    draft_batch_invariant: bool | None
    draft_cores: tuple[int, ...] | None
    draft_weight_memory: int | str | None
    draft_batch_threads: int | None
    draft_kv: str | None
    draft_flash_attention: bool | None
    draft_gpu_layers: int | None
    draft_mmap: bool | None
    draft_repack: bool | None
    draft_mlock: bool | None
    draft_rpc: str | None
    draft_rpc_trust: bool | None
    # all load options together, other names
    load: LoadOptions
    draft_load: LoadOptions | None
    providers: str | Sequence[str]
    kv_type: str | None


# Those that stand with ``draft_`` in front as well, for the draft alone.
_FOR_DRAFT = (
    "threads", "device", "providers", "batch_invariant", "cores", "weight_memory", "batch_threads",
    "kv", "flash_attention", "gpu_layers", "mmap", "repack", "mlock", "rpc", "rpc_trust",
)  # fmt: skip
DRAFT_ALONE = tuple(f"draft_{name}" for name in _FOR_DRAFT)
# All that are listed, by what they are for.
GROUPS = {
    "Drafting": ("drafter", "draft", "draft_length", "draft_depth", "draft_context", "schedule",
                 "accept", "batch_invariant"),
    "Device and format": ("format", "draft_format", "device", "provider", "threads",
                          "batch_threads", "cores", "plan"),
    "Memory": ("memory", "kv_memory", "weight_memory", "kv", "mmap", "mlock", "repack"),
    "Length and several texts": ("max_context", "context_limit", "conversations", "parallel"),
    "llama.cpp": ("gpu_layers", "flash_attention", "rpc", "rpc_trust"),
    "The draft alone": DRAFT_ALONE,
}  # fmt: skip
