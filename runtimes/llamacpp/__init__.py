"""Decoders in GGUF on llama.cpp: trees by sequences on shared cells."""

from collections.abc import Sequence
from pathlib import Path

from edgedec.records.adapter import AdapterInfo, LoadOption

OPTIONS = (
    LoadOption(
        "batch_threads", int, "CPU threads for reading the prompt; default: as --threads.",
        least=1, most=1024, planned=True,
    ),
    LoadOption(
        "kv", str, "type of keys and values.", choices=("f32", "f16", "q8_0", "q4_0"),
        common=True,
    ),
    LoadOption("flash_attention", bool, "default: if the runtime finds it faster."),
    LoadOption(
        "gpu_layers", int, "layers on the device; -1 is all.", least=-1, planned=True, common=True,
        draft_help="layers of the draft on its device.",
    ),
    LoadOption("mmap", bool, "map the file into memory; default: yes."),
    LoadOption(
        "repack", bool,
        "reorder weights for the processor's kernels: quicker, in a copy that stays in memory;"
        " default: yes, unless --memory holds the model only without.", spares=True,
    ),
    LoadOption("mlock", bool, "keep the weights in memory.", default=False),
    LoadOption(
        "rpc", str,
        "HOST:PORT[,HOST:PORT]: llama.cpp's RPC servers to spread the target over, for a model that"
        " does not fit on this machine; the draft stays here.",
        target_only=True, planned=True, common=True,
    ),
    LoadOption(
        "rpc_trust", bool, "take RPC servers at public addresses, too.", default=False,
        target_only=True, common=True,
    ),
)  # fmt: skip


def _shown(path: Path, layers: Sequence[int]) -> bool:
    from edgedec.gguf import GgufHeader
    from edgedec.runtimes.llamacpp.taps import may_show

    header = GgufHeader.read(path)
    count = header.number(f"{header.architecture}.block_count", 0)
    return may_show(header.architecture, count, layers)


INFO = AdapterInfo(
    name="llamacpp",
    module=f"{__name__}.adapter",
    formats=("gguf",),
    order=2,
    packages=("llama-cpp-python",),
    extra="gguf",
    purpose="decodes and quantises GGUF files with llama.cpp",
    wheels="--prefer-binary --extra-index-url https://abetlen.github.io/llama-cpp-python/whl/cpu",
    options=OPTIONS,
    shown=_shown,
)
