"""Gemma 4 with its assistant: the target's texts, drafted from the target's own cache."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import broken_rules
import numpy as np
import onnx
import pytest
from assistant_case import CASES, TargetFormulas, agreeing, pair
from kinds import in_full
from mimo_case import PROMPT, SCRIPT
from seen_drafts import Seen

from edgedec import Pipeline
from edgedec.bundle import Bundle
from edgedec.errors import BundleError, CheckpointError, InputError
from edgedec.export import ExportOptions, export_bundle
from edgedec.runtimes.onnx.assistant import AssistantSession, Lent
from edgedec.text.tokenizer import Tokenizer

OPTIONS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"temperature": 0.8, "seed": 5},
    "penalties": {"temperature": 1.2, "top_p": 0.9, "repetition_penalty": 1.1, "seed": 6},
}


def exported(target: Path, head: Path, out: Path, **options: Any) -> Path:
    plain = {"weights": "fp32", "calibration": "none"}
    export_bundle(ExportOptions(target, out, head=head, **{**plain, **options}))
    return Bundle.open(out, verify=True).path


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def random(case: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of a random pair, whose drafts are hardly ever right."""
    folder = tmp_path_factory.mktemp("random")
    return exported(*pair(case, folder), folder / "b", parity=False)


@pytest.fixture(scope="module")
def script(case: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of a target that repeats a text, which its assistant drafts."""
    folder = tmp_path_factory.mktemp("script")
    target, head, text = agreeing(case, folder)
    return exported(target, head, folder / "b", parity_text=text)


def differing(bundle: Path, prompt: str, drafter: str = "head") -> int:
    """How many texts are not those without drafts; each goes on from the one before."""
    wrong, length = 0, {} if drafter == "auto" else {"draft_length": 3}
    with (
        Pipeline.open(bundle, drafter="none", plan="none") as plain,
        Pipeline.open(bundle, drafter=drafter, plan="none", **length) as drafted,
    ):
        for options in OPTIONS.values():
            given = prompt
            for _ in range(2):
                more = {"max_new_tokens": 16, "ignore_eos": True, **options}
                expected = plain.generate(given, **more)
                wrong += drafted.generate(given, **more).token_ids != expected.token_ids
                given += expected.text
    return wrong


def test_it_agrees_with_its_target(script: Path) -> None:
    manifest = json.loads((script / "manifest.json").read_text("utf-8"))["roles"]["head"]
    figures = manifest["variants"]["onnx"]["parity"]
    assert [figures[f"agreement_{depth}"] for depth in (1, 2, 3)] == [1.0, 1.0, 1.0]
    assert manifest["architecture"] == "gemma4_assistant"
    assert manifest["taps"] == [6]
    with Pipeline.open(script, plan="none") as pipeline:
        assert pipeline.engine.drafter.name == "headed"


@pytest.mark.full
def test_how_often_it_agrees_is_what_the_formulas_find(tmp_path: Path) -> None:
    target, head, text = agreeing("assistant", tmp_path, heed=1.0)
    bundle = exported(target, head, tmp_path / "b", parity_text=text)
    manifest = json.loads((bundle / "manifest.json").read_text("utf-8"))["roles"]["head"]
    formulas = TargetFormulas(target, head)
    tokens = list(Tokenizer.load(target).encode(text.read_text("utf-8")))
    # The text is the target's own. Every second token is a root.
    right = [
        formulas.draft(tokens[:root], tokens[root], 1) == [tokens[root + 1]]
        for root in range(2, len(tokens) - 3, 2)
    ]
    share = manifest["variants"]["onnx"]["parity"]["agreement_1"]
    assert 0.1 < share < 0.9
    assert share == pytest.approx(np.mean(right), abs=1e-4)


@pytest.mark.parametrize("drafter", in_full(["head", "headed", "auto"]))
def test_texts_are_the_targets(random: Path, script: Path, drafter: str) -> None:
    assert differing(random, PROMPT, drafter) == 0
    assert differing(script, "".join(SCRIPT[:9]), drafter) == 0


def test_texts_of_a_rule_that_takes_one_more_differ(
    random: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: drafts are there, and would be seen."""
    broken_rules.accepts_one_more(monkeypatch)
    assert differing(random, PROMPT) > 0


def test_texts_of_a_head_that_writes_into_the_cache_differ(
    random: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: what it reads is the target's own memory."""
    score = AssistantSession._score

    def scribbles(self: AssistantSession, *given: Any) -> Any:
        assert self._target is not None
        for one in self._lent:
            for part in self._target.lend(one.layer):
                part[:, : self._target.length] = 0
        return score(self, *given)

    monkeypatch.setattr(AssistantSession, "_score", scribbles)
    assert differing(random, PROMPT) > 0


def test_drafts_are_accepted(script: Path) -> None:
    with Pipeline.open(script, drafter="head", draft_length=3) as pipeline:
        done = pipeline.generate("".join(SCRIPT[:5]), max_new_tokens=32, ignore_eos=True).metrics
    assert done.accepted_tokens == done.drafted_tokens > 20


def test_nothing_is_drafted_from_the_state_of_an_earlier_token(script: Path) -> None:
    """The last ones were forced, and the target has not read them."""
    with Pipeline.open(script, drafter="head", draft_length=3, plan="none") as pipeline:
        forced = {"regex": "(<10><11><12>.){9}", "max_new_tokens": 60}
        done = pipeline.generate("".join(SCRIPT[:9]), **forced).metrics
    assert done.forced_tokens > 20
    assert done.drafted_tokens == 0


@pytest.mark.parametrize("kind", in_full(CASES))
def test_drafted_tokens(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those of the formulas, of the target's reference, whatever came before.

    Some are accepted. Texts are cut anywhere and go on, some without drafts, and an earlier one is
    restored.
    """
    seen, (target, head, _) = Seen(monkeypatch), agreeing(kind, tmp_path, heed=1.0)
    bundle = exported(target, head, tmp_path / "b", parity=False)
    rng = np.random.default_rng(1)
    with Pipeline.open(bundle, drafter="head", draft_length=3, plan="none") as pipeline:
        text, accepted = list(pipeline.tokenizer.encode("".join(SCRIPT[:9]))), 0
        for turn in range(10):
            text = text[: int(rng.integers(2, len(text) + 1))]
            plain: dict[str, Any] = {"drafter": "none"} if turn % 4 == 3 else {}
            more = {"max_new_tokens": int(rng.integers(4, 18)), "ignore_eos": True, **plain}
            done = pipeline.generate(text, **more)
            accepted += done.metrics.accepted_tokens
            text += done.token_ids
            if turn == 4:
                pipeline.save(tmp_path / "text")
            if turn == 7:
                pipeline.restore(tmp_path / "text")
    assert 10 < accepted < sum(len(drafted) for *_, drafted in seen.drafts) - 10
    formulas = TargetFormulas(target, head)
    assert seen.wrong(formulas) == []
    # The control: the state of the token before, as an assistant reads it that is a round late.
    draft = formulas.draft
    monkeypatch.setattr(formulas, "draft", lambda tokens, *given: draft(tokens[:-1], *given))
    assert len(seen.wrong(formulas)) > 10


def test_it_is_given_up_and_drafts_again(script: Path) -> None:
    prompt, more = "".join(SCRIPT[:5]), {"max_new_tokens": 40, "ignore_eos": True}
    options: dict[str, Any] = {"plan": "none", "draft_length": 3, "memory": 1_000_000_000}
    with Pipeline.open(script, drafter="head", **options) as pipeline:
        first = pipeline.generate(prompt, **more)
        guard = pipeline._parts.guard
        assert guard is not None
        names = [level.name for level in guard._levels]
        kept, found = pipeline.engine.drafter._head, []  # type: ignore[attr-defined]
        for event in pipeline.stream(prompt, **more):
            found.append(event.token)
            if len(found) == 8:
                guard._go_to(names.index("plain decoding"), "asked for", 0)
                assert kept._evicted
        assert found == first.token_ids
        again = pipeline.generate(prompt, **more)
    assert again.token_ids == first.token_ids
    assert again.metrics.accepted_tokens == first.metrics.accepted_tokens > 20


def test_nothing_of_its_own_is_kept(random: Path, tmp_path: Path) -> None:
    """A saved text is as large as without it, and after it is loaded the head drafts at once."""
    sizes = []
    for drafter in ("none", "head"):
        length = {} if drafter == "none" else {"draft_length": 3}
        with Pipeline.open(random, drafter=drafter, plan="none", **length) as pipeline:
            pipeline.generate(PROMPT, max_new_tokens=12, ignore_eos=True)
            pipeline.save(tmp_path / drafter)
            sizes.append((tmp_path / drafter).stat().st_size)
    assert abs(sizes[0] - sizes[1]) < 200


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"hidden": 32}, "reads states of 32 channels, the target has 64"),
        ({"vocab_size": 96}, "drafts 96 tokens"),
        ({"sliding_window": 8}, "layer 0 reads 8 tokens, which no layer"),
        ({"head_dim": 8}, "heads of 8 channels, the target's keys 1 of 16"),
        ({"num_centroids": 13}, "13 clusters"),
    ],
)
def test_of_another_target(changed: dict[str, Any], wrong: str, tmp_path: Path) -> None:
    target, head = pair("assistant-routed", tmp_path)
    stated = json.loads((head / "config.json").read_text("utf-8"))
    for name, value in changed.items():
        if name == "hidden":
            stated["backbone_hidden_size"] = value
        elif name in stated:
            stated[name] = value
        else:
            stated["text_config"][name] = value
    (head / "config.json").write_text(json.dumps(stated), "utf-8")
    with pytest.raises(CheckpointError, match=wrong):
        exported(target, head, tmp_path / "b")
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("key", "value", "wrong"),
    [
        ("layer", 4, "its metadata does not fit|unexpected inputs"),
        ("kv_heads", 1 << 40, "metadata is damaged"),
        ("kv_heads", 2, "unexpected inputs"),
        ("width", 0, "metadata is damaged"),
        ("window", -2, "metadata is damaged"),
        ("width", 8, "unexpected inputs"),
    ],
)
def test_metadata_of_another_cache(
    random: Path, key: str, value: int, wrong: str, tmp_path: Path
) -> None:
    shutil.copytree(random, tmp_path / "b")
    file = tmp_path / "b" / "target" / "head.onnx"
    model = onnx.load(file, load_external_data=False)
    (entry,) = model.metadata_props
    stated = json.loads(entry.value)
    stated["borrows"][0][key] = value
    entry.value = json.dumps(stated)
    file.write_bytes(model.SerializeToString())
    manifest = json.loads((tmp_path / "b" / "manifest.json").read_text("utf-8"))
    manifest["files"]["target/head.onnx"] = {
        "bytes": file.stat().st_size, "sha256": sha256(file.read_bytes()).hexdigest(),
    }  # fmt: skip
    (tmp_path / "b" / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    with pytest.raises(BundleError, match=wrong):
        Pipeline.open(tmp_path / "b", drafter="head", plan="none")


def test_a_target_with_another_cache_is_found_when_it_is_opened(
    random: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def differs(lent: Lent, target: object) -> None:
        raise BundleError("of another size")

    monkeypatch.setattr(Lent, "check", differs)
    with pytest.raises(BundleError, match="of another size"):
        Pipeline.open(random, drafter="head", plan="none")


def test_an_int8_cache_is_refused(tmp_path: Path) -> None:
    target, head = pair("assistant", tmp_path)
    with pytest.raises(InputError, match="--kv int8"):
        exported(target, head, tmp_path / "b", kv="int8")
