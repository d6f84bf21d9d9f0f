"""The trained parallel draft beside the demo target: its text is the target's, in fewer passes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import tiny_bundles
from kinds import in_full

from edgedec import Pipeline
from edgedec.errors import BundleError
from edgedec.export import ExportOptions

MODELS = Path(__file__).parents[3] / "models" / "demo"
PROMPT = "def read_lines(path):"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("parallel") / "bundle"
    options = ExportOptions(
        MODELS / "target", out, MODELS / "draft_parallel", weights="fp32", calibration="none"
    )
    return tiny_bundles.kept(options)


@pytest.mark.parametrize("temperature", in_full([0.8, 0.0]))
def test_its_text_is_the_targets_in_fewer_passes(bundle: Path, temperature: float) -> None:
    options = {"max_new_tokens": 48, "temperature": temperature, "seed": 5}
    with Pipeline.open(bundle, drafter="none") as pipeline:
        plain = pipeline.generate(PROMPT, **options)
    with Pipeline.open(bundle, drafter="parallel", draft_length=3) as pipeline:
        drafted = pipeline.generate(PROMPT, **options)
    assert drafted.token_ids == plain.token_ids
    assert drafted.metrics.target_passes < 0.75 * plain.metrics.target_passes


def test_with_another_token_for_the_mask_nearly_nothing_is_accepted(
    bundle: Path, tmp_path: Path
) -> None:
    def later(folder: Path) -> int:
        """Accepted tokens beyond the first of each draft, which needs no mask."""
        with Pipeline.open(folder, drafter="parallel", draft_length=4) as pipeline:
            metrics = pipeline.generate(PROMPT, max_new_tokens=48).metrics
        return metrics.accepted_tokens - metrics.target_passes

    assert later(bundle) > later(_with_mask(bundle, tmp_path / "other", 300))


def test_a_mask_that_is_no_token_is_refused(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="mask_token 4096 is not one of its tokens"):
        Pipeline.open(_with_mask(bundle, tmp_path / "damaged", 4096))


def _with_mask(bundle: Path, folder: Path, mask: int) -> Path:
    shutil.copytree(bundle, folder)
    file = folder / "manifest.json"
    manifest = json.loads(file.read_text("utf-8"))
    manifest["roles"]["draft"]["dims"]["mask_token"] = mask
    file.write_text(json.dumps(manifest), "utf-8")
    return folder
