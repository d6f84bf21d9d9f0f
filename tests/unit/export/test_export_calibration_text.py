"""The texts that an export rounds for: the model's own, or a user's."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_tokenizers
import tokenizers
from kinds import in_full
from threadpoolctl import threadpool_info, threadpool_limits
from tiny_models import leftovers, tiny_checkpoint

from edgedec.bundle.manifest import MANIFEST
from edgedec.decoding.tree import TokenTree
from edgedec.errors import ExportError, InputError, UnsupportedArchitecture
from edgedec.export import ExportOptions, ExportReport, calibration, export_bundle, weighed
from edgedec.export.calibrated import CalibratedRounding
from edgedec.export.checkpoint import read_json
from edgedec.testing import FakeModel
from edgedec.text.tokenizer import Tokenizer

DEMO = Path(__file__).parents[3] / "models" / "demo"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tiny_checkpoint(tmp_path / "target")


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[calibration.Texts]:
    """The texts of every export, by the job that reads them."""
    found: list[calibration.Texts] = []
    honest = calibration.texts

    def texts(*more: Any) -> calibration.Texts:
        found.append(honest(*more))
        return found[-1]

    monkeypatch.setattr(calibration, "texts", texts)
    return found


def exported(target: Path, out: Path, **more: Any) -> ExportReport:
    # Random weights say nothing about what rounding loses.
    return export_bundle(
        ExportOptions(target, out, **{"calibration": "self", "parity": False, **more})
    )


def test_the_target_writes_for_both(
    target: Path, tmp_path: Path, written: list[calibration.Texts]
) -> None:
    seen: list[tuple[str, int, int]] = []
    draft = tiny_checkpoint(tmp_path / "draft", seed=9)
    given: dict[str, Any] = {"weights": "int4", "calibration": "self", "parity": False}
    options = ExportOptions(target, tmp_path / "out", draft, **given)
    export_bundle(options, lambda *step: seen.append(step))
    (texts,) = written
    assert [len(text) for text in texts] == [64] * 8, "four at once, as the context holds"
    assert len(set(texts)) == 8
    assert {text[0] for text in texts} == {0}, "the token that ends texts"
    assert ("calibration text", 512, 512) in seen
    assert ("target calibration", 2, 2) in seen
    assert ("draft calibration", 2, 2) in seen
    assert read_json(options.out / MANIFEST)["provenance"]["options"]["calibration"] == "self"


def test_texts_written_together_are_those_written_alone() -> None:
    """Without noise every branch is the model's most likely text."""

    class NoNoise(np.random.Generator):
        def standard_exponential(self, size: Any = None, *more: Any) -> Any:
            return np.ones(size, np.float32)

    model, rng = FakeModel(32), NoNoise(np.random.PCG64(1))
    (alone,) = calibration._together(model, [3], 24, 1, rng)
    assert len(set(alone)) > 3
    assert calibration._together(model, [3], 24, 3, rng) == [alone] * 3
    session, expected = model.open(64), [3]
    while len(expected) < 24:
        logits = session.forward(TokenTree.chain(expected)).logits
        assert logits is not None
        expected.append(int(logits[-1].argmax()))
        session.rollback(0)
    assert list(alone) == expected


def test_a_gguf_in_q8_0_writes_none_either(
    target: Path, tmp_path: Path, written: list[calibration.Texts]
) -> None:
    """An importance matrix would not change its blocks."""
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")
    text = tmp_path / "mine.txt"
    text.write_text("some text\n" * 100)
    more: dict[str, Any] = {"formats": ("gguf",), "weights": "q8_0"}
    exported(target, tmp_path / "out", **more)
    assert written == []
    with pytest.raises(InputError, match="--imatrix-text is for weights of 6 bits"):
        exported(target, tmp_path / "weighed", **more, imatrix_text=text)


@pytest.mark.parametrize("weights", ["int8", "fp16"])
def test_what_needs_no_texts_writes_none(
    target: Path, tmp_path: Path, weights: str, written: list[calibration.Texts]
) -> None:
    exported(target, tmp_path / "out", weights=weights)
    assert written == []


def test_a_draft_reads_them_in_its_own_tokens(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b")]
    makers = tiny_tokenizers.byte_level, tiny_tokenizers.metaspace
    for path, make in zip(paths, makers, strict=True):
        path.mkdir()
        tiny_tokenizers.save(make(), path)
    text = tuple(Tokenizer.load(paths[0]).encode("some text"))
    (found,) = calibration.retokenized((text,), *paths)
    assert Tokenizer.load(paths[1]).decode(found) == Tokenizer.load(paths[0]).decode(text)
    assert found != text


def test_a_tokenizer_that_reads_nothing_of_the_texts(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b")]
    for path, maker in zip(paths, (tiny_tokenizers.byte_level(), of_words()), strict=True):
        path.mkdir()
        maker.save(str(path / "tokenizer.json"))
    text, mute = tuple(Tokenizer.load(paths[0]).encode("some text")), ()
    with pytest.raises(InputError, match="reads nothing of the texts"):
        calibration.retokenized((mute, mute), *paths)
    assert len(calibration.retokenized((text, mute), paths[0], paths[0])) == 1, "the control"


@pytest.mark.parametrize(("texts", "measured"), [(2, 1), (16, 1), (31, 1), (32, 2), (80, 5)])
def test_one_text_in_sixteen_is_measured_on(texts: int, measured: int) -> None:
    written = tuple((number, number) for number in range(texts))
    read, heldout = calibration.held_out(written)
    assert (*read, *heldout) == written
    assert len(heldout) == measured


def test_of_a_single_text_one_half_is_measured_on() -> None:
    assert calibration.held_out(((1, 2, 3, 4, 5),)) == (((1, 2),), ((3, 4, 5),))


def test_a_text_of_ones_own(target: Path, tmp_path: Path, written: list[calibration.Texts]) -> None:
    text = tmp_path / "mine.txt"
    text.write_text("def add(left, right):\n    return left + right\n" * 100)
    exported(target, tmp_path / "out", weights="int4", calibration="none", calibration_text=text)
    assert len(written) == 1
    provenance = read_json(tmp_path / "out" / MANIFEST)["provenance"]
    assert provenance["options"]["calibration"] == "mine.txt"


@pytest.mark.parametrize("count", [512, 513, 768 + 1, 9000])
def test_a_text_of_ones_own_is_cut_evenly(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """A rest of one token would be all that is measured on, of which nothing can be measured."""
    found: list[calibration.Texts] = []

    def held_out(texts: calibration.Texts) -> tuple[calibration.Texts, calibration.Texts]:
        found.append(texts)
        raise InputError("only asked")

    monkeypatch.setattr(calibration, "held_out", held_out)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (target / name).unlink(missing_ok=True)
    of_words().save(str(target / "tokenizer.json"))
    text = tmp_path / "mine.txt"
    text.write_text(" ".join(f"word{i % 12}" for i in range(count)))
    with pytest.raises(InputError, match="only asked"):
        exported(target, tmp_path / "out", calibration_text=text)
    lengths = [len(one) for one in found[0]]
    assert sum(lengths) == min(count, calibration.TOKENS)
    assert max(lengths) <= 256, "the model's context"
    assert max(lengths) - min(lengths) <= 1
    assert [token for one in found[0] for token in one][:13] == [*range(1, 13), 1]


@pytest.mark.parametrize(
    ("content", "words"), [(b"short", "gives .* expected 512"), (b"\xff\xfe", "UTF-8")]
)
def test_a_text_that_is_none(target: Path, tmp_path: Path, content: bytes, words: str) -> None:
    text = tmp_path / "mine.txt"
    text.write_bytes(content)
    with pytest.raises(InputError, match=words):
        exported(target, tmp_path / "out", calibration_text=text)
    assert set(leftovers(tmp_path / "out")) == {"target", "mine.txt"}


def test_a_text_that_the_tokenizer_does_not_know(target: Path, tmp_path: Path) -> None:
    """Characters without a token are one and the same token."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (target / name).unlink(missing_ok=True)
    tokenizer = of_words()
    tokenizer.save(str(target / "tokenizer.json"))
    known, unknown = tmp_path / "known.txt", tmp_path / "unknown.txt"
    known.write_text(" ".join(f"word{i % 12}" for i in range(1200)))
    unknown.write_text(" ".join("снег" for _ in range(1200)))
    exported(target, tmp_path / "out", weights="int4", calibration_text=known)
    with pytest.raises(InputError, match="gives 1 different tokens, expected 8 or more"):
        exported(target, tmp_path / "other", calibration_text=unknown)
    assert not (tmp_path / "other").exists()


def of_words() -> tokenizers.Tokenizer:
    words = {"<unk>": 0} | {f"\u2581word{i}": i + 1 for i in range(12)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    made.decoder = tokenizers.decoders.Metaspace()
    return made


# The tests' own processes have one thread, which could not be told from one that is left.
@threadpool_limits.wrap(limits=2, user_api="blas")
@pytest.mark.parametrize("stage", in_full(["target calibration", "calibration text", "target"]))
def test_what_is_interrupted_leaves_nothing(target: Path, tmp_path: Path, stage: str) -> None:
    before, cores = set(leftovers(tmp_path / "out")), blas_threads()

    def interrupted(found: str, done: int, total: int) -> None:
        if found == stage:
            raise KeyboardInterrupt

    options = ExportOptions(target, tmp_path / "out", calibration="self", parity=False)
    with pytest.raises(KeyboardInterrupt):
        export_bundle(options, interrupted)
    assert set(leftovers(tmp_path / "out")) == before
    gc.collect()  # a generator that was left half way holds the threads of numpy's BLAS to one
    assert set(cores) == {2}
    assert blas_threads() == cores


def blas_threads() -> list[int]:
    return [info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"]


def test_a_folder_in_the_way_is_refused_before_anything_is_written(
    target: Path, tmp_path: Path, written: list[calibration.Texts]
) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="exists"):
        exported(target, tmp_path / "out")
    assert written == []


def test_a_draft_reads_no_further_than_its_context(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = tiny_checkpoint(tmp_path / "draft", seed=9, max_position_embeddings=32)
    lengths: list[int] = []
    honest = CalibratedRounding.__init__

    def init(self: Any, spec: Any, tensors: Any, texts: Any, *more: Any) -> None:
        lengths.append(max(map(len, texts)))
        honest(self, spec, tensors, texts, *more)

    monkeypatch.setattr(CalibratedRounding, "__init__", init)
    exported(target, tmp_path / "out", draft=draft, weights="int4")
    assert lengths == [64, 32]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"formats": ("coreml",), "rows": (1, 256)}, "--rows up to 256: expected at most"),
        ({"formats": ("onnx-static",), "static_rows": (1, 256)}, "--static-rows up to 256"),
        ({"block_size": 48}, "--block-size 48"),
    ],
)
def test_what_cannot_be_exported_is_refused_before_texts_are_written(
    tmp_path: Path, written: list[calibration.Texts], changes: dict[str, Any], words: str
) -> None:
    target = tiny_checkpoint(tmp_path / "target", max_position_embeddings=128)
    with pytest.raises(InputError, match=words):
        exported(target, tmp_path / "out", **changes)
    assert written == []


def test_a_mixture_is_refused_before_texts_are_written(
    tmp_path: Path, written: list[calibration.Texts]
) -> None:
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
    target = tiny_checkpoint(tmp_path / "target", model_type="qwen3_moe", **experts)
    for name in ("coreml", "onnx-static"):
        with pytest.raises(UnsupportedArchitecture, match="is a mixture of experts"):
            exported(target, tmp_path / "out", formats=(name,))
    assert written == []


def test_a_model_that_onnx_cannot_hold_needs_a_text(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")
    target = tiny_checkpoint(tmp_path / "target", head_dim=12)
    with pytest.raises(UnsupportedArchitecture, match="give one with --calibration-text"):
        exported(target, tmp_path / "out", formats=("gguf",))


def test_what_onnx_cannot_hold_is_not_said_to_need_a_text(
    tmp_path: Path, written: list[calibration.Texts]
) -> None:
    target = tiny_checkpoint(tmp_path / "target", head_dim=12)
    with pytest.raises(UnsupportedArchitecture, match=r"^target has heads of 12 channels.* gguf$"):
        exported(target, tmp_path / "out")
    assert written == []


def test_what_a_gguf_cannot_hold_is_refused_before_texts_are_written(
    target: Path, tmp_path: Path, written: list[calibration.Texts]
) -> None:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")
    text, stages = tmp_path / "mine.txt", set[str]()
    text.write_text("short")
    more: dict[str, Any] = {"formats": ("gguf",), "weights": "gguf=q4_0"}
    options = ExportOptions(target, tmp_path / "out", **more, imatrix_text=text)
    with pytest.raises(InputError, match="expected 128 or more"):
        export_bundle(options, lambda stage, done, total: stages.add(stage))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (target / name).unlink(missing_ok=True)
    of_words().save(str(target / "tokenizer.json"))
    with pytest.raises(ExportError, match="WordLevel"):
        exported(target, tmp_path / "out", **more)
    assert (written, stages) == ([], set())


@pytest.mark.parametrize(("large", "weights"), [(1 << 30, "int8"), (1, "int4")])
def test_small_models_write_in_eight_bits(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: int, weights: str
) -> None:
    asked: list[str] = []

    def write(spec: Any, tensors: Any, folder: Path, options: Any) -> None:
        asked.append(options.weights)
        raise UnsupportedArchitecture("only asked")

    monkeypatch.setattr(calibration, "_LARGE", large)
    monkeypatch.setattr(calibration, "write_model", write)
    with pytest.raises(UnsupportedArchitecture, match="no texts to calibrate on, since only asked"):
        exported(target, tmp_path / "out", weights="int4")
    assert asked == [weights]


@pytest.mark.parametrize(("way", "few", "read"), [("none", True, 0), ("self", False, 2)])
def test_what_is_not_calibrated_is_measured_on_few_texts_but_all_of_them(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, few: bool, read: int
) -> None:
    made, seen = ((1, 2), (3, 4), (5, 6)), list[Any]()

    def texts(job: Any, folder: Path, progress: Any, is_few: bool) -> calibration.Texts:
        seen.append(is_few)
        return made

    def write(job: Any, *more: Any) -> None:
        seen.extend((job.texts, job.heldout))
        raise InputError("only asked")

    monkeypatch.setattr(calibration, "texts", texts)
    monkeypatch.setattr(weighed, "write", write)
    with pytest.raises(InputError, match="only asked"):
        exported(target, tmp_path / "out", calibration=way, weights="auto")
    assert seen == [few, made[:read], made[read:]]


def test_a_model_of_a_short_context_writes_texts_that_fit(
    tmp_path: Path, written: list[calibration.Texts]
) -> None:
    target = tiny_checkpoint(tmp_path / "target", max_position_embeddings=64)
    exported(target, tmp_path / "out", weights="int4")
    assert {len(text) for text in written[0]} == {64}


@pytest.mark.parametrize(("words", "begins"), [(2, True), (40, False)])
def test_a_template_that_fills_the_context_is_not_used(
    tmp_path: Path, written: list[calibration.Texts], words: int, begins: bool
) -> None:
    target = tiny_checkpoint(tmp_path / "target", max_position_embeddings=64)
    templated(target, "a b " * words + TEMPLATE)
    exported(target, tmp_path / "out", weights="int4")
    assert {text[0] != 0 for text in written[0]} == {begins}
    assert {len(text) for text in written[0]} == {64}


def test_what_is_never_used_is_not_recorded_and_a_text_for_it_refused(
    target: Path, tmp_path: Path
) -> None:
    exported(target, tmp_path / "out", weights="fp16")
    provenance = read_json(tmp_path / "out" / MANIFEST)["provenance"]
    assert provenance["options"]["calibration"] == "none"
    with pytest.raises(InputError, match="--calibration-text is for int4"):
        exported(target, tmp_path / "other", weights="fp16", calibration_text=target)


def test_options_that_make_no_sense(target: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected one of self, none"):
        exported(target, tmp_path / "out", calibration="gptq")


@pytest.mark.full
@pytest.mark.usefixtures("full_exports")
def test_a_trained_model_loses_less_than_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On text that it neither wrote nor read."""
    monkeypatch.setattr(calibration, "TOKENS", 2048)
    monkeypatch.setattr(calibration, "_WRITTEN", 256)
    lost = {
        name: exported(
            DEMO / "draft",
            tmp_path / name,
            weights="int4",
            block_size=128,
            calibration=name,
            parity=True,
        )
        .models[0]
        .parity["kl_nats"]
        for name in ("none", "self")
    }
    assert lost["self"] < 0.5 * lost["none"]


@pytest.mark.parametrize("calibration", ["self", "none"])
def test_a_gguf_is_weighed_by_them(target: Path, tmp_path: Path, calibration: str) -> None:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")
    seen: set[str] = set()
    options = ExportOptions(
        target, tmp_path / "out", formats=("gguf",), calibration=calibration, parity=False
    )
    export_bundle(options, lambda stage, done, total: seen.add(stage))
    assert ({"calibration text", "target importance"} <= seen) == (calibration == "self")


def test_a_gguf_that_is_weighed_by_a_text_of_ones_own_needs_no_other(
    target: Path, tmp_path: Path, written: list[calibration.Texts]
) -> None:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")
    text = tmp_path / "mine.txt"
    text.write_text("def add(left, right):\n    return left + right\n" * 100)
    more: dict[str, Any] = {"formats": ("gguf",), "imatrix_text": text}
    exported(target, tmp_path / "out", **more)
    assert written == []
    made = read_json(tmp_path / "out" / MANIFEST)["provenance"]["options"]
    assert made["calibration"] == "none"
    with pytest.raises(InputError, match="--calibration-text is for int4"):
        exported(target, tmp_path / "both", **more, calibration_text=text)
    with pytest.raises(InputError, match="--imatrix-text is for weights of 6 bits"):
        exported(target, tmp_path / "plain", **more, weights="f16")


TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def templated(target: Path, template: str) -> None:
    file = target / "tokenizer_config.json"
    config = read_json(file) if file.exists() else {}
    file.write_text(json.dumps(config | {"chat_template": template}), "utf-8")


def test_a_chat_model_writes_question_and_answer(
    target: Path, tmp_path: Path, written: list[calibration.Texts]
) -> None:
    templated(target, TEMPLATE)
    exported(target, tmp_path / "out", weights="int4")
    begun = Tokenizer.load(target).encode("<user>", add_special_tokens=False)
    (texts,) = written
    assert {text[: len(begun)] for text in texts} == {tuple(begun)}
    assert {len(text) for text in texts} == {len(begun) - 1 + 64}
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize(
    "template",
    in_full(["{{ raise_exception('no') }}", "{{ messages[0]['content'].upper() }}", "{% if %}"]),
)
def test_a_template_that_shows_no_beginning_is_not_used(
    target: Path, tmp_path: Path, written: list[calibration.Texts], template: str
) -> None:
    """The control: such a model begins as one without a template."""
    templated(target, template)
    exported(target, tmp_path / "out", weights="int4")
    assert {text[0] for text in written[0]} == {0}
