"""Drafts that others publish for a target: heads, parallel drafts and small models of its family.

The list is short and by hand. A name is here if a public page names it for that target; sizes and
licences are those that the page states. None of them has been decoded with edgedec.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

HEAD, PARALLEL, MODEL, MTP = "EAGLE-3 head", "PARD draft", "small model", "MTP head"
# What a kind needs.
NEEDS = {
    HEAD: "made for this very target; edgedec export TARGET --head DRAFT",
    PARALLEL: "serves the family; edgedec export TARGET --draft DRAFT",
    MODEL: "the same tokenizer; edgedec export TARGET --draft DRAFT",
    MTP: "inside the target's own checkpoint; edgedec export TARGET takes it along",
}


@dataclass(frozen=True, slots=True)
class Target:
    """A model for which drafts are listed.

    Attributes:
        name: on the hub, as ``Qwen/Qwen3-8B``.
        architecture: its ``model_type``.
        layers: number of decoder layers.
        hidden: channels of the residual stream.
        millions: of parameters.

    """

    name: str
    architecture: str
    layers: int
    hidden: int
    millions: int


@dataclass(frozen=True, slots=True)
class Draft:
    """A published draft.

    Attributes:
        name: on the hub.
        kind: a key of ``NEEDS``.
        targets: names of the targets it is for.
        millions: of parameters.
        licence: as its page states it; None where no page that was read does.
        source: the page that names it for these targets.
        calculated: the size is not stated but follows from the shapes of its kind: a layer like
            the target's with twice the inputs, 32,000 drafted tokens, and the target's embedding.
        note: what else to know.

    """

    name: str
    kind: str
    targets: tuple[str, ...]
    millions: int
    licence: str | None
    source: str
    calculated: bool = False
    note: str = ""

    @property
    def needs(self) -> str:
        """Return what a draft of this kind needs."""
        return NEEDS[self.kind]

    @property
    def size(self) -> str:
        """Return the number of parameters, for people."""
        shown = f"{self.millions / 1000:.1f} B" if self.millions >= 1000 else f"{self.millions} M"
        return f"about {shown}" if self.calculated else shown


TARGETS = (
    Target("Qwen/Qwen3-1.7B", "qwen3", 28, 2048, 1721),
    Target("Qwen/Qwen3-4B", "qwen3", 36, 2560, 4022),
    Target("Qwen/Qwen3-4B-Instruct-2507", "qwen3", 36, 2560, 4022),
    Target("Qwen/Qwen3-8B", "qwen3", 36, 4096, 8191),
    Target("Qwen/Qwen3-14B", "qwen3", 40, 5120, 14768),
    Target("Qwen/Qwen2.5-3B-Instruct", "qwen2", 36, 2048, 3086),
    Target("Qwen/Qwen2.5-7B-Instruct", "qwen2", 28, 3584, 7616),
    Target("Qwen/Qwen2.5-Coder-7B-Instruct", "qwen2", 28, 3584, 7616),
    Target("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "qwen2", 28, 3584, 7616),
    Target("meta-llama/Llama-3.1-8B-Instruct", "llama", 32, 4096, 8030),
    Target("HuggingFaceTB/SmolLM2-1.7B-Instruct", "llama", 24, 2048, 1711),
    Target("google/gemma-3-4b-it", "gemma3", 34, 2560, 3880),
    Target("google/gemma-3-12b-it", "gemma3", 48, 3840, 11766),
    Target("allenai/OLMo-2-1124-7B-Instruct", "olmo2", 32, 4096, 7299),
    Target("XiaomiMiMo/MiMo-7B-RL", "mimo", 36, 4096, 7833),
)
_ANGELSLIM = "github.com/Tencent/AngelSlim (README, Eagle3 of Qwen3)"
_OWN_TERMS = "AngelSlim's own"
_PARD = "github.com/AMD-AGI/PARD (README, model weights)"
_VLLM = "github.com/vllm-project/vllm (tests/v1/spec_decode/test_acceptance_length.py)"
_QWEN3 = tuple(f"Qwen/Qwen3-{size}" for size in ("4B", "4B-Instruct-2507", "8B", "14B"))
_QWEN25 = ("Qwen/Qwen2.5-3B-Instruct", "Qwen/Qwen2.5-7B-Instruct")
_LLAMA = ("meta-llama/Llama-3.1-8B-Instruct",)
_GEMMA = ("google/gemma-3-4b-it", "google/gemma-3-12b-it")
_APACHE, _META, _GOOGLE = "Apache-2.0", "Llama 3.2 Community", "Gemma Terms of Use"
DRAFTS = (
    Draft("AngelSlim/Qwen3-1.7B_eagle3", HEAD, ("Qwen/Qwen3-1.7B",), 137, _OWN_TERMS, _ANGELSLIM,
          calculated=True),
    Draft("AngelSlim/Qwen3-4B_eagle3", HEAD, ("Qwen/Qwen3-4B",), 218, _OWN_TERMS, _ANGELSLIM,
          calculated=True),
    Draft("RedHatAI/Qwen3-8B-speculator.eagle3", HEAD, ("Qwen/Qwen3-8B",), 400, None,
          "docs.vllm.ai/projects/speculators (EAGLE-3, pretrained models)", calculated=True,
          note="for answers without thinking"),
    Draft("RedHatAI/Qwen3-8B-Thinking-speculator.eagle3", HEAD, ("Qwen/Qwen3-8B",), 400, None,
          "huggingface.co/minseokim25/Qwen3-8B-Eagle3-NeMoRL-RedhatAI-thinking", calculated=True,
          note="for answers with thinking"),
    Draft("AngelSlim/Qwen3-8B_eagle3", HEAD, ("Qwen/Qwen3-8B",), 400, _OWN_TERMS, _ANGELSLIM,
          calculated=True),
    Draft("AngelSlim/Qwen3-14B_eagle3", HEAD, ("Qwen/Qwen3-14B",), 609, _OWN_TERMS, _ANGELSLIM,
          calculated=True),
    Draft("lmsys/SGLang-EAGLE3-Llama-3.1-8B-Instruct-SpecForge", HEAD, _LLAMA, 425, None,
          "docs.sglang.io/SpecForge (SpecBundle, released models)", calculated=True),
    Draft("RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3", HEAD, _LLAMA, 425, None, _VLLM,
          calculated=True),
    Draft("amd/PARD-Qwen3-0.6B", PARALLEL, _QWEN3, 596, "MIT", _PARD,
          note="measured by its authors without thinking"),
    Draft("amd/PARD-Qwen2.5-0.5B", PARALLEL, _QWEN25, 494, "MIT", _PARD),
    Draft("amd/PARD-DeepSeek-R1-Distill-Qwen-1.5B", PARALLEL,
          ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B",), 1543, "MIT", _PARD),
    Draft("amd/PARD-Llama-3.2-1B", PARALLEL, _LLAMA, 1236, "MIT", _PARD),
    Draft("Qwen/Qwen3-0.6B", MODEL, _QWEN3, 596, _APACHE, "huggingface.co/Qwen"),
    Draft("Qwen/Qwen2.5-0.5B-Instruct", MODEL, _QWEN25, 494, _APACHE, "huggingface.co/Qwen"),
    Draft("Qwen/Qwen2.5-Coder-0.5B-Instruct", MODEL, ("Qwen/Qwen2.5-Coder-7B-Instruct",), 494,
          _APACHE, "huggingface.co/Qwen"),
    Draft("meta-llama/Llama-3.2-1B-Instruct", MODEL, _LLAMA, 1236, _META,
          "huggingface.co/meta-llama", note="gated: accept its licence on the hub first"),
    Draft("HuggingFaceTB/SmolLM2-135M-Instruct", MODEL, ("HuggingFaceTB/SmolLM2-1.7B-Instruct",),
          135, _APACHE, "huggingface.co/HuggingFaceTB"),
    Draft("google/gemma-3-270m-it", MODEL, _GEMMA, 268, _GOOGLE, "huggingface.co/google",
          note="gated: accept its licence on the hub first"),
    Draft("allenai/OLMo-2-0425-1B-Instruct", MODEL, ("allenai/OLMo-2-1124-7B-Instruct",), 1485,
          _APACHE, "huggingface.co/allenai"),
    Draft("XiaomiMiMo/MiMo-7B-RL", MTP, ("XiaomiMiMo/MiMo-7B-RL",), 211, "MIT",
          "github.com/XiaomiMiMo/MiMo (README)", calculated=True),
)  # fmt: skip


def drafts_for(targets: Sequence[Target]) -> list[Draft]:
    """Return the drafts that are listed for any of these targets, heads first."""
    names = {target.name for target in targets}
    return [draft for draft in DRAFTS if names & {*draft.targets}]
