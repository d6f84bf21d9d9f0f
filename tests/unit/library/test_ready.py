"""Decoders that others exported to ONNX: found, tried, and opened as they are."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import ready_models
from kinds import in_full
from onnx import helper
from ready_models import Layout
from tiny_checkpoints import noisy_checkpoint

from edgedec import Pipeline
from edgedec.bundle import Bundle, ready_onnx
from edgedec.errors import BundleError, CheckpointError, EdgedecError, InputError
from edgedec.export import ExportOptions, export_bundle
from edgedec.library import Form, Library, Model
from edgedec.library.locate import Query, locate
from edgedec.library.making import Listener
from edgedec.runtimes.onnx_hub import trial
from edgedec.runtimes.onnx_hub.graph import Mode

PROMPT = "def __lt__(self, other):"
Open = Callable[..., Model]
Made = Callable[[str], Path]


@pytest.fixture(scope="module")
def demo(repository: Path) -> Path:
    return repository / "models" / "demo" / "target"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return noisy_checkpoint(tmp_path_factory.mktemp("source") / "tiny", entries={})


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, demo: Path) -> dict[str, Path]:
    """The demo's target in every layout."""
    root = tmp_path_factory.mktemp("ready")
    return {
        "transformers.js": ready_models.transformers_js(
            demo, root / "js", fp32=Layout(keep=True), q4=Layout(bits=4)
        ),
        "onnxruntime-genai": ready_models.genai(demo, root / "genai", Layout()),
        "optimum": ready_models.optimum(demo, root / "optimum"),
    }


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(tmp_path_factory.mktemp("library"))


@pytest.fixture
def add(library: Library, said: list[str]) -> Open:
    def call(word: str | Path, **query: Any) -> Model:
        found = locate(str(word), library, Listener(said.append), Query(**query)).model
        assert found is not None
        return found

    return call


def text(model: str | Path, **options: Any) -> str:
    with Pipeline.open(model, threads=1, **options) as pipeline:
        return pipeline.generate(PROMPT, max_new_tokens=48, temperature=0).text


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, demo: Path) -> Path:
    """The same weights in float32, exported by edgedec."""
    out = tmp_path_factory.mktemp("exported") / "bundle"
    export_bundle(ExportOptions(demo, out, weights="fp32", parity=False))
    return out


WORDS = {"transformers.js": ":fp32", "onnxruntime-genai": "", "optimum": ""}


@pytest.mark.parametrize("layout", in_full(WORDS))
def test_every_layout_writes_what_our_own_export_writes(
    layout: str, folders: dict[str, Path], add: Open, said: list[str], exported: Path
) -> None:
    """Drafted or not; its files are the folder's own."""
    model = add(f"{folders[layout]}{WORDS[layout]}")
    assert any(f"ONNX as for {layout}" in line for line in said)
    assert any(line.startswith("target or draft: ") and "exports it" in line for line in said)
    role = Bundle.open(model.path, verify=True).target
    assert role.dims["max_context"] == 8192
    assert (role.architecture, role.dims["kv_heads"], role.dims["layers"]) == ("llama", 4, 4)
    expected = text(exported, drafter="none")
    assert text(model.path, drafter="none") == expected
    assert text(model.path, drafter="lookup") == expected
    said.clear()
    assert add(f"{folders[layout]}{WORDS[layout]}") == model
    assert not said  # it is neither tried nor taken again


def test_its_logits_are_those_of_our_own_export(
    folders: dict[str, Path], add: Open, exported: Path
) -> None:
    from edgedec.decoding.tree import TokenTree
    from edgedec.records.load import LoadOptions
    from edgedec.runtimes import registry

    rows = []
    for bundle, format in ((exported, "onnx"), (add(folders["optimum"]).path, "onnx-hub")):
        role = Bundle.open(bundle).target
        model = registry.load(format, role.variant(format).path, LoadOptions(threads=1))
        logits = model.open(64).forward(TokenTree.chain(list(range(5, 45)))).logits
        assert logits is not None
        rows.append(logits.copy())
        model.close()
    np.testing.assert_allclose(rows[0], rows[1], rtol=0, atol=2e-4)


def test_one_of_several_is_chosen(folders: dict[str, Path], add: Open) -> None:
    folder = folders["transformers.js"]
    usual = add(folder)
    assert (usual.name, usual.record.form.weights) == ("js", "q4")
    chosen = add(f"{folder}:fp32")
    assert (chosen.name, chosen.record.form.weights) == ("js:fp32", "fp32")
    assert add(folder / "onnx" / "model.onnx").record.form == chosen.record.form
    with pytest.raises(EdgedecError, match="has no ONNX model q8: it has "):
        add(f"{folder}:q8")
    with pytest.raises(InputError, match="leave --weights"):
        add(folder, form=Form("int4"))
    assert add(folder, name="mine").name == "mine"
    assert Bundle.open(usual.path).target.variants["onnx-hub"].path.stat().st_nlink > 1


def test_a_checkpoint_beside_it_comes_first(tiny: Path, tmp_path: Path, add: Open) -> None:
    both = Path(shutil.copytree(tiny, tmp_path / "both"))
    ready_models.transformers_js(tiny, both, fp32=Layout())
    assert "onnx-hub" not in Bundle.open(add(both, form=Form("fp32")).path).target.variants
    assert "onnx-hub" in Bundle.open(add(f"{both}:fp32").path).target.variants


def test_an_export_says_what_opens_it(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"edgedec run .*` opens as it is"):
        export_bundle(ExportOptions(folders["optimum"], tmp_path / "out"))


@pytest.fixture(scope="module")
def partners(tmp_path_factory: pytest.TempPathFactory, demo: Path) -> Made:
    """What a graph of others may stand beside: the demo's draft, and one of another tokenizer."""
    root = tmp_path_factory.mktemp("partners")
    sources = {"draft": demo.with_name("draft"), "other": demo.with_name("draft_bpe2048")}
    ready = {
        "transformers.js": ready_models.transformers_js,
        "onnxruntime-genai": ready_models.genai,
        "optimum": ready_models.optimum,
    }

    @functools.cache
    def made(name: str) -> Path:
        tokenizer, kind = name.split()
        source, out = sources[tokenizer], root / name.replace(" ", "-")
        if kind in ready:
            return ready[kind](source, out)
        export_bundle(ExportOptions(source, out, weights="fp32", parity=False))
        return out

    return made


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, demo: Path) -> dict[str, Path]:
    """The demo's target and draft as GGUF files."""
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: make gguf")
    made = dict[str, Path]()
    for name in ("target", "draft"):
        out = tmp_path_factory.mktemp("gguf") / name
        options = ExportOptions(demo.with_name(name), out, formats=("gguf",), weights="f32")
        export_bundle(dataclasses.replace(options, parity=False))
        (made[name],) = out.rglob("*.gguf")
    return made


def drafted(target: str | Path, draft: str | Path, **options: Any) -> str:
    """The text of a pair, whose draft is asked for and right at least once."""
    given = {"drafter": "model", "draft_length": 3, **options}
    with Pipeline.open(target, threads=1, draft=Path(draft), **given) as pipeline:
        result = pipeline.generate(PROMPT, max_new_tokens=48, temperature=0)
    assert result.metrics.accepted_tokens > 0
    return result.text


@pytest.mark.parametrize("tokenizer", in_full(["draft", "other"]))
@pytest.mark.parametrize("layout", in_full(WORDS))
def test_a_target_in_each_layout_with_drafts_of_each_kind(
    layout: str, tokenizer: str, folders: dict[str, Path], partners: Made, add: Open,
    exported: Path,
) -> None:  # fmt: skip
    """Of its own tokenizer and of another: the text is the target's own."""
    target, expected = add(f"{folders[layout]}{WORDS[layout]}").path, text(exported, drafter="none")
    for kind in ("checkpoint", *WORDS):
        draft = partners(f"{tokenizer} {kind}")
        assert drafted(target, draft if kind == "checkpoint" else add(draft).path) == expected


@pytest.mark.parametrize("layout", in_full(WORDS))
def test_a_draft_in_each_layout_for_a_checkpoint(
    layout: str, partners: Made, add: Open, exported: Path
) -> None:
    expected = text(exported, drafter="none")
    for tokenizer in ("draft", "other"):
        assert drafted(exported, add(partners(f"{tokenizer} {layout}")).path) == expected


@pytest.mark.parametrize("layout", in_full(WORDS))
def test_a_pair_with_a_gguf_file(
    layout: str, folders: dict[str, Path], partners: Made, files: dict[str, Path],
    add: Open, exported: Path,
) -> None:  # fmt: skip
    """On either side, each decoded by its own runtime."""
    target = add(f"{folders[layout]}{WORDS[layout]}").path
    assert drafted(target, files["draft"]) == text(exported, drafter="none")
    plain = text(files["target"], drafter="none")
    for tokenizer in ("draft", "other"):
        draft = add(partners(f"{tokenizer} {layout}")).path
        assert drafted(files["target"], draft) == plain


# -- what a trial finds -------------------------------------------------------------------------


def made(folder: Path, source: Path, layout: Layout) -> Path:
    return ready_models.transformers_js(source, folder, fp32=layout)


def mode(model: Model) -> Mode:
    return trial.found(Bundle.open(model.path).target.variants["onnx-hub"].path).mode


def test_how_its_passes_are_run(tiny: Path, tmp_path: Path, add: Open) -> None:
    assert mode(add(made(tmp_path / "gqa", tiny, Layout()))) == Mode(True)
    assert mode(add(made(tmp_path / "parts", tiny, Layout("parts")))) == Mode(False)


@pytest.mark.parametrize(
    ("layout", "why"),
    in_full(
        [
            (Layout(last_only=True), "the logits of its last row alone"),
            (Layout(together=True), "rows of a prompt in one pass differ"),
        ]
    ),
)
def test_a_draft_only(
    layout: Layout, why: str, demo: Path, tmp_path: Path, add: Open, said: list[str], exported: Path
) -> None:
    model = add(made(tmp_path / "alone", demo.with_name("draft"), layout))
    assert mode(model).alone
    assert any(line.startswith("a draft only: ") and why in line for line in said)
    with pytest.raises(BundleError, match="cannot verify drafts: use it as --draft"):
        Pipeline.open(model.path)
    with Pipeline.open(exported, threads=1, draft=model.path, drafter="model") as pipeline:
        result = pipeline.generate(PROMPT, max_new_tokens=24, temperature=0)
    assert text(exported, drafter="none").startswith(result.text)


def edit(file: Path, change: Callable[[onnx.ModelProto], object]) -> None:
    model = onnx.load(file, load_external_data=False)
    change(model)
    file.write_bytes(model.SerializeToString())


def refused(add: Open, word: str | Path, *words: str) -> None:
    with pytest.raises(EdgedecError) as caught:
        add(word)
    (line,) = str(caught.value).splitlines()
    for expected in words:
        assert expected in line


def forgets(model: onnx.ModelProto) -> None:
    """Every row attends to the rows of its own pass alone."""
    for node in model.graph.node:
        if node.op_type == "Unsqueeze" and node.input[0].startswith("present"):
            grown = next(one for one in model.graph.node if node.input[0] in one.output)
            node.input[0] = grown.input[1]
        if node.op_type == "Greater":
            node.input[0] = node.input[1]


def test_rows_that_forget_what_was_before_their_pass(tiny: Path, tmp_path: Path, add: Open) -> None:
    folder = made(tmp_path / "forgets", tiny, Layout("parts", positions=True))
    edit(folder / "onnx" / "model.onnx", forgets)
    assert mode(add(folder)).alone


def numbers_that_are_none(model: onnx.ModelProto) -> None:
    last = model.graph.node[-1]
    last.CopyFrom(helper.make_node("Log", list(last.input), list(last.output)))


def test_logits_that_are_no_numbers(tiny: Path, tmp_path: Path, add: Open) -> None:
    folder = made(tmp_path / "nan", tiny, Layout())
    edit(folder / "onnx" / "model.onnx", numbers_that_are_none)
    refused(add, folder, "NaN or infinity")


def test_why_a_graph_is_refused_is_said_whole_in_a_deep_folder(tiny: Path, tmp_path: Path) -> None:
    folder, said = made(tmp_path / "nan", tiny, Layout()), list[str]()
    edit(folder / "onnx" / "model.onnx", numbers_that_are_none)
    library = Library(tmp_path.joinpath(*["a" * 50] * 4))
    with pytest.raises(BundleError, match=r"something else than a decoder: .* NaN or infinity$"):
        locate(str(folder), library, Listener(said.append), Query())


def renamed(old: str, new: str) -> Callable[[onnx.ModelProto], object]:
    def change(model: onnx.ModelProto) -> None:
        for value in (*model.graph.input, *model.graph.output):
            value.name = new if value.name == old else value.name
        for node in model.graph.node:
            for side in (node.input, node.output):
                side[:] = [new if name == old else name for name in side]

    return change


def loops(model: onnx.ModelProto) -> None:
    body = helper.make_graph([], "body", [], [])
    model.graph.node.append(helper.make_node("Loop", ["", ""], ["x"], body=body))


def flat(model: onnx.ModelProto) -> None:
    """Keys without an axis of heads."""
    for value in model.graph.input:
        if value.name == "past_key_values.0.key":
            del value.type.tensor_type.shape.dim[1]


def in_halves(model: onnx.ModelProto) -> None:
    """A cache in bfloat16."""
    for value in (*model.graph.input, *model.graph.output):
        if value.name.endswith(".key"):
            value.type.tensor_type.elem_type = onnx.TensorProto.BFLOAT16


def far(place: str) -> Callable[[onnx.ModelProto], object]:
    def change(model: onnx.ModelProto) -> None:
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                entry.value = place if entry.key == "location" else entry.value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (renamed("input_ids", "inputs_embeds"), ["unexpected inputs or outputs (inputs_embeds"]),
        (renamed("past_key_values.0.key", "past_conv.0"), ["past_conv.0"]),
        (renamed("present.1.value", "state.1"), ["present.1.value"]),
        (loops, ["has a loop"]),
        (flat, ["cannot load it"]),
        (in_halves, ["cannot load it"]),
        (far("../secret"), ["lead out of its folder"]),
        (far("/etc/passwd"), ["lead out of its folder"]),
        (far("nowhere"), ["weights are missing"]),
        (far("model.onnx"), ["cut short"]),
        (far("ready.json"), ["name of a file that edgedec writes beside"]),
    ],
)
def test_a_hostile_graph(
    change: Callable[[onnx.ModelProto], object],
    words: list[str],
    tiny: Path,
    tmp_path: Path,
    add: Open,
    library: Library,
) -> None:
    folder = made(tmp_path / "hostile", tiny, Layout())
    for name in ("secret", "onnx/ready.json"):
        (folder / name).write_bytes(bytes(1 << 20))
    edit(folder / "onnx" / "model.onnx", change)
    before = [one.id for one in library.models()]
    refused(add, folder, *words)
    assert [one.id for one in library.models()] == before


def in_two_files(model: onnx.ModelProto, second: str) -> None:
    """Every other tensor is read from a second file."""
    for number, tensor in enumerate(model.graph.initializer):
        for entry in tensor.external_data if number % 2 else ():
            entry.value = second if entry.key == "location" else entry.value


def test_one_file_under_two_names(tiny: Path, tmp_path: Path, add: Open) -> None:
    folder = made(tmp_path / "dotted", tiny, Layout())
    plain = text(add(made(tmp_path / "plain", tiny, Layout())).path)
    edit(folder / "onnx" / "model.onnx", lambda model: in_two_files(model, "./model.onnx_data"))
    assert text(add(folder).path) == plain


def test_weights_of_one_name_in_two_folders(tiny: Path, tmp_path: Path, add: Open) -> None:
    """A change of either is another model."""
    folder = made(tmp_path / "apart", tiny, Layout())
    data = folder / "onnx" / "model.onnx_data"
    other = data.parent / "more" / data.name
    other.parent.mkdir()
    shutil.copy(data, other)
    edit(folder / "onnx" / "model.onnx", lambda model: in_two_files(model, f"more/{data.name}"))
    first = add(folder)
    assert {"onnx/model.onnx_data", "onnx/more/model.onnx_data"} <= first.record.origin.files.keys()
    assert add(folder) == first, "the control"
    for file in (data, other):
        numbers = np.fromfile(file, np.float32)
        file.unlink()  # the library has a link to it
        (numbers * np.float32(1.01)).tofile(file)
        second = add(folder)
        assert second.id != first.id
        assert text(second.path)
        first = second


def test_links_that_lead_out(tiny: Path, tmp_path: Path, add: Open) -> None:
    folder = made(tmp_path / "linked", tiny, Layout())
    data = folder / "onnx" / "model.onnx_data"
    outside = tmp_path / "outside"
    shutil.move(data, outside)
    data.symlink_to(outside)
    refused(add, folder, "link that leads out")


def test_cut_short_or_of_another_tokenizer(tiny: Path, tmp_path: Path, add: Open) -> None:
    folder = made(tmp_path / "short", tiny, Layout())
    data = folder / "onnx" / "model.onnx_data"
    os.truncate(data, data.stat().st_size // 2)
    refused(add, folder, "cut short")
    folder = made(tmp_path / "other", tiny, Layout())
    shutil.copy(Path(__file__).parents[3] / "models/demo/target/tokenizer.json", folder)
    refused(add, folder, "the tokenizer has 4096 ids")


def test_a_package_of_models(tiny: Path, tmp_path: Path, add: Open) -> None:
    """Folders for several processors under one manifest, which is not edgedec's."""
    package = tmp_path / "package"
    ready_models.genai(tiny, package / "cpu", Layout())
    (package / "manifest.json").write_text(json.dumps({"variants": {"cpu": {"path": "cpu"}}}))
    with pytest.raises(EdgedecError, match=r"give one of its folders, such as cpu"):
        Pipeline.open(package)
    assert add(package / "cpu").name == "cpu"


def pipeline_of_graphs(config: dict[str, Any]) -> None:
    config["model"]["decoder"]["pipeline"] = [{"embeddings": {"filename": "embeddings.onnx"}}]


def a_graph_elsewhere(config: dict[str, Any]) -> None:
    config["model"]["decoder"]["filename"] = "../../model.onnx"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (pipeline_of_graphs, "a pipeline of several graphs"),
        (a_graph_elsewhere, "leads out"),
        (lambda config: config["model"].update(vocab_size=12, eos_token_id=99999), "eos_token_id"),
    ],
)
def test_a_hostile_genai_config(
    change: Callable[[dict[str, Any]], object], words: str, tmp_path: Path, tiny: Path, add: Open
) -> None:
    folder = ready_models.genai(tiny, tmp_path / "genai", Layout(), change)
    refused(add, folder, words)


def test_what_genai_states(tiny: Path, tmp_path: Path, add: Open) -> None:
    """Names of its caches, the context, the ends and how answers are sampled."""

    def change(config: dict[str, Any]) -> None:
        config["search"] |= {"do_sample": True, "temperature": 0.7, "top_k": 20}
        config["model"]["eos_token_id"] = [2, 3]
        config["model"]["context_length"] = 100

    layout = Layout(names=("kv.{}.{}.in", "kv.{}.{}.out"))
    bundle = Bundle.open(add(ready_models.genai(tiny, tmp_path / "named", layout, change)).path)
    assert bundle.generation == {"do_sample": True, "temperature": 0.7, "top_k": 20}
    facts = ready_onnx.read(bundle.target.variants["onnx-hub"].path)
    assert facts is not None
    assert (facts.eos_ids[:2], facts.max_context) == ((2, 3), 100)
    with Pipeline.open(bundle.path) as pipeline:
        assert pipeline.generate("ab", max_new_tokens=8).text


def test_onnxruntime_genai_opens_what_we_call_its_layout(folders: dict[str, Path]) -> None:
    reason = "onnxruntime-genai is not installed: pip install onnxruntime-genai"
    genai = pytest.importorskip("onnxruntime_genai", reason=reason)
    model = genai.Model(str(folders["onnxruntime-genai"]))
    words = genai.Tokenizer(model)
    params = genai.GeneratorParams(model)
    params.set_search_options(max_length=64, do_sample=False)
    generator = genai.Generator(model, params)
    generator.append_tokens(words.encode(PROMPT))
    written = list[int]()
    while not generator.is_done() and len(written) < 24:
        generator.generate_next_token()
        written.append(int(generator.get_next_tokens()[0]))
    assert text(folders["onnxruntime-genai"], drafter="lookup").startswith(words.decode(written))


def test_a_bundle_from_elsewhere_is_tried_here(
    tiny: Path, tmp_path: Path, add: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that a bundle states stands for the trial."""
    model = add(made(tmp_path / "gqa", tiny, Layout()))
    bundle = Path(shutil.copytree(model.path, tmp_path / "copied"))
    graph = bundle / "target" / "model.onnx"
    facts = json.loads((graph.with_name("ready.json")).read_text("utf-8"))
    (graph.with_name("ready.json")).write_text(json.dumps(facts | {"name": "other"}), "utf-8")
    asked = list[str]()

    def ask(child: str, *_: object, **__: object) -> dict[str, object]:
        asked.append(child)
        return {"mode": 0, "why": ""}

    monkeypatch.setattr(trial, "ask_once", ask)
    assert trial.found(graph).mode == Mode(True)
    assert trial.found(graph).mode == Mode(True)
    assert asked == [trial.CHILD]
