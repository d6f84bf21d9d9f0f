"""Models from a hub: huggingface_hub itself against a server on a loopback port."""

from __future__ import annotations

import hashlib
import inspect
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("huggingface_hub", reason="the extra hub is not installed")

import hub_server
import huggingface_hub
import ready_models
import tiny_gguf
from hub_server import Hub
from ready_models import Layout
from tiny_checkpoints import noisy_checkpoint

from edgedec.errors import BundleError, CheckpointError, EdgedecError, InputError
from edgedec.library import Form, Library, Model, choosing
from edgedec.library.locate import Query, locate
from edgedec.library.making import Listener
from edgedec.library.reference import Reference

pytestmark = pytest.mark.usefixtures("exports_once")

REPO = "some-org/Tiny-1M"
EXACT = Form("fp32")
Pull = Callable[..., Model]


@pytest.fixture
def hub(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The shipped draft's checkpoint as a repository, beside files that nobody needs."""
    folder = repository / "models" / "demo" / "draft"
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    more = {
        "README.md": b"# Tiny\n",
        "pytorch_model.bin": b"\x80\x04a pickle",
        "modeling_tiny.py": b"raise SystemExit('executed')",
        "onnx/model.onnx": b"x",
        "../evil.safetensors": b"x",
    }
    # Each try of huggingface_hub waits a second or more before the next one.
    monkeypatch.setattr(time, "sleep", lambda _: None)
    # What it writes at a time; the rest of a block is lost when a connection breaks.
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 10_000)
    with hub_server.serving(Hub(REPO, files | more)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield hub


@pytest.fixture
def pull(library: Library, hub: Hub, said: list[str]) -> Pull:
    def call(word: str = REPO, form: Form | None = EXACT, *, refresh: bool = True) -> Model:
        found = locate(word, library, Listener(said.append), Query(form, refresh=refresh)).model
        assert found is not None
        return found

    return call


def refused(pull: Pull, word: str = REPO, kind: type[EdgedecError] = InputError) -> str:
    with pytest.raises(kind) as caught:
        pull(word)
    (line,) = str(caught.value).splitlines()
    return line


def test_only_what_is_needed_is_fetched_and_its_hashes_are_told(
    pull: Pull, hub: Hub, said: list[str], library: Library
) -> None:
    model = pull()
    assert model.name == REPO
    assert (model.record.origin.revision, model.record.licence) == (hub.commit, "apache-2.0")
    wanted = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
              "tokenizer_config.json"}  # fmt: skip
    assert set(model.record.origin.files) == wanted
    assert f"revision {hub.commit}, licence apache-2.0, 5 files" in said[0]
    for name in wanted:
        digest = hashlib.sha256(hub.files[name]).hexdigest()
        assert model.record.origin.files[name] == digest
        assert f"{name}  sha256 {digest}" in said
    asked = {path.rsplit("/", 1)[-1] for method, path, _ in hub.requests if method == "GET"}
    assert not asked & {"pytorch_model.bin", "modeling_tiny.py", "model.onnx", "evil.safetensors"}
    assert not (library.folder.parent / "evil.safetensors").exists()


def test_what_is_in_the_library_needs_no_network(pull: Pull, hub: Hub) -> None:
    model = pull()
    count = len(hub.requests)
    assert pull(refresh=False) == model == pull(REPO, None, refresh=False)
    assert len(hub.requests) == count


def test_a_second_pull_fetches_nothing_and_a_new_commit_takes_the_place(
    pull: Pull, hub: Hub, library: Library
) -> None:
    first = pull()
    fetched = hub.fetched("model.safetensors")
    assert pull() == first
    assert hub.fetched("model.safetensors") == fetched
    hub.commit = "b" * 40
    hub.files["generation_config.json"] = b'{"eos_token_id": 0}'
    second = pull()
    assert second.record.origin.revision == hub.commit
    assert [model.id for model in library.models()] == [second.id]


def test_another_form_of_what_was_fetched(pull: Pull, hub: Hub, library: Library) -> None:
    pull()
    fetched = hub.fetched("model.safetensors")
    assert pull(form=Form("fp16"), refresh=False).record.form == Form("fp16")
    assert hub.fetched("model.safetensors") == fetched
    assert len(library.models()) == 2


def test_a_download_that_breaks_goes_on_where_it_was(pull: Pull, hub: Hub) -> None:
    hub.cut = [100_000, 50_000]
    pull()
    ranges = [asked for method, path, asked in hub.requests if path.startswith("/cdn/")
              and method == "GET"]  # fmt: skip
    assert ranges == [None, "bytes=100000-", "bytes=150000-"]


def test_one_that_keeps_breaking_is_told_and_the_next_command_goes_on(
    pull: Pull, hub: Hub, library: Library
) -> None:
    hub.cut = [100_000] + [0] * 200
    line = refused(pull)
    assert line.startswith(f"{REPO} cannot be fetched: ")
    assert line.endswith(
        "files that were fetched are kept, and the same command fetches the others"
    )
    assert library.models() == []
    hub.cut = []
    hub.requests.clear()
    pull()
    # The others were complete. Versions of the client differ in keeping a part of a file.
    read = [path for method, path, _ in hub.requests if method == "GET"]
    assert read == [f"/api/models/{REPO}", f"/cdn/{REPO}/model.safetensors"]


def test_bytes_are_reported_while_they_come(hub: Hub, library: Library) -> None:
    steps: list[tuple[str, int, int]] = []
    listener = Listener(lambda text: None, None, lambda *step: steps.append(step))
    locate(REPO, library, listener, Query(EXACT))
    done = [at for _, at, _ in steps]
    assert done == sorted(done)
    assert {total for _, _, total in steps} == {done[-1]}
    weights = [at for stage, at, _ in steps if stage == "fetching model.safetensors"]
    if "tqdm_class" in inspect.signature(huggingface_hub.hf_hub_download).parameters:
        assert len(set(weights)) > 3, "the file was reported as a whole"


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_wrong_hash_is_noticed_and_the_file_removed(
    pull: Pull, hub: Hub, library: Library, name: str
) -> None:
    data = bytearray(hub.files[name])
    data[-2] ^= 1
    hub.replaced = {name: bytes(data)}
    line = refused(pull, kind=BundleError)
    assert line.startswith(f"{name} is not what the hub says: ")
    assert hashlib.sha256(hub.files[name]).hexdigest() in line or "tokenizer" in name
    assert library.models() == []
    assert not list(library.hub.rglob(name))
    hub.replaced = {}
    pull()


def test_a_model_that_is_not_there(pull: Pull, hub: Hub) -> None:
    assert "some-org/other is not on the hub, or is private" in refused(pull, "some-org/other")
    assert refused(pull, f"{REPO}@v9") == f"{REPO} has no revision v9"


def test_a_gated_model_says_how_to_get_it(pull: Pull, hub: Hub) -> None:
    hub.gated = True
    line = refused(pull)
    assert line.startswith(f"{REPO} is gated: accept its terms on its page, then `hf auth login`")


def test_a_token_is_the_hubs_own_affair(
    pull: Pull, hub: Hub, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.gated, hub.token = True, "hf_right"
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert "the hub refuses the token that is stored here (401)" in refused(pull)
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    pull()
    kept = [file.read_bytes() for file in library.folder.rglob("*") if file.is_file()]
    assert not [data for data in kept if b"hf_right" in data]


def test_no_way_to_the_hub(pull: Pull, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
    assert "cannot be fetched: no connection to the hub, or it broke" in refused(pull)


@pytest.mark.parametrize(
    ("limit", "words"),
    [("_MAX_BESIDE_BYTES", "MiB at most"), ("_MAX_FILES", "files, expected 2 at most")],
)
def test_sizes_that_a_hub_states_are_bounded(
    pull: Pull, hub: Hub, monkeypatch: pytest.MonkeyPatch, limit: str, words: str
) -> None:
    monkeypatch.setattr(choosing, limit, 2)
    assert words in refused(pull)
    assert not hub.fetched("tokenizer.json")


def test_more_than_fits_is_refused_before_it_is_fetched(
    pull: Pull, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    assert "MB do not fit into the 0.1 MB that are free" in refused(pull)
    assert not hub.fetched("config.json")


def test_a_pickle_alone_is_not_read(pull: Pull, hub: Hub) -> None:
    hub.files = {"config.json": b"{}", "pytorch_model.bin": b"\x80\x04"}
    expected = "has no model.safetensors, GGUF or ONNX files: other weights are not read"
    assert expected in refused(pull)
    assert not hub.fetched("config.json")


def test_removing_a_model_removes_what_was_fetched(pull: Pull, hub: Hub, library: Library) -> None:
    model = pull()
    library.clean()
    assert not list(library.hub.rglob("*.safetensors"))
    assert library.get(model.id) == model
    pull(form=Form("fp16"))
    library.remove(library.matching(REPO)[0])
    assert list(library.hub.rglob("*.safetensors"))  # the other form's source
    library.remove(library.matching(REPO)[0])
    assert not list(library.hub.rglob("*.safetensors"))


class TestGguf:
    NAMES = ("tiny-Q4_K_M.gguf", "tiny-Q8_0.gguf")

    @pytest.fixture
    def hub(self, hub: Hub, tmp_path: Path) -> Hub:
        hub.files = {"README.md": b""}
        for seed, name in enumerate(self.NAMES):
            tiny_gguf.write_tiny_gguf(tmp_path / name, seed=seed)
            hub.files[name] = (tmp_path / name).read_bytes()
        return hub

    def test_the_usual_one_is_taken(self, pull: Pull, hub: Hub, library: Library) -> None:
        model = pull(form=None)
        assert (model.name, model.record.kind) == (f"{REPO}:Q4_K_M", "gguf")
        assert model.path.name == self.NAMES[0]
        assert model.path.read_bytes() == hub.files[self.NAMES[0]]
        assert not hub.fetched(self.NAMES[1])
        assert library.find(REPO) == model
        library.clean()
        assert model.path.exists()
        library.remove(model)
        assert not list(library.hub.rglob("*.gguf"))

    @pytest.mark.parametrize("which", ["Q8_0", "q8_0", "tiny-Q8_0.gguf"])
    def test_one_is_named(self, pull: Pull, which: str) -> None:
        assert pull(f"{REPO}:{which}", None).name == f"{REPO}:Q8_0"

    def test_names_of_ones_own(self, hub: Hub, library: Library) -> None:
        def named(word: str, name: str) -> Model:
            found = locate(word, library, Listener(lambda text: None), Query(name=name)).model
            assert found is not None
            return found

        first = named(REPO, "mine")
        assert (first.name, library.find("mine"), library.find(REPO)) == ("mine", first, None)
        second = named("mine", "yours")
        assert [model.name for model in library.models()] == ["mine", "yours"]
        assert second.path == first.path
        library.remove(first)
        assert second.path.exists()
        library.remove(second)
        assert not second.path.exists()

    def test_two_of_one_repository_are_told_apart(self, pull: Pull, library: Library) -> None:
        both = [pull(f"{REPO}:{label}", None) for label in ("Q4_K_M", "Q8_0")]
        with pytest.raises(InputError, match=f"{REPO} is two models: ") as caught:
            library.find(REPO)
        for model in both:
            assert model.id[:8] in str(caught.value)
            assert library.find(model.name) == model

    def test_one_that_is_not_there(self, pull: Pull) -> None:
        assert refused(pull, f"{REPO}:Q2_K") == f"{REPO} has no Q2_K: it has Q4_K_M, Q8_0"

    def test_two_of_one_quantisation_are_told_apart_by_their_files(
        self, pull: Pull, hub: Hub
    ) -> None:
        """Neither stands for the other, and neither is taken unasked."""
        first, second = (hub.files[name] for name in self.NAMES)
        names = ("base/a-Q4_0.gguf", "chat/a-Q4_0.gguf", "b-Q4_0.gguf", "c-Q8_0.gguf")
        hub.files = dict(zip(names, (first, second, first, second), strict=True))
        for name, data in zip(names[:2], (first, second), strict=True):
            assert pull(f"{REPO}:{name}", None).path.read_bytes() == data
        assert pull(f"{REPO}:b-Q4_0.gguf", None).path.read_bytes() == first
        assert pull(REPO, None).name == f"{REPO}:Q8_0", "the only one of its quantisation"
        assert "has no a-Q4_0.gguf: it has b-Q4_0.gguf" in refused(pull, f"{REPO}:a-Q4_0.gguf")
        del hub.files["c-Q8_0.gguf"]
        assert "name one" in refused(pull, REPO)

    def test_a_part_that_is_missing_is_said_before_the_others_are_fetched(
        self, pull: Pull, hub: Hub
    ) -> None:
        data = hub.files[self.NAMES[0]]
        hub.files = {f"a-Q8_0-{part:05}-of-00003.gguf": data for part in (1, 3)}
        line = refused(pull, REPO)
        assert f"{REPO} has 2 of the 3 parts of a-Q8_0-00001-of-00003.gguf" in line
        assert not hub.fetched("a-Q8_0-00001-of-00003.gguf")
        assert (
            choosing._check_whole(Reference(REPO), [f"a-{n:05}-of-00002." for n in (1, 2)]) is None
        )


# -- decoders in ONNX ---------------------------------------------------------------------------


@pytest.fixture
def ready(hub: Hub, tmp_path: Path) -> Hub:
    """A repository of transformers.js, whose graphs name their weights."""
    source = noisy_checkpoint(tmp_path / "tiny", entries={})
    layouts = {"fp32": Layout(), "q4": Layout(bits=4)}
    folder = ready_models.transformers_js(source, tmp_path / "js", **layouts)
    own = ready_models.write_graph
    own(source, folder / "onnx" / "model_int8.onnx", Layout(), "shared.bin")
    hub.files = contents(folder) | {"README.md": b"base_model: some-org/Tiny\n"}
    return hub


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_a_decoder_in_onnx(pull: Pull, ready: Hub, said: list[str]) -> None:
    model = pull(form=None)
    assert (model.name, model.record.form.weights) == (f"{REPO}:q4", "q4")
    assert model.record.origin.files.keys() == {
        "config.json", "tokenizer.json", "tokenizer_config.json",
        "onnx/model_q4.onnx", "onnx/model_q4.onnx_data",
    }  # fmt: skip
    assert ready.fetched("model.onnx_data") == 0
    assert any(line.startswith("target or draft: ") for line in said)
    assert pull(form=None, refresh=False) == model
    assert pull(f"{REPO}:fp32", form=None).name == f"{REPO}:fp32"


def test_weights_under_another_name(
    pull: Pull, ready: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names stand in the graph, which is read before they are fetched; others are left."""
    free, weights = 1 << 40, ready.files["onnx/shared.bin"]
    usage = lambda folder: SimpleNamespace(free=free)  # noqa: E731
    monkeypatch.setattr("edgedec.library.hub.shutil.disk_usage", usage)
    free = len(weights) - 1
    line = refused(pull, f"{REPO}:int8")
    assert "do not fit" in line
    assert not ready.fetched("onnx/shared.bin")
    free = 1 << 40
    origin = pull(f"{REPO}:int8", form=None).record.origin
    assert "onnx/shared.bin" in origin.files
    assert origin.bytes == sum(len(ready.files[name]) for name in origin.files)
    del ready.files["onnx/shared.bin"]
    ready.commit = "c" * 40
    with pytest.raises(CheckpointError, match="weights are missing"):
        pull(f"{REPO}:int8", form=None)


def test_one_of_several_for_onnxruntime_genai(pull: Pull, hub: Hub, tmp_path: Path) -> None:
    source = noisy_checkpoint(tmp_path / "tiny", entries={})
    for name in ("cpu-int4", "cuda-fp16"):
        ready_models.genai(source, tmp_path / "repo" / name, Layout())
    hub.files = contents(tmp_path / "repo")
    assert pull(form=None).name == f"{REPO}:cpu-int4"
    assert hub.fetched("cuda-fp16/model.onnx.data") == 0
    assert pull(f"{REPO}:cuda-fp16", form=None).name == f"{REPO}:cuda-fp16"
    hub.files = {f"x{name}": data for name, data in hub.files.items() if "cpu" not in name}
    hub.files |= {name.replace("cuda", "npu"): data for name, data in hub.files.items()}
    assert "has xcuda-fp16, xnpu-fp16: name one" in refused(pull)


def test_two_models_in_folders_of_one_name_for_onnxruntime_genai(
    pull: Pull, hub: Hub, tmp_path: Path
) -> None:
    """As one repository of several sizes has them: none stands for another."""
    for seed, name in enumerate(("one/cpu", "two/cpu")):
        source = noisy_checkpoint(tmp_path / f"{seed}", seed=seed, entries={})
        ready_models.genai(source, tmp_path / "repo" / name, Layout())
    hub.files = contents(tmp_path / "repo")
    assert "has one/cpu, two/cpu: name one" in refused(pull)
    for name in ("one/cpu", "two/cpu"):
        model = pull(f"{REPO}:{name}", form=None)
        assert model.name == f"{REPO}:{name}"
        weights = (model.path / "target" / "model.onnx.data").read_bytes()
        assert weights == hub.files[f"{name}/model.onnx.data"]


def chosen(*names: str) -> tuple[str, ...]:
    files = {name: choosing.RemoteFile(1, None, None) for name in names}
    return choosing.choose(Reference(REPO), files).names


def test_a_projector_of_images_is_no_model() -> None:
    assert chosen("a-Q8_0.gguf", "mmproj-a-Q4_K_M.gguf") == ("a-Q8_0.gguf",)
    assert chosen("a-Q8_0.gguf", "a-Q4_K_M.gguf") == ("a-Q4_K_M.gguf",), "the control"


def test_a_folder_for_onnxruntime_genai_is_fetched_without_code_and_pickles() -> None:
    graph = ("cpu/genai_config.json", "cpu/model.onnx", "cpu/model.onnx.data")
    others = ("cpu/README.md", "cpu/run.py", "cpu/pytorch_model.bin", "cuda/model.onnx")
    assert chosen(*graph, *others) == graph


def test_a_shard_that_is_missing_is_said_before_the_others_are_fetched(
    pull: Pull, hub: Hub
) -> None:
    hub.files["model-00001-of-00002.safetensors"] = hub.files.pop("model.safetensors")
    assert "has 1 of the 2 parts of model-00001-of-00002.safetensors" in refused(pull)
    assert not hub.fetched("model-00001-of-00002.safetensors")
