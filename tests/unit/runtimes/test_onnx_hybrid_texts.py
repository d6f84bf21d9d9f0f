"""Texts of hybrids in ONNX are those of plain decoding, whichever drafter drafted them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import tiny_granite
import tiny_lfm2
import tiny_qwen3_5
from kinds import in_full
from peak_memory import measured
from tiny_bundles import kept
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
FAMILIES = {
    family: {name: value for name, value in config.items() if name != "vocab_size"}
    for family, config in (
        ("lfm2", tiny_lfm2.CONFIG),
        ("qwen3_5", tiny_qwen3_5.CONFIG),
        ("granitemoehybrid", tiny_granite.CONFIG),
    )
}


Kind = tuple[str, str, str | None]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")
    for family, own in FAMILIES.items():
        tiny_checkpoint(folder / family, **own)
        small = own | {"hidden_size": 32, "intermediate_size": 64}
        tiny_checkpoint(folder / f"{family}-draft", **small)
    tiny_checkpoint(folder / "llama", hidden_size=32, intermediate_size=64)
    return folder


@pytest.fixture(scope="module")
def plain() -> dict[str, Texts]:
    """The plain texts in each format of weights."""
    return {}


def bundle(
    checkpoints: Path, weights: str = "fp32", draft: str | None = None, family: str = "lfm2"
) -> Path:
    options = ExportOptions(
        checkpoints / family, Path("bundle"), checkpoints / draft if draft else None,
        weights=weights, parity=False, calibration="none",
    )  # fmt: skip
    return kept(options)


def compared(
    checkpoints: Path, plain: dict[str, Texts], kind: Kind, family: str = "lfm2"
) -> Verification:
    weights, drafter, draft = kind
    draft = draft and draft.format(family)
    options = OpenOptions(drafter=drafter, draft_length=5).changed(batch_invariant=True, threads=1)
    texts = plain.setdefault(f"{family} {weights} {draft}", {})
    path = bundle(checkpoints, weights, draft, family)
    return verify(path, PROMPTS, ASKED, options=options, plain=texts)


DRAFTED = [
    ("fp32", "lookup", None),
    ("int4", "model", "{}-draft"),
    *in_full(
        [
            ((weights, drafter, draft),)
            for weights in ("fp32", "int8", "int4")
            for drafter, draft in (
                ("lookup", None), ("recycle", None), ("suffix", None), ("text", None),
                ("model", "llama"), ("hybrid", "{}-draft"), ("adaptive", "{}-draft"),
            )
        ],
        kept=0,
    ),
]  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", DRAFTED)
def test_drafted_texts_are_the_same(
    checkpoints: Path, plain: dict[str, Texts], kind: Kind, family: str
) -> None:
    found = compared(checkpoints, plain, kind, family)
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

    compared(checkpoints, plain, ("fp32", "lookup", None))
    monkeypatch.setattr("edgedec.runtimes.onnx.graph.RecentRows", Early)
    assert compared(checkpoints, plain, ("fp32", "lookup", None)).divergences


def test_trees_are_refused_in_one_line(checkpoints: Path) -> None:
    options = OpenOptions(drafter="tree").changed(threads=1)
    with pytest.raises(InputError, match="only chains are verified") as caught:
        Pipeline.open(bundle(checkpoints, draft="llama"), options)
    assert "\n" not in str(caught.value)


# -- going back, saved and limited --------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_a_turn_goes_on_from_the_end_of_the_last_prompt(checkpoints: Path, family: str) -> None:
    first, second = list(range(5, 60)), [*range(5, 60), 7, 9, 11]
    asked = GenerateOptions(max_new_tokens=100, ignore_eos=True)
    options = OpenOptions(drafter="text").changed(batch_invariant=True, threads=1)
    with Pipeline.open(bundle(checkpoints, family=family), options) as pipeline:
        expected = pipeline.generate(second, asked).token_ids
        pipeline.generate(list(range(60, 90)), asked)
        pipeline.generate(first, asked)  # its answer is no part of the next prompt
        found = pipeline.generate(second, asked)
    assert found.token_ids == expected
    assert found.metrics.reused_tokens == len(first)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_text_goes_on(checkpoints: Path, tmp_path: Path, family: str) -> None:
    prompt, asked = list(range(5, 60)), GenerateOptions(max_new_tokens=30, ignore_eos=True)
    options = OpenOptions(drafter="lookup").changed(batch_invariant=True, threads=1)
    with Pipeline.open(bundle(checkpoints, family=family), options) as pipeline:
        first = pipeline.generate(prompt, asked).token_ids
        pipeline.save(tmp_path / "session")
        longer = [*prompt, *first, 7, 9]
        expected = pipeline.generate(longer, asked).token_ids
    with Pipeline.open(bundle(checkpoints, family=family), options) as pipeline:
        pipeline.restore(tmp_path / "session")
        found = pipeline.generate(longer, asked)
    assert found.token_ids == expected
    # The last token is in no cache yet; a state that is loaded goes on from its end.
    assert found.metrics.reused_tokens == len(prompt) + len(first) - 1


# Three layers' rows of two tokens; or rows of three, of queries, keys and values with the decay and
# share of each head, and matrices of 16 by 16 of four heads; or rows with the steps of heads, and
# matrices of 16 by 32.
STATES = {
    "lfm2": 3 * 2 * 64,
    "qwen3_5": 3 * (3 * (64 + 64 + 4 * 2) + 4 * 16 * 16),
    "granitemoehybrid": 3 * (3 * (128 + 2 * 16 + 4) + 4 * 16 * 32),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_state_does_not_grow_with_the_text(checkpoints: Path, family: str) -> None:
    path = bundle(checkpoints, family=family) / "target"
    model = OnnxModel.load(path, threads=1, batch_invariant=True)
    sizes = []
    for count in (100, 150, 200):
        session, file = model.open(256 - model.padding.slack), io.BytesIO()
        session.prefill(list(range(count)))
        session.save(file)
        sizes.append(len(file.getvalue()))
    # One layer of four attends: it alone adds keys and values of two heads of 16 channels.
    each = 2 * 2 * 16 * 4
    assert model.info.kv_bytes_per_token == each
    assert np.diff(sizes).tolist() == [50 * each, 50 * each]
    state = 4 * STATES[family]
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
    _, few, many = (  # the first one finds out which rows have other bits beside others
        [int(number) for number in measured(COSTS, f"{bundle(checkpoints)} {rows}")[0].split()]
        for rows in (48, 48, 12_000)
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


@pytest.mark.parametrize("family", FAMILIES)
def test_streamed_weights_and_openvino_refuse(checkpoints: Path, family: str) -> None:
    file = bundle(checkpoints, family=family) / "target" / "model.onnx"
    with pytest.raises(RuntimeUnavailable, match="--weight-memory runs attention only"):
        adapter.load(file, LoadOptions(threads=1, weight_memory=1 << 20))
    pytest.importorskip("openvino")
    with pytest.raises(RuntimeUnavailable, match="OpenVINO runs attention only"):
        adapter.load(file, LoadOptions(threads=1, device="openvino"))
