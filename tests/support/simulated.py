"""Measured places and rounds as tests make them up."""

from __future__ import annotations

from dataclasses import replace

from edgedec.records.place import Place
from edgedec.records.profile import Measured, Parity, PassTimes
from edgedec.records.rounds import DrafterRounds, Drafts

VOCAB = 64
WIDTHS = (1, 2, 4, 8, 16)
PLACE = Place("onnx", threads=2)
OTHER = Place("gguf", device="Vulkan0")
LENGTH = 8

Rounds = tuple[DrafterRounds, ...]


def measured(
    role: str = "target",
    one_row_s: float = 8e-3,
    *,
    row_s: float = 1e-3,
    place: Place = PLACE,
    **changes: object,
) -> Measured:
    """A place where each row beyond the first costs ``row_s``, and 100 tokens more 10%."""
    seconds = [one_row_s + row_s * (width - 1) for width in WIDTHS]
    times = tuple(
        PassTimes(context, WIDTHS, tuple(factor * s for s in seconds), (0.0,) * len(WIDTHS))
        for context, factor in ((100, 1.0), (200, 1.1))
    )
    found = Measured(
        role=role,
        name=f"the {role}",
        place=place,
        times=times,
        prefill_s=one_row_s / 10,
        load_s=0.1,
        rss_bytes=1_000_000,
        weight_bytes=900_000,
        kv_bytes_per_token=100,
        max_context=4096,
        vocab_size=VOCAB,
        row_widths=None,
        branches=None,
        parity=Parity(1.0, 0.0, True),
        steady=True,
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def rounds(right: float = 0.8, *, with_model: bool = True, overhead_s: float = 1e-4) -> Rounds:
    """Rounds of every drafter; a token of the draft model is right with this chance.

    Lookup drafts in a tenth of the rounds, and each of its tokens is right half of the time.
    """
    found = lookup(0.1)
    chain = Drafts("model", 1.0, tuple(right**n for n in range(1, LENGTH + 1)), LENGTH)
    drafted = {"none": (), "lookup": (found,)}
    if with_model:
        drafted |= {"model": (chain,), "hybrid": (found, replace(chain, share=0.9))}
    chains = [_rounds(name, drafts, overhead_s) for name, drafts in drafted.items()]
    trees = [DrafterRounds("recycle", LENGTH, 0.0, 100, 1.4, 9.0, 0.0, overhead_s)]
    if with_model:
        tokens = 1 + 1.1 * sum(chain.chances[:3])
        trees.append(DrafterRounds("tree", LENGTH, 0.0, 100, tokens, 9.0, 3.0, overhead_s))
        trees.append(DrafterRounds("adaptive", None, 0.0, 100, 1.2, 2.0, 1.0, overhead_s))
    return (*chains, *trees)


def lookup(share: float) -> Drafts:
    """Prompt lookup that finds something in this share of rounds."""
    return Drafts("lookup", share, tuple(0.5**n for n in range(1, LENGTH + 1)), LENGTH)


def _rounds(name: str, drafts: tuple[Drafts, ...], overhead_s: float) -> DrafterRounds:
    return DrafterRounds(
        drafter=name,
        draft_length=LENGTH if drafts else 0,
        temperature=0.0,
        rounds=100,
        tokens=1 + sum(one.accepted(LENGTH) for one in drafts),
        rows=1 + sum(one.share * one.nodes for one in drafts),
        draft_passes=sum(one.share * LENGTH for one in drafts if one.source == "model"),
        overhead_s=overhead_s,
        drafts=drafts,
    )
