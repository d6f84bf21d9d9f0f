"""The parallel drafter drafts what PARD's own loop drafts, round by round."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pard_case import CASE, DRAFT_LENGTH, PROMPT, checkpoints

from edgedec import Pipeline
from edgedec.decoding.drafting.parallel import ParallelDrafter
from edgedec.decoding.tree import Draft
from edgedec.export import ExportOptions, export_bundle


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pard")
    target, draft = checkpoints(folder)
    options = ExportOptions(target, folder / "bundle", draft, weights="fp32", calibration="none")
    export_bundle(options)
    return options.out


def drafted(bundle: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> tuple[list[int], list]:
    """The ids after the prompt, and the drafts of all rounds."""
    drafts: list[list[int]] = []
    propose = ParallelDrafter.propose

    def noting(self: ParallelDrafter, *given: object) -> Draft:
        draft = propose(self, *given)  # type: ignore[arg-type]
        drafts.append(list(draft.tree.tokens[1:]))
        return draft

    monkeypatch.setattr(ParallelDrafter, "propose", noting)
    with Pipeline.open(bundle, drafter="parallel", draft_length=DRAFT_LENGTH) as pipeline:
        result = pipeline.generate(PROMPT, max_new_tokens=count, ignore_eos=True)
    return result.token_ids, drafts


def test_every_round_drafts_the_same(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = json.loads(CASE.read_text("utf-8"))
    text = known["text"][len(PROMPT) :]
    rounds = len(known["drafts"])
    # More, since the last drafts of a text end where it ends.
    ids, drafts = drafted(bundle, monkeypatch, len(text) + 2 * DRAFT_LENGTH)
    assert ids[: len(text)] == text
    assert drafts[:rounds] == known["drafts"]
    assert len(text) > rounds > 40  # some drafts were accepted, most were not


def test_one_mask_less_is_noticed(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a loop that lets a mask stand for the root would draft."""
    propose = ParallelDrafter.propose

    def shifted(self: ParallelDrafter, root: int, *rest: object) -> Draft:
        return propose(self, self._mask, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(ParallelDrafter, "propose", shifted)
    _, drafts = drafted(bundle, monkeypatch, 60)
    assert drafts[:-1] != json.loads(CASE.read_text("utf-8"))["drafts"][: len(drafts) - 1]
