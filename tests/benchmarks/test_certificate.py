"""The certificate: what it runs, what it notices, and what an interrupt leaves."""

import json
import platform
import re
from pathlib import Path
from typing import Any

import pytest
from broken_rules import accepts_one_more

from benchmarks.certificate import distribution
from benchmarks.certificate import run as certificate
from benchmarks.certificate.controls import AcceptsOneMore
from benchmarks.certificate.job import SAMPLED, Job
from benchmarks.certificate.texts import TURN, ways
from edgedec.compare import evidence
from edgedec.decoding import drafting
from edgedec.decoding.acceptance import GumbelCoupling
from edgedec.decoding.stopping import StopRule
from edgedec.errors import RuntimeUnavailable
from edgedec.hardware import machine
from edgedec.loading.build import OpenOptions
from edgedec.overlap.engine import OverlappedEngine
from edgedec.verify.results import GREEDY, Verification, VerificationRow

Patch = pytest.MonkeyPatch
NAMES = ["auto", "lookup", "model", "tree"]
ENUMERABLE = {"setting": "enumerable", "texts": 2000, "acceptance_rate": 0.4}
ROWS = [
    {**ENUMERABLE, "p_value": 0.4, "flagged": False, "as_expected": True},
    {**ENUMERABLE, "setting": "broken", "p_value": 1e-9, "flagged": True, "as_expected": True},
]


@pytest.fixture(autouse=True)
def toy_model_once(monkeypatch: Patch) -> None:
    """The enumerable model's test takes a minute; its own tests are elsewhere."""
    monkeypatch.setattr(distribution, "tested", lambda progress: ROWS)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "in.jsonl"
    texts = ["def add(", "for index in", "The quick brown", "hello", "import os"]
    lines = [{"id": f"p{number} | `x`", "prompt": text} for number, text in enumerate(texts)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return file


@pytest.fixture
def ask(run, bundle, prompts, tmp_path):
    def call(*more: object, everywhere: bool = False) -> Any:
        size = ["--max-new-tokens", 16, "--threads", 1]
        place = [] if everywhere else ["--device", "cpu"]
        folder = tmp_path / "out"
        return run(
            "certificate", bundle, "--prompts", prompts, "--out", folder, *size, *place, *more
        )

    return call


@pytest.fixture
def no_matrix(monkeypatch: Patch) -> None:
    """The matrix has tests of its own, and takes the longest."""
    row = VerificationRow("auto", GREEDY, 1, 1, 0, 0, 4, 2)
    found = Verification([row], 16, {})
    monkeypatch.setattr(certificate, "verify_matrix", lambda *args, **kwargs: found)


def read(tmp_path: Path) -> tuple[dict[str, Any], str]:
    """The certificate, as JSON and as a page; nothing else is there."""
    out = tmp_path / "out"
    assert sorted(file.name for file in out.iterdir()) == ["certificate.json", "certificate.md"]
    found = json.loads((out / "certificate.json").read_text("utf-8"))
    return found, (out / "certificate.md").read_text("utf-8")


@pytest.mark.parametrize("matrix", ["no_matrix", pytest.param("bundle", marks=pytest.mark.full)])
def test_it_holds_and_says_for_what_and_what_was_run(
    ask, tmp_path: Path, bundle, matrix: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(matrix)
    result = ask()
    assert result.exit_code == 0, result.output
    found, page = read(tmp_path)
    assert found["verdict"]["holds"]
    assert (found["verdict"]["word"], found["verdict"]["differ"]) == ("holds", 0)
    texts = found["runtimes"]["onnx"]["texts"]
    assert (
        found["verdict"]["texts"] == texts["texts"] + found["runtimes"]["onnx"]["matrix"]["texts"]
    )
    manifest = json.loads((bundle / "manifest.json").read_text("utf-8"))
    hashes = {name: fact["sha256"] for name, fact in manifest["files"].items()}
    assert found["files"].items() >= hashes.items()
    assert found["runtimes"]["onnx"]["control"]["flagged"]
    assert {"edgedec", "python", "numpy", "onnxruntime"} <= set(found["versions"])
    said = ("**Holds.**", "0 differ by more", "in.jsonl", "once overlapped")
    for text in (*said, *hashes.values(), found["program"]):
        assert text in page
    assert str(tmp_path) not in page + json.dumps(found)
    # Every drafter, rule and schedule runs on every prompt.
    counts: dict[str, int] = {}
    for row in texts["rows"]:
        about = row["way"].split(TURN)[0]
        counts[about] = counts.get(about, 0) + row["texts"]
    able = set(drafting.names()) - {"none", "hybrid", "parallel", "strings"}
    able = {name for name in able if not drafting.info(name).needs_head}
    others = {"auto, lengths by cost", "--accept match", "--accept speculative", "overlapped"}
    assert counts == dict.fromkeys({"auto", *able, *others}, 5)


@pytest.mark.full
@pytest.mark.usefixtures("no_matrix")
def test_it_goes_through_the_devices_of_a_runtime_as_well(ask, tmp_path: Path) -> None:
    pytest.importorskip("openvino", reason="openvino is not installed: extra openvino")
    result = ask(everywhere=True)
    assert result.exit_code == 0, result.output
    found, page = read(tmp_path)
    assert found["compared"] == ["onnx", "onnx on openvino"] == list(found["runtimes"])
    assert "openvino" in found["versions"]
    there = found["runtimes"]["onnx on openvino"]
    assert there["control"]["flagged"]
    assert {row["way"].split(TURN)[0] for row in there["texts"]["rows"]} >= {"auto", "overlapped"}
    assert "## onnx on openvino: drafters, rules, schedules" in page


@pytest.mark.usefixtures("no_matrix")
def test_a_device_that_cannot_load_the_target_is_left_out_with_a_note(
    ask, tmp_path: Path, bundle, monkeypatch: Patch
) -> None:
    """The note has no folders above the model, since a certificate is published."""
    openvino = pytest.importorskip("edgedec.runtimes.onnx.openvino.model")

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeUnavailable(f"{bundle}/target/model.onnx: OpenVINO cannot run it")

    monkeypatch.setattr(openvino.OpenVinoModel, "compile", refuse)
    result = ask(everywhere=True)
    assert result.exit_code == 0, result.output
    found, page = read(tmp_path)
    assert found["compared"] == ["onnx"]
    said = "onnx on openvino: left out, target/model.onnx: OpenVINO cannot run it"
    assert found["left_out"] == [said]
    assert found["left_out"][0] in page


def test_prompts_are_dealt_in_turn_whatever_the_chunk() -> None:
    every: dict[str, set[tuple[str, int]]] = {}
    for places in (range(7), range(7, 12)):
        for way in ways(OpenOptions(plan="none"), NAMES, places, "hybrid"):
            assert way.texts is not None
            texts = {(mode, places[number]) for mode, number in way.texts}
            every.setdefault(way.name, set()).update(texts)
    assert {place for _, place in every["lookup"]} == set(range(12))
    assert {mode for mode, _ in every["lookup"]} == {GREEDY, SAMPLED}
    # The next drafter decodes greedily what this one samples.
    assert not every["lookup"] & every["model"]
    for about, able in (("--accept match", 4), ("--accept speculative", 4), ("overlapped", 2)):
        dealt = [texts for name, texts in every.items() if name.startswith(about)]
        assert len(dealt) == able
        assert sorted(place for texts in dealt for _, place in texts) == list(range(12))
    speculative = [texts for name, texts in every.items() if "speculative" in name]
    assert {mode for texts in speculative for mode, _ in texts} == {GREEDY}


def test_each_prompt_has_a_seed_of_its_own() -> None:
    job = Job("demo", [(str(n), "x") for n in range(5)], "", seed=7, chunk=2)
    assert [list(chunk) for chunk in job.chunks()] == [[0, 1], [2, 3], [4]]
    seeds = [
        options.sampling.seed for chunk in job.chunks() for options in job.cases(chunk)[1].options
    ]
    assert seeds == [7, 8, 9, 10, 11]


def stops_late(patch: Patch) -> None:
    """Wrong where a stop string ends a text, which the matrix alone looks at."""
    real = StopRule.cut

    def cut(self: StopRule, tokens: Any) -> Any:
        kept, texts = real(self, tokens)
        late = list(tokens[len(kept) :]) if self.reason == "stop" else []
        return [*kept, *late], [*texts, *("" for _ in late)]

    patch.setattr(StopRule, "cut", cut)


def overlapped_noise(patch: Patch) -> None:
    """Wrong in one schedule alone: sampled with the next seed, greedily with another token."""
    real = OverlappedEngine.run

    def run(self: Any, request: Any, metrics: Any) -> Any:
        for emissions in real(self, request, metrics):
            yield [one._replace(token=one.token ^ 1) for one in emissions]

    patch.setattr(OverlappedEngine, "run", run)


@pytest.mark.parametrize(
    ("breaks", "where"),
    [
        pytest.param(accepts_one_more, "texts", marks=pytest.mark.full),
        pytest.param(stops_late, "matrix", marks=pytest.mark.full),
        pytest.param(overlapped_noise, "overlapped", marks=pytest.mark.full),
    ],
)
def test_a_broken_engine_fails(ask, tmp_path: Path, monkeypatch: Patch, breaks, where) -> None:
    breaks(monkeypatch)
    result = ask()
    assert result.exit_code == 1, result.output
    assert "DOES NOT HOLD" in result.stdout
    found, page = read(tmp_path)
    assert not found["verdict"]["holds"]
    assert "**DOES NOT HOLD.**" in page
    assert "| **more** |" in page
    assert "fewer than" not in page
    part = "matrix" if where == "matrix" else "texts"
    wrong = [one for one in found["runtimes"]["onnx"][part]["divergences"] if not one["near_tie"]]
    assert wrong
    if where == "overlapped":
        assert {one["way"].split(TURN)[0] for one in wrong} == {"overlapped"}


@pytest.mark.usefixtures("no_matrix")
def test_it_names_the_processors_that_it_holds_for(ask, tmp_path: Path, monkeypatch: Patch) -> None:
    features = "processor\t: 0\nFeatures\t: asimd asimddp\n"
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text(features, "ascii")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(evidence, "cpu_class", lambda: machine.cpu_class(tmp_path))
    result = ask()
    assert result.exit_code == 0, result.output
    assert re.search(r"processors +ARM with dot products", result.stdout)
    found, page = read(tmp_path)
    assert found["machine"]["processors"] == "ARM with dot products"
    assert "one class of processors: ARM with dot products." in page


@pytest.mark.usefixtures("no_matrix")
def test_a_control_that_goes_unnoticed_leaves_it_open(ask, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(AcceptsOneMore, "accept", GumbelCoupling.accept)
    assert ask().exit_code == 1
    found, page = read(tmp_path)
    assert found["verdict"]["word"] == "INCONCLUSIVE"
    assert "went unnoticed" in page


@pytest.mark.usefixtures("no_matrix")
def test_a_wrong_distribution_fails(ask, tmp_path: Path, monkeypatch: Patch) -> None:
    biased = {**ROWS[0], "p_value": 1e-9, "flagged": True, "as_expected": False}
    monkeypatch.setattr(distribution, "tested", lambda progress: [*ROWS, biased])
    assert ask().exit_code == 1
    found, page = read(tmp_path)
    assert found["verdict"]["word"] == "DOES NOT HOLD"
    assert "not distributed as the target" in page


@pytest.mark.usefixtures("no_matrix")
def test_an_interrupted_run_leaves_no_certificate_and_goes_on(
    ask, tmp_path: Path, monkeypatch: Patch
) -> None:
    real, chunks = certificate.compare_chunk, []

    def counted(job: Any, options: Any, places: range, progress: Any) -> Any:
        chunks.append(places)
        return real(job, options, places, progress)

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(certificate, "compare_chunk", counted)
    with monkeypatch.context() as patch:
        patch.setattr(certificate, "verify_matrix", interrupted)
        assert ask().exit_code == 130
    out = tmp_path / "out"
    assert [file.name for file in out.iterdir()] == ["unfinished.jsonl"]
    with (out / "unfinished.jsonl").open("a") as file:
        file.write(
            '{"benchmark": "unfinished", "kind": "part", "part": "onnx: matrix", "fou'
        )  # cut off in the middle of a line
    result = ask()
    assert result.exit_code == 0, result.output
    assert "continuing after the 2 finished parts" in result.stderr
    assert len(chunks) == 1
    read(tmp_path)
    assert ask().exit_code == 0  # from the beginning: nothing is left of the run before
    assert len(chunks) == 2


def test_parts_of_another_run_are_not_used(ask, tmp_path, monkeypatch: Patch, one_line) -> None:
    def interrupted(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(certificate, "verify_matrix", interrupted)
        assert ask().exit_code == 130
    line = one_line(ask("--seed", 3))
    assert "unfinished.jsonl: a run with other seed" in line
    (tmp_path / "out" / "unfinished.jsonl").write_text("what is this\n")
    assert "unfinished.jsonl:1: not a record" in one_line(ask())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--accept", "match", "--draft-length", 3], "sets --draft-length, --accept itself"),
        (["--drafter", "lookup"], "the certificate sets --drafter itself"),
        (["--draft", "lookup"], "compares all drafters"),
    ],
)
def test_refusals(ask, one_line, tmp_path: Path, words, message) -> None:
    assert message in one_line(ask(*words))
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("no_matrix")
def test_a_target_alone_is_compared_with_the_drafters_it_can_run(
    run, plain_bundle, prompts, tmp_path
) -> None:
    out = tmp_path / "out"
    size = ["--max-new-tokens", 16, "--threads", 1, "--batch-invariant", "--device", "cpu"]
    result = run("certificate", plain_bundle, "--prompts", prompts, "--out", out, *size, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    written, page = read(tmp_path)
    assert found == written
    assert "None of the drafters can be overlapped." in page
    assert "--seed 0 --threads 1 --batch-invariant --device cpu\n" in page
    ways = {row["way"].split(TURN)[0] for row in found["runtimes"]["onnx"]["texts"]["rows"]}
    assert {"auto", "lookup", "recycle"} <= ways
    assert not ways & {"model", "tree", "overlapped"}
