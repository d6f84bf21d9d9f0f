"""Texts of hybrids are those of plain decoding, whichever drafter drafted them, seeded or not."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")
pytest.importorskip("gguf", reason="gguf is not installed: extra gguf")

from kinds import in_full
from tiny_gguf import write_tiny_gguf
from tiny_hybrids import write_hybrid_gguf

from edgedec.decoding.sampling import SamplingParams
from edgedec.loading.build import OpenOptions
from edgedec.pipeline import GenerateOptions, Pipeline
from edgedec.runtimes.llamacpp.trail import Trail
from edgedec.verify.results import Verification
from edgedec.verify.same_texts import Texts, verify

PROMPTS = [("repeats", [5, 6, 7, 8, 9] * 4), ("does not", list(range(5, 60)))]
INEXACT = ("lfm2",)  # near-ties may tip
SEEDED = SamplingParams(temperature=0.8, seed=3)
ASKED = GenerateOptions(max_new_tokens=48, sampling=SEEDED, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hybrids")
    write_tiny_gguf(folder / "llama.gguf", "llama", "Q8_0", layers=1)
    write_tiny_gguf(folder / "mamba.gguf", "mamba", "Q8_0")
    write_hybrid_gguf(folder / "hybrid.gguf", "qwen35", "Q8_0", noise=0.3)
    for arch in ("qwen35", "lfm2", "qwen35moe"):
        write_hybrid_gguf(folder / f"{arch}.gguf", arch, "Q8_0")
    return folder


@pytest.fixture(scope="module")
def plain() -> dict[str, Texts]:
    """The plain texts of each target."""
    return {}


def compared(
    folder: Path, plain: dict[str, Texts], target: str, drafter: str, draft: str, length: int
) -> Verification:
    options = OpenOptions(
        drafter=drafter, draft_length=length, draft=folder / f"{draft}.gguf" if draft else None
    ).changed(batch_invariant=target not in INEXACT or None, threads=1)
    texts = plain.setdefault(target, {})
    return verify(folder / f"{target}.gguf", PROMPTS, ASKED, options=options, plain=texts)


# Drafts of two, which the states that are kept of a pass cover, and of twelve, which they do not.
@pytest.mark.parametrize("length", [2, 12])
@pytest.mark.parametrize(
    ("target", "drafter", "draft"),
    [
        ("qwen35", "lookup", ""),
        ("qwen35", "hybrid", "hybrid"),
        *in_full(
            [
                ("qwen35", "recycle", ""),
                ("qwen35", "adaptive", "llama"),
                ("qwen35", "model", "llama"),
                ("qwen35moe", "text", ""),
                ("lfm2", "text", ""),
                ("lfm2", "model", "llama"),
                ("mamba", "text", ""),
                ("qwen35", "model", "mamba"),
            ],
            kept=0,
        ),
    ],
)
def test_drafted_texts_are_the_same(
    folder: Path, plain: dict[str, Texts], target: str, drafter: str, draft: str, length: int
) -> None:
    found = compared(folder, plain, target, drafter, draft, length)
    if target in INEXACT:
        assert all(row.differ == 0 for row in found.rows)
        return
    assert found.plan["batch_invariant"]
    assert not found.divergences
    assert [row.identical for row in found.rows] == [len(PROMPTS)] * 2


def test_a_state_of_another_text_is_noticed(
    folder: Path, plain: dict[str, Texts], monkeypatch: pytest.MonkeyPatch
) -> None:
    forget = Trail._forget

    def forgets(trail: Trail, length: int) -> None:
        forget(trail, length)
        trail._tokens[-1:] = [7] * bool(trail._tokens)

    compared(folder, plain, "qwen35", "lookup", "", 12)
    monkeypatch.setattr(Trail, "_forget", forgets)
    assert compared(folder, plain, "qwen35", "lookup", "", 12).divergences


def test_a_turn_goes_on_from_the_end_of_the_last_prompt(folder: Path) -> None:
    first, second = list(range(5, 60)), [*range(5, 60), 7, 9, 11]
    asked = GenerateOptions(max_new_tokens=100, ignore_eos=True)
    options = OpenOptions(drafter="text").changed(batch_invariant=True, threads=1)
    with Pipeline.open(folder / "qwen35.gguf", options) as pipeline:
        expected = pipeline.generate(second, asked).token_ids
        pipeline.generate(list(range(60, 90)), asked)
        pipeline.generate(first, asked)  # its answer is no part of the next prompt
        found = pipeline.generate(second, asked)
    assert found.token_ids == expected
    assert found.metrics.reused_tokens == len(first)
