"""The draft that goes with a model: in the library, beside it, or on a hub on loopback."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("huggingface_hub", reason="the extra hub is not installed")

import listed_drafts
import tiny_gguf
from hub_server import Hub
from listed_drafts import DRAFT, MODELS, OTHER, TARGET, TRAINED

from edgedec import GenerateOptions, Pipeline
from edgedec.bundle import Bundle
from edgedec.errors import CheckpointError
from edgedec.library import Form, Library, making
from edgedec.library.locate import Query
from edgedec.library.making import Listener
from edgedec.library.partner import Found, Offer, Search, beside

pytestmark = pytest.mark.usefixtures("exports_once")

# Without the parity of smaller forms, which takes longer than all else here.
EXACT = Query(Form("fp32"))
PROMPT = "def __eq__(self, other):\n"
Find = Callable[..., Found]


@pytest.fixture
def hubs(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Hub]]:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with listed_drafts.serving(monkeypatch) as hubs:
        yield hubs


@pytest.fixture
def whole(hubs: dict[str, Hub]) -> dict[str, Hub]:
    """With the target for which the head was trained."""
    hubs[TARGET].files = listed_drafts.files("target")
    return hubs


class Asked:
    """Answers as it was told, and keeps what it was asked."""

    def __init__(self, answer: bool | None) -> None:
        self.answer = answer
        self.offers: list[Offer] = []

    def __call__(self, offer: Offer) -> bool | None:
        self.offers.append(offer)
        return self.answer


@pytest.fixture
def find(library: Library, said: list[str]) -> Find:
    def call(
        word: str | Path, answer: bool | None = True, query: Query = EXACT, **options: object
    ) -> Found:
        call.asked = Asked(answer)  # type: ignore[attr-defined]
        search = Search(library, Listener(said.append), call.asked, "how", **options)  # type: ignore[attr-defined, arg-type]
        return search.find(str(word), query)

    return call


def asked(find: Find) -> list[str]:
    offers: list[Offer] = find.asked.offers  # type: ignore[attr-defined]
    return [offer.name for offer in offers]


def touched(hub: Hub) -> bool:
    return bool(hub.requests)


def text(target: str | Path, draft: Path | None = None, **options: object) -> tuple[str, str]:
    """What is written, and the drafter."""
    with Pipeline.open(target, draft=draft, plan="none", **options) as pipeline:  # type: ignore[arg-type]
        found = pipeline.generate(PROMPT, GenerateOptions(max_new_tokens=24))
        return found.text, str(pipeline.plan["drafter"])


def test_a_model_of_the_list_is_fetched_once_and_drafts(
    find: Find, hubs: dict[str, Hub], library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed_drafts.listing(monkeypatch, DRAFT)
    first = find(TARGET)
    assert asked(find) == [DRAFT]
    assert first.draft is not None
    assert text(first.target.path, first.draft) == (text(first.target.path)[0], "hybrid")
    fetched = hubs[DRAFT].fetched("model.safetensors")
    again = find(TARGET, None)
    assert (asked(find), again.draft) == ([], first.draft)
    assert hubs[DRAFT].fetched("model.safetensors") == fetched == 1
    assert {model.name for model in library.models()} == {TARGET, DRAFT}


@pytest.mark.full
def test_a_head_is_exported_with_its_target_measured_and_remembered(
    find: Find, whole: dict[str, Hub], library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed_drafts.listing(monkeypatch, TRAINED, DRAFT)
    found = find(TARGET)
    assert asked(find) == [TRAINED]
    assert find.asked.offers[0].head  # type: ignore[attr-defined]
    (model,) = library.models()
    assert model.record.head is not None
    assert (model.record.head.where, model.record.origin.where) == (TRAINED, TARGET)
    assert Bundle.open(found.target.path).head is not None
    plain, drafter = text(found.target.path, drafter="none"), text(found.target.path)
    assert (plain[0], drafter[1]) == (drafter[0], "headed")
    again = find(TARGET, None)
    assert (asked(find), again.target.path, again.draft) == ([], found.target.path, None)
    assert not touched(whole[DRAFT])


def test_a_target_of_the_library_is_made_again_with_its_head(
    find: Find, whole: dict[str, Hub], library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed_drafts.listing(monkeypatch)
    plain = find(TARGET).target.model
    listed_drafts.listing(monkeypatch, TRAINED)
    headed = find(TARGET).target.model
    assert plain is not None
    assert headed is not None
    assert (plain.record.form, headed.record.form) == (Form("fp32"), Form("fp32"))
    assert [one.id for one in library.models()] == [headed.id] != [plain.id]
    assert whole[TARGET].fetched("model.safetensors") == 1


@pytest.mark.full
def test_a_folder_has_its_head_too(
    find: Find, hubs: dict[str, Hub], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed_drafts.listing(monkeypatch, TRAINED)
    folder = shutil.copytree(MODELS / "target", tmp_path / "mine")
    found = find(folder)
    assert asked(find) == [TRAINED]
    assert find(folder, None) == found
    assert asked(find) == []


@pytest.mark.parametrize(("answer", "offline"), [(None, False), (True, True)])
def test_nothing_is_fetched_unasked(
    find: Find,
    hubs: dict[str, Hub],
    said: list[str],
    answer: bool | None,
    offline: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without anybody to ask, or offline: one line, with size and licence, and no request."""
    if offline:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    listed_drafts.listing(monkeypatch, DRAFT)
    folder = shutil.copytree(MODELS / "target", tmp_path / "mine")
    assert find(folder, answer).draft is None
    (line,) = [line for line in said if "would go with it" in line]
    assert DRAFT in line
    assert "2 M parameters, about 4 MB, licence: Apache-2.0" in line
    assert line.endswith("HF_HUB_OFFLINE forbids fetching it" if offline else ": how")
    assert not any(touched(hub) for hub in hubs.values())


def test_a_no_is_remembered_until_somebody_insists(
    find: Find, hubs: dict[str, Hub], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed_drafts.listing(monkeypatch, TRAINED, DRAFT)
    assert find(TARGET, False).draft is None
    assert asked(find) == [TRAINED]
    said.clear()
    find(TARGET)
    assert (asked(find), said) == ([], [])
    assert find(TARGET, drafter="hybrid", insists=True).draft is not None
    assert asked(find) == [DRAFT]


def test_a_draft_with_other_tokens_is_found_out_and_not_offered_again(
    find: Find, hubs: dict[str, Hub], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed_drafts.listing(monkeypatch, OTHER)
    assert find(TARGET).draft is None
    (line,) = [line for line in said if "does not draft here" in line]
    assert "of the target's tokens, expected 90% or more" in line
    assert find(TARGET).draft is None
    assert asked(find) == []


def test_a_head_for_another_target_is_found_out(
    find: Find,
    whole: dict[str, Hub],
    library: Library,
    said: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its shapes fit, and it is never right; the target is made without it."""
    monkeypatch.setattr("edgedec.export.agreement.POOR", 0.99)
    listed_drafts.listing(monkeypatch, TRAINED, DRAFT)
    found = find(TARGET)
    assert "first choice is the target's in" in next(x for x in said if "does not draft" in x)
    assert Bundle.open(found.target.path).head is None
    assert [model.record.head for model in library.models()] == [None]
    find(TARGET)
    assert asked(find) == [DRAFT]  # and the head no more


def test_a_head_that_cannot_be_read_leaves_the_target_usable(
    find: Find, hubs: dict[str, Hub], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hubs[TRAINED].files["config.json"] = json.dumps({"model_type": "unheard-of"}).encode()
    listed_drafts.listing(monkeypatch, TRAINED)
    assert find(TARGET).target.model is not None
    assert any(line.startswith(f"{TRAINED} does not draft here") for line in said)


def test_what_is_not_on_the_hub_is_left_out_and_offered_again(
    find: Find, hubs: dict[str, Hub], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed_drafts.listing(monkeypatch, DRAFT)
    hubs[DRAFT].gated = True
    for _ in range(2):
        assert find(TARGET).draft is None
        assert asked(find) == [DRAFT]
    assert f"{DRAFT} is left out: {DRAFT} is gated" in " ".join(said)


def test_a_fault_of_the_target_is_its_own(
    find: Find, hubs: dict[str, Hub], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head is not blamed for it."""
    listed_drafts.listing(monkeypatch, TRAINED)
    whole = hubs[TARGET].files["config.json"]
    hubs[TARGET].files["config.json"] = whole.replace(b'"llama"', b'"unheard-of"')
    with pytest.raises(Exception, match="unheard-of"):
        find(TARGET)
    hubs[TARGET].files["config.json"], hubs[TARGET].commit = whole, "b" * 40
    find(TARGET)
    assert asked(find) == [TRAINED]


@pytest.mark.parametrize("drafter", ["lookup", "text", "none"])
def test_a_drafter_without_a_model_looks_for_none(library: Library, drafter: str) -> None:
    search = Search(library, Listener(print), Asked(True), "", drafter)
    assert not search.wanted


def test_a_drafter_with_a_head_is_offered_heads_alone(
    find: Find, hubs: dict[str, Hub], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed_drafts.listing(monkeypatch, DRAFT, TRAINED)
    find(TARGET, None, drafter="headed")
    assert asked(find) == [TRAINED]
    find(TARGET, None, drafter="model")
    assert asked(find) == [DRAFT]


def test_what_edgedec_cannot_read_is_never_offered(
    find: Find, hubs: dict[str, Hub], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed_drafts.unread(monkeypatch, DRAFT)
    find(TARGET)
    assert asked(find) == []


def test_a_model_of_the_library_comes_before_the_list(
    find: Find, whole: dict[str, Hub], library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed_drafts.listing(monkeypatch)
    find(TARGET)
    mine = making.of_checkpoint(library, MODELS / "draft", EXACT.form, Listener(print))
    listed_drafts.listing(monkeypatch, TRAINED)
    assert find(TARGET).draft == mine.path
    assert asked(find) == []


def test_heads_need_safetensors(hubs: dict[str, Hub], library: Library) -> None:
    from edgedec.errors import InputError
    from edgedec.library import hub
    from edgedec.library.reference import Reference

    files = hubs[TRAINED].files
    files["pytorch_model.bin"] = files.pop("model.safetensors")
    with pytest.raises(InputError, match=r"has no model\.safetensors"):
        hub.fetch(Reference(TRAINED), library, Listener(print), head=True)
    assert not hubs[TRAINED].fetched("pytorch_model.bin")


def test_a_head_is_no_part_of_a_gguf_file(library: Library, tmp_path: Path) -> None:
    from edgedec.library.choosing import Choice, Fetched
    from edgedec.library.records import Origin

    fetched = Fetched(tmp_path, Choice("gguf", ("x.gguf",)), Origin("a/b", "c", {}, 1))
    with pytest.raises(CheckpointError, match="a head needs the checkpoint"):
        making.of_fetched(library, fetched, None, Listener(print), head=fetched)


# -- beside the target --------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A large GGUF file and others beside it."""
    folder = tmp_path / "models"
    folder.mkdir()
    tiny_gguf.write_tiny_gguf(folder / "large.gguf", layers=24)
    return folder


def test_the_largest_small_model_beside_it_is_taken(folder: Path) -> None:
    assert beside(folder / "large.gguf") is None
    for layers in (1, 3):
        tiny_gguf.write_tiny_gguf(folder / f"small{layers}.gguf", layers=layers)
    tiny_gguf.write_tiny_gguf(folder / "half.gguf", layers=12)
    found = beside(folder / "large.gguf")
    assert found is not None
    assert found.name == "small3.gguf"


def test_what_is_damaged_or_of_another_tokenizer_is_passed_over(folder: Path) -> None:
    (folder / "broken.gguf").write_bytes(b"GGUF and no more")
    (folder / "empty.gguf").touch()
    (folder / "dangling.gguf").symlink_to(folder / "nowhere")
    (folder / "same.gguf").symlink_to(folder / "large.gguf")
    assert beside(folder / "large.gguf") is None


def test_no_header_of_a_larger_file_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small vocabulary's takes a millisecond, a large one's a tenth of a second."""
    from edgedec.library import drafts

    read: list[str] = []
    facts = drafts.of_gguf
    monkeypatch.setattr(drafts, "of_gguf", lambda path: (read.append(path.name), facts(path))[1])
    tiny_gguf.write_tiny_gguf(folder / "small.gguf", layers=1)
    (folder / "huge.gguf").write_bytes(b"GGUF" + bytes((folder / "large.gguf").stat().st_size))
    assert beside(folder / "large.gguf") == folder / "small.gguf"
    assert read == ["large.gguf", "small.gguf"]


def test_a_bundle_beside_a_bundle_drafts_for_it(tmp_path: Path) -> None:
    from edgedec.export import ExportOptions, export_bundle

    for name in ("target", "draft"):
        export_bundle(ExportOptions(MODELS / name, tmp_path / name, weights="fp32", parity=False))
    (tmp_path / "notes").mkdir()
    assert beside(tmp_path / "target") == tmp_path / "draft"
    assert beside(tmp_path / "draft") is None


@pytest.mark.full
def test_a_gguf_file_takes_a_listed_model_and_no_head(
    find: Find, hubs: dict[str, Hub], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hashes of their tokenizers differ, so that their tokens are compared."""
    pytest.importorskip(
        "llama_cpp", reason="the extra gguf, whose exporter needs it, is not installed"
    )
    from edgedec.export import ExportOptions, export_bundle

    made = tmp_path / "made"
    options = ExportOptions(MODELS / "target", made, formats=("gguf",), weights="f16", parity=False)
    export_bundle(options)
    (file,) = made.rglob("*.gguf")
    shutil.copy(file, tmp_path / "mine.gguf")
    listed_drafts.listing(monkeypatch, TRAINED, OTHER, DRAFT)
    assert find(tmp_path / "mine.gguf", query=Query()).draft is None
    assert asked(find) == [OTHER]
    found = find(tmp_path / "mine.gguf", query=Query())
    assert asked(find) == [DRAFT]
    assert found.draft is not None
    again = find(tmp_path / "mine.gguf", None, Query())
    assert (asked(find), again.draft) == ([], found.draft)
