"""Texts of hybrids in ONNX are those of plain decoding, whichever drafter drafted them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from kinds import in_full
from peak_memory import measured
from tiny_bundles import kept
from tiny_lfm2 import CONFIG
from tiny_models import tiny_checkpoint

from edgedec.decoding.sampling import SamplingParams
from edgedec.errors import InputError, RuntimeUnavailable, UnsupportedArchitecture
from edgedec.export import ExportOptions, export_bundle
from edgedec.loading.build import OpenOptions
from edgedec.pipeline import GenerateOptions, Pipeline
from edgedec.records.load import LoadOptions
from edgedec.runtimes.onnx import adapter
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.runtimes.onnx.recent import RecentRows
from edgedec.verify.results import Verification
from edgedec.verify.same_texts import Texts, verify

PROMPTS = [("repeats", [5, 6, 7, 8, 9] * 4), ("does not", list(range(5, 60)))]
SEEDED = SamplingParams(temperature=0.8, seed=3)
ASKED = GenerateOptions(max_new_tokens=48, sampling=SEEDED, ignore_eos=True)
OWN = {name: value for name, value in CONFIG.items() if name != "vocab_size"}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")
    tiny_checkpoint(folder / "lfm2", **OWN)
    tiny_checkpoint(folder / "lfm2-draft", **OWN | {"hidden_size": 32, "intermediate_size": 64})
    tiny_checkpoint(folder / "llama", hidden_size=32, intermediate_size=64)
    return folder


@pytest.fixture(scope="module")
def plain() -> dict[str, Texts]:
    """The plain texts in each format of weights."""
    return {}


def bundle(checkpoints: Path, weights: str = "fp32", draft: str | None = None) -> Path:
    options = ExportOptions(
        checkpoints / "lfm2", Path("bundle"), checkpoints / draft if draft else None,
        weights=weights, parity=False, calibration="none",
    )  # fmt: skip
    return kept(options)


def compared(
    checkpoints: Path, plain: dict[str, Texts], weights: str, drafter: str, draft: str | None
) -> Verification:
    options = OpenOptions(drafter=drafter, draft_length=5).changed(batch_invariant=True, threads=1)
    texts = plain.setdefault(f"{weights} {draft}", {})
    return verify(bundle(checkpoints, weights, draft), PROMPTS, ASKED, options=options, plain=texts)


DRAFTED = [
    ("fp32", "lookup", None),
    ("int4", "model", "lfm2-draft"),
    *in_full(
        [
            (weights, drafter, draft)
            for weights in ("fp32", "int8", "int4")
            for drafter, draft in (
                ("lookup", None), ("recycle", None), ("suffix", None), ("text", None),
                ("model", "llama"), ("hybrid", "lfm2-draft"), ("adaptive", "lfm2-draft"),
            )
        ],
        kept=0,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("weights", "drafter", "draft"), DRAFTED)
def test_drafted_texts_are_the_same(
    checkpoints: Path, plain: dict[str, Texts], weights: str, drafter: str, draft: str | None
) -> None:
    found = compared(checkpoints, plain, weights, drafter, draft)
    assert found.plan["batch_invariant"]
    assert not found.divergences
    # Greedily and with a seed.
    assert [row.identical for row in found.rows] == [len(PROMPTS)] * 2


def test_a_row_too_early_is_noticed(
    checkpoints: Path, plain: dict[str, Texts], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Early(RecentRows):
        def before(self, at: int) -> np.ndarray:  # type: ignore[type-arg]
            return super().before(at - 1 if self.kept < at and self.holds(at - 1) else at)

    compared(checkpoints, plain, "fp32", "lookup", None)
    monkeypatch.setattr("edgedec.runtimes.onnx.graph.RecentRows", Early)
    assert compared(checkpoints, plain, "fp32", "lookup", None).divergences


def test_trees_are_refused_in_one_line(checkpoints: Path) -> None:
    options = OpenOptions(drafter="tree").changed(threads=1)
    with pytest.raises(InputError, match="only chains are verified") as caught:
        Pipeline.open(bundle(checkpoints, draft="llama"), options)
    assert "\n" not in str(caught.value)


# -- going back, saved and limited --------------------------------------------------------------


def test_a_turn_goes_on_from_the_end_of_the_last_prompt(checkpoints: Path) -> None:
    first, second = list(range(5, 60)), [*range(5, 60), 7, 9, 11]
    asked = GenerateOptions(max_new_tokens=100, ignore_eos=True)
    options = OpenOptions(drafter="text").changed(batch_invariant=True, threads=1)
    with Pipeline.open(bundle(checkpoints), options) as pipeline:
        expected = pipeline.generate(second, asked).token_ids
        pipeline.generate(list(range(60, 90)), asked)
        pipeline.generate(first, asked)  # its answer is no part of the next prompt
        found = pipeline.generate(second, asked)
    assert found.token_ids == expected
    assert found.metrics.reused_tokens == len(first)


def test_a_saved_text_goes_on(checkpoints: Path, tmp_path: Path) -> None:
    prompt, asked = list(range(5, 60)), GenerateOptions(max_new_tokens=30, ignore_eos=True)
    options = OpenOptions(drafter="lookup").changed(batch_invariant=True, threads=1)
    with Pipeline.open(bundle(checkpoints), options) as pipeline:
        first = pipeline.generate(prompt, asked).token_ids
        pipeline.save(tmp_path / "session")
        longer = [*prompt, *first, 7, 9]
        expected = pipeline.generate(longer, asked).token_ids
    with Pipeline.open(bundle(checkpoints), options) as pipeline:
        pipeline.restore(tmp_path / "session")
        found = pipeline.generate(longer, asked)
    assert found.token_ids == expected
    # The last token is in no cache yet; a state that is loaded goes on from its end.
    assert found.metrics.reused_tokens == len(prompt) + len(first) - 1


def test_a_state_does_not_grow_with_the_text(checkpoints: Path) -> None:
    model = OnnxModel.load(bundle(checkpoints) / "target", threads=1)
    sizes = []
    for count in (100, 150, 200):
        session, file = model.open(256), io.BytesIO()
        session.prefill(list(range(count)))
        session.save(file)
        sizes.append(len(file.getvalue()))
    # One layer of four attends: it alone adds keys and values of two heads of 16 channels.
    each = 2 * 2 * 16 * 4
    assert model.info.kv_bytes_per_token == each
    assert np.diff(sizes).tolist() == [50 * each, 50 * each]
    # Three convolutions read two tokens before the current one.
    state = 3 * 2 * 64 * 4
    assert state < sizes[0] - 100 * each < state + 400
    assert state < model.info.state_bytes < 200 * state


def test_the_bundle_says_how_much_a_token_takes(checkpoints: Path) -> None:
    from edgedec.bundle.folder import Bundle

    assert Bundle.open(bundle(checkpoints)).target.kv_bytes_per_token("onnx") == 2 * 2 * 16 * 4


COSTS = """
from pathlib import Path
from edgedec.loading.build import OpenOptions, assemble
from edgedec.loading.sources import Models
from edgedec.runtimes.onnx import recent

def work(argument):
    folder, recent.ROUND = argument.split()[0], int(argument.split()[1])
    options = OpenOptions(memory=1 << 30, drafter="lookup", draft_length=4, parallel=2)
    parts = assemble(Models.find(Path(folder)), options.changed(threads=1))
    costs = parts.guard._costs.target
    return f"{costs.held} {costs.own}"

def close():
    pass
"""


def test_the_rows_count_as_memory(checkpoints: Path) -> None:
    """Of the session that is measured, and of each further one."""
    few, many = (
        [int(number) for number in measured(COSTS, f"{bundle(checkpoints)} {rows}")[0].split()]
        for rows in (48, 12_000)
    )
    rows = 3 * 12_000 * 64 * 4
    assert 0.9 * rows < many[0] - few[0] < 1.2 * rows
    assert many[1] > rows > few[1]


# -- what computes attention only ---------------------------------------------------------------


@pytest.mark.parametrize("format", ["onnx-static", "coreml"])
def test_formats_of_attention_alone_refuse(checkpoints: Path, tmp_path: Path, format: str) -> None:
    options = ExportOptions(checkpoints / "lfm2", tmp_path / "out", formats=(format,))
    with pytest.raises(UnsupportedArchitecture, match=f"the format {format} computes attention"):
        export_bundle(options)
    assert not list(tmp_path.iterdir())


def test_streamed_weights_and_openvino_refuse(checkpoints: Path) -> None:
    file = bundle(checkpoints) / "target" / "model.onnx"
    with pytest.raises(RuntimeUnavailable, match="--weight-memory runs attention only"):
        adapter.load(file, LoadOptions(threads=1, weight_memory=1 << 20))
    pytest.importorskip("openvino")
    with pytest.raises(RuntimeUnavailable, match="OpenVINO runs attention only"):
        adapter.load(file, LoadOptions(threads=1, device="openvino"))
