"""Options by name. Written from their declarations by `make help-pages`; do not edit."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from edgedec.decoding.params import SamplingParams
from edgedec.records.load import LoadOptions

class OpenNames(TypedDict, total=False):
    drafter: str
    spec: str | None
    draft: str | Path | None
    draft_length: int | str
    corpus: str | Path | None
    accept: str | None
    draft_depth: int | None
    schedule: str
    max_context: int | None
    context_limit: int | None
    draft_context: int | None
    kv_memory: int | str | None
    plan: str | Path
    memory: int | str | None
    format: str
    draft_format: str | None
    conversations: int
    parallel: int
    threads: int | None
    batch_invariant: bool | None
    provider: str | Sequence[str]
    device: str | None
    cores: tuple[int, ...] | None
    batch_threads: int | None
    kv: str | None
    flash_attention: bool | None
    gpu_layers: int | None
    mmap: bool | None
    repack: bool | None
    mlock: bool | None
    rpc: str | None
    rpc_trust: bool | None
    weight_memory: int | str | None
    draft_threads: int | None
    draft_batch_invariant: bool | None
    draft_providers: str | Sequence[str]
    draft_device: str | None
    draft_cores: tuple[int, ...] | None
    draft_batch_threads: int | None
    draft_kv: str | None
    draft_flash_attention: bool | None
    draft_gpu_layers: int | None
    draft_mmap: bool | None
    draft_repack: bool | None
    draft_mlock: bool | None
    draft_rpc: str | None
    draft_rpc_trust: bool | None
    draft_weight_memory: int | str | None
    load: LoadOptions
    draft_load: LoadOptions | None
    providers: str | Sequence[str]
    kv_type: str | None

class TextNames(TypedDict, total=False):
    max_new_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]
    seed: int | None
    stop: str | Sequence[str]
    logprobs: int | None
    timeout: float | None
    ignore_eos: bool
    drafter: str | None
    spec: str | None
    draft_length: int | None
    owner: str | None
    json_mode: bool
    json_schema: str | Path | bool | Mapping[str, Any] | None
    regex: str | None
    grammar: str | Path | None
    think: bool | None
    think_tokens: int | None
    reasoning_effort: str | None
    shown_tokens: tuple[str, ...]
    timeout_s: float | None
    sampling: SamplingParams

class ConvertNames(TypedDict, total=False):
    draft: str | Path | None
    head: str | Path | None
    mtp: bool
    format: str | Sequence[str]
    layout: str
    weights: str | None
    max_kl: float
    draft_weights: str | None
    draft_vocab: int | str | None
    kv: str
    block_size: int | None
    form: str | None
    rows: str | Sequence[int] | None
    static_rows: str | Sequence[int] | None
    static_context: int | None
    static_activations: str | None
    batch_invariant: bool
    max_context: int | None
    parity: bool
    parity_text: str | Path | None
    calibration: str
    calibration_text: str | Path | None
    imatrix_text: str | Path | None
    licence: str | None
    overwrite: bool

class PlanNames(TypedDict, total=False):
    prompt_tokens: int
    new_tokens: int
    temperature: float
    max_context: int | None
    memory: int | str | None
    prompts: str | Path | Sequence[str] | None
    rpc: str | None
    rpc_trust: bool
    refresh: bool
    out: str | Path | None
    remember: bool

class PullNames(TypedDict, total=False):
    weights: str | None
    calibrated: bool | None
    max_kl: float | None
    name: str | None
    format: str | None
