"""A trained head drafts for the demo target, whose text it is, whatever comes in between."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import demo_head
import numpy as np
import onnx
import pytest
from kinds import in_full

from edgedec import Pipeline
from edgedec.decoding.drafting._context import Context
from edgedec.decoding.drafting._head_context import HeadContext
from edgedec.decoding.drafting.head import HeadDrafter
from edgedec.decoding.session import Want
from edgedec.decoding.tree import TokenTree
from edgedec.errors import BundleError, InputError, StateError
from edgedec.runtimes.onnx.fusion import FUSE_FILE
from edgedec.runtimes.onnx.head import HEAD_FILE, OnnxHead

PROMPTS = ("def read_lines(path):", "class Reader:\n    def __init__(self, path):")


@pytest.fixture(scope="module")
def plain() -> Iterator[Pipeline]:
    with Pipeline.open(demo_head.bundle(), drafter="none") as pipeline:
        yield pipeline


@pytest.fixture
def headed() -> Iterator[Pipeline]:
    with Pipeline.open(demo_head.bundle(), drafter="head", draft_length=3) as pipeline:
        yield pipeline


SAMPLERS: list[Any] = [
    {"temperature": 1.1, "top_p": 0.9, "repetition_penalty": 1.2, "seed": 6},
    {"regex": r"(def|class) [a-z_]+\([a-z, ]*\):\n(    [a-z_ .=()]+\n){4}"},
    {},
    {"temperature": 0.8, "seed": 5},
    {"stop": ("return",), "logprobs": 2},
]


@pytest.mark.parametrize("options", in_full(SAMPLERS))
def test_texts_one_after_the_other(plain: Pipeline, headed: Pipeline, options: Any) -> None:
    """The second goes on where the first ended, the third shares a prefix with it."""
    texts = [PROMPTS[0], None, PROMPTS[0] + "\n    with", PROMPTS[1], PROMPTS[0]]
    before = ""
    for prompt in texts:
        given = before if prompt is None else prompt
        expected = plain.generate(given, max_new_tokens=24, **options)
        result = headed.generate(given, max_new_tokens=24, **options)
        assert result.token_ids == expected.token_ids
        before = given + result.text


def test_a_plain_text_does_without_the_head(
    plain: Pipeline, headed: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the next one that is drafted is right, although the head missed it."""
    read, missed = HeadDrafter.read, []
    monkeypatch.setattr(HeadDrafter, "read", lambda self, *given: missed.append(given))
    first = headed.generate(PROMPTS[0], max_new_tokens=20, drafter="none")
    assert missed == []
    monkeypatch.setattr(HeadDrafter, "read", read)
    prompt = PROMPTS[0] + first.text
    second = headed.generate(prompt, max_new_tokens=30)
    assert second.token_ids == plain.generate(prompt, max_new_tokens=30).token_ids
    assert second.metrics.accepted_tokens > 0


def test_it_takes_fewer_passes(plain: Pipeline, headed: Pipeline) -> None:
    options = {"max_new_tokens": 64, "ignore_eos": True}
    passes = [p.generate(PROMPTS[0], **options).metrics.target_passes for p in (plain, headed)]
    assert passes[1] < 0.6 * passes[0]


@pytest.mark.parametrize("seed", in_full(range(4)))
def test_what_the_head_holds_is_what_it_would_read_from_nothing(
    headed: Pipeline, seed: int
) -> None:
    """After texts of random lengths, drafted and not, and prompts that share a part."""
    rng = np.random.default_rng(seed)
    text = list(headed.tokenizer.encode(PROMPTS[0]))
    for _ in range(6):
        cut = int(rng.integers(2, len(text) + 1))
        count, length = int(rng.integers(2, 24)), int(rng.integers(0, 5))
        options = {"temperature": 0.9, "seed": int(rng.integers(99)), "ignore_eos": True}
        text = text[:cut]
        text += headed.generate(
            text, max_new_tokens=count, draft_length=length, **options
        ).token_ids
    check(headed)


def test_a_head_that_keeps_its_own_states_is_noticed(
    headed: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As vLLM did (vllm#14649): accepted nodes stay with the states that the head made up."""
    monkeypatch.setattr(HeadContext, "keep", Context.keep)
    headed.generate(PROMPTS[0], max_new_tokens=40, ignore_eos=True)
    with pytest.raises(AssertionError):
        check(headed)


def check(pipeline: Pipeline) -> None:
    """Compare a row of the head with that of one that reads the whole text at once."""
    drafter = pipeline.engine.drafter
    assert isinstance(drafter, HeadDrafter)
    context = drafter._head
    tokens = list(pipeline.engine.last_tokens)
    held = context._first + len(context._held)
    assert context._first == 0
    assert held > 3
    assert context._held == tokens[1 : held + 1]
    session = pipeline.target.open(len(tokens) + 1)
    scored = session.forward(TokenTree.chain(tokens), want=Want.TOP | Want.STATES)
    assert scored.states is not None
    carried = context._head.fuse(scored.states)
    session.close()
    fresh = context._head.open(len(tokens) + 1)
    fresh.carry(carried[: held + 1])
    fresh.prefill(tokens[1 : held + 1])
    rows = []
    for one in (fresh, context._session):
        one.carry(carried[held : held + 1])
        found = one.forward(TokenTree(7), want=Want.LOGITS).logits
        assert found is not None
        rows.append(found[0][np.isfinite(found[0])].copy())
    np.testing.assert_allclose(*rows, rtol=0, atol=2e-3)
    context._session.rollback(len(context._held))
    fresh.close()


def test_auto_without_the_head(tmp_path: Path) -> None:
    with Pipeline.open(demo_head.bundle(), draft=Path("demo"), plan="none") as pipeline:
        assert pipeline.plan["drafter"] == "hybrid"


def test_where_the_target_shows_no_states(plain: Pipeline) -> None:
    with Pipeline.open(demo_head.bundle(), weight_memory="30MB", plan="none") as pipeline:
        assert pipeline.plan["drafter"] == "text"
    with pytest.raises(InputError, match="leave --weight-memory out"):
        Pipeline.open(demo_head.bundle(), drafter="head", weight_memory="30MB", plan="none")


def test_what_excludes_a_head(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has none: export the target with --head"):
        Pipeline.open("demo", drafter="head")


def test_a_head_in_another_format_is_named(tmp_path: Path) -> None:
    def moved(folder: Path, manifest: dict[str, Any]) -> None:
        variants = manifest["roles"]["head"]["variants"]
        variants["gguf"] = variants.pop("onnx")

    with pytest.raises(InputError, match="is for gguf, not for onnx: give --format gguf"):
        Pipeline.open(changed(tmp_path / "b", moved), drafter="head")


def test_a_head_of_another_target_is_refused(tmp_path: Path) -> None:
    """Its files are there and whole, but its target shows other states."""
    folder = tmp_path / "b"
    shutil.copytree(demo_head.bundle(), folder)
    head = demo_head.changed(
        tmp_path / "head", eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 2, 3]}
    )
    other = demo_head.bundle(head, parity=False)
    manifests = [json.loads((one / "manifest.json").read_text("utf-8")) for one in (folder, other)]
    for name in ("target/head.onnx", "target/head.onnx.data"):
        shutil.copyfile(other / name, folder / name)
        manifests[0]["files"][name] = manifests[1]["files"][name]
    (folder / "manifest.json").write_text(json.dumps(manifests[0]), "utf-8")
    with pytest.raises(BundleError, match=r"before layers \[2, 3, 4\].* before \[1, 2, 3\]"):
        Pipeline.open(folder, drafter="head")


def changed(folder: Path, change: Callable[[Path, dict[str, Any]], None]) -> Path:
    """The bundle after a change of its files and its manifest, which states what is there."""
    shutil.copytree(demo_head.bundle(), folder)
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    change(folder, manifest)
    for name, fact in manifest["files"].items():
        data = (folder / name).read_bytes()
        fact |= {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    (folder / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    return folder


def unlisted(folder: Path, manifest: dict[str, Any]) -> None:
    """The fusion is there, and the manifest states nheaded its size nor its hash."""
    del manifest["files"][f"target/{FUSE_FILE}"]
    manifest["roles"]["head"]["variants"]["onnx"]["files"].remove(f"target/{FUSE_FILE}")


def linked(folder: Path, manifest: dict[str, Any]) -> None:
    """Likewise, and it is a link that leads out of the bundle."""
    unlisted(folder, manifest)
    file = folder / "target" / FUSE_FILE
    file.unlink()
    file.symlink_to(demo_head.bundle() / "target" / FUSE_FILE)


def data_unlisted(folder: Path, manifest: dict[str, Any]) -> None:
    """The fusion's weights are in a file that the manifest does not list."""
    del manifest["files"][f"target/{FUSE_FILE}.data"]
    manifest["roles"]["head"]["variants"]["onnx"]["files"].remove(f"target/{FUSE_FILE}.data")


@pytest.mark.parametrize("change", in_full([unlisted, linked, data_unlisted], 2))
def test_files_that_the_manifest_does_not_list_are_not_opened(
    tmp_path: Path, change: Callable[[Path, dict[str, Any]], None]
) -> None:
    with pytest.raises(BundleError, match="does not list"):
        Pipeline.open(changed(tmp_path / "b", change), drafter="head")


def test_a_copy_that_lists_its_files_is_opened(tmp_path: Path) -> None:
    """The control of those above and below."""
    copied = changed(tmp_path / "same", lambda *_: None)
    with Pipeline.open(copied, drafter="head", draft_length=3) as pipeline:
        assert pipeline.plan["drafter"] == "head"


def test_what_is_no_fusion_is_refused(tmp_path: Path) -> None:
    """Its inputs have other shapes, some of them none at all."""

    def exchanged(folder: Path, manifest: dict[str, Any]) -> None:
        shutil.copyfile(folder / "target" / HEAD_FILE, folder / "target" / FUSE_FILE)
        files = manifest["roles"]["head"]["variants"]["onnx"]["files"]
        assert f"target/{HEAD_FILE}.data" in files

    with pytest.raises(BundleError, match="not a head with its fusion"):
        Pipeline.open(changed(tmp_path / "b", exchanged), drafter="head")


@pytest.mark.parametrize("facts", in_full([{"taps": {"carried.next": 1e400}}, {"reads": [1e400]}]))
def test_facts_that_are_no_numbers_are_refused(tmp_path: Path, facts: dict[str, Any]) -> None:
    def damaged(folder: Path, manifest: dict[str, Any]) -> None:
        file = folder / "target" / HEAD_FILE
        model = onnx.load(file, load_external_data=False)
        (stated,) = model.metadata_props
        stated.value = json.dumps(json.loads(stated.value) | facts)
        onnx.save(model, file)

    with pytest.raises(BundleError, match="its metadata is damaged"):
        Pipeline.open(changed(tmp_path / "b", damaged), drafter="head")


def test_a_head_with_another_vocabulary_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    load = OnnxHead.with_fusion

    def narrow(*where: Any, **options: Any) -> OnnxHead:
        head = load(*where, **options)
        head.info = replace(head.info, vocab_size=8)
        return head

    monkeypatch.setattr(OnnxHead, "with_fusion", narrow)
    with pytest.raises(BundleError, match="the head scores 8 tokens, the target 4096"):
        Pipeline.open(demo_head.bundle(), drafter="head")


def test_a_request_that_gets_no_session_leaves_that_of_others_alone(
    headed: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its engine's last session may be the one in which another engine prefills."""
    engine, taps = headed.engine, list[Any]()
    headed.generate(PROMPTS[0], max_new_tokens=2)
    monkeypatch.setattr(engine.target, "tap", taps.append)

    def full(prompt: Any) -> Any:
        raise StateError("all 1 sessions are in use")

    with monkeypatch.context() as patch:
        patch.setattr(engine.pool, "acquire", full)
        with pytest.raises(StateError, match="in use"):
            headed.generate(PROMPTS[0], max_new_tokens=2)
    assert taps == []
    headed.generate(PROMPTS[0], max_new_tokens=2)
    assert taps[-1] is None  # control: its own session no longer reports
    assert len(taps) == 2
