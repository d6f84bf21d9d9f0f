"""The files of real peers: what they import, and the ones that run in this environment."""

from __future__ import annotations

import importlib.util
import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from fake_peers import FAST, PLAIN, peer, ran

from benchmarks.race import __main__ as command
from benchmarks.race._child import Tools
from benchmarks.race.children import ask
from benchmarks.race.choice import Choice, keeps_text
from benchmarks.race.protocol import Peer, Way, file_of, known, label
from benchmarks.race.sampling import Sampling
from edgedec.text.tokenizer import Tokenizer

PROMPT = "def read_lines(path):\n    with open(path) as file:"
GREEDY = {"temperature": 0.0, "top_p": 1.0, "seed": 0}
needs_llama_cpp = pytest.mark.skipif(
    importlib.util.find_spec("llama_cpp") is None, reason="llama-cpp-python not installed"
)


@pytest.mark.parametrize("name", known())
def test_a_peers_file_needs_the_standard_library_alone(name: str, repository: Path) -> None:
    child = repository / "benchmarks" / "race" / "_child.py"
    script = (
        "import importlib.util as u, pathlib, sys; "
        f"spec = u.spec_from_file_location('child', {str(child)!r}); "
        "child = u.module_from_spec(spec); spec.loader.exec_module(child); "
        f"print(child.load(pathlib.Path({str(file_of(known()[name]))!r})).NAME)"
    )
    # Neither site-packages nor the repository are there.
    found = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True
    )
    assert found.stdout.strip() == name, found.stderr


def ways(found: Peer, weights: str, *, sampled: bool = False) -> list[Way]:
    return Choice([found.NAME], sampled=sampled).ways(found, weights)


def test_every_peer_has_a_plain_way_for_all_its_weights_and_names_of_its_own() -> None:
    for found in known().values():
        every = [way for weights in found.WEIGHTS for way in ways(found, weights)]
        assert every[0]["kind"] == "plain"
        assert len({label(way) for way in every}) == len(every)
        assert found.ENVIRONMENT in known()
        for requirement in found.REQUIREMENTS or ():
            assert "==" in requirement


def test_a_clock_counts_what_comes_after_the_first_token() -> None:
    tools = Tools()
    with pytest.raises(RuntimeError, match="no token came"):
        tools.times()
    tools.tokens(99)
    tools.start()
    tools.tokens()
    tools.tokens(3)
    times = tools.times()
    assert times["decoded"] == 3
    assert times["decode_s"] > 0


def _decoded(found: Peer, models: dict[str, str], ids: list[int], way: Any) -> dict[str, Any]:
    request = {
        **GREEDY, **way, "task": "run", "folder": "", "models": models, "threads": 1,
        "prompt": PROMPT, "ids": ids, "warm": "a b", "warm_ids": ids[:4], "tokens": 24,
        "context": 256,
    }  # fmt: skip
    log = Path(models["target"]).parent / "peer.log" if "log" not in models else Path(models["log"])
    return ask(Path(sys.executable), file_of(found), request, log, 120.0)


@pytest.mark.torch
@pytest.mark.slow
def test_transformers_writes_its_plain_text_with_each_drafter(
    repository: Path, tmp_path: Path
) -> None:
    pair = {role: str(repository / "models" / "demo" / role) for role in ("target", "draft")}
    ids = Tokenizer.load(Path(pair["target"], "tokenizer.json")).encode(PROMPT)
    found = known()["transformers"]
    asked = ways(found, "fp32")
    answers = [
        _decoded(found, {**pair, "log": str(tmp_path / "log")}, ids, way)
        for way in (*asked[:2], asked[-1])
    ]
    assert len(answers[0]["ids"]) == 24
    for answer in answers:
        assert answer["ids"] == answers[0]["ids"]
        assert answer["times"]["decoded"] == 23
        assert answer["times"]["prompt_s"] > 0


@needs_llama_cpp
def test_llama_cpp_python_runs_and_measures(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    from tiny_gguf import write_tiny_gguf

    file = write_tiny_gguf(tmp_path / "tiny.gguf")
    found = known()["llama-cpp-python"]
    ids = list(range(10, 30))
    answers = [_decoded(found, {"target": str(file)}, ids, way) for way in ways(found, "q4_0")[:2]]
    assert [len(answer["ids"]) for answer in answers] == [24, 24]
    request = {
        **ways(found, "q4_0")[0], "task": "perplexity", "folder": "",
        "models": {"target": str(file)}, "threads": 1, "ids": ids,
    }  # fmt: skip
    measured = ask(Path(sys.executable), file_of(found), request, tmp_path / "log", 120.0)
    # Random weights: about as bad as guessing among 96 tokens.
    assert 30 < measured["perplexity"] < 300


def _shipped(repository: Path, folder: Path) -> tuple[dict[str, str], list[int]]:
    """Return the shipped pair's files as a request names them, and the prompt's ids."""
    bundle = repository / "models" / "demo" / "bundle"
    models = {
        "open": str(bundle), "target": str(bundle / "target"), "draft": str(bundle / "draft"),
        "log": str(folder / "log"),
    }  # fmt: skip
    return models, Tokenizer.load(bundle / "tokenizer" / "tokenizer.json").encode(PROMPT)


def test_edgedec_itself_runs_and_measures(tmp_path: Path, repository: Path) -> None:
    models, ids = _shipped(repository, tmp_path)
    found = known()["edgedec"]
    answer = _decoded(found, models, ids, {**ways(found, "int4")[1], "paths": sys.path})
    assert len(answer["ids"]) == 24
    assert 0 < answer["times"]["decode_s"] < 60
    request = {
        **ways(found, "int4")[0], "task": "perplexity", "folder": "", "models": models,
        "threads": 1, "ids": ids, "paths": sys.path,
    }  # fmt: skip
    measured = ask(Path(sys.executable), file_of(found), request, tmp_path / "log", 120.0)
    assert 1 < measured["perplexity"] < 1000


def test_edgedec_itself_samples_the_text_of_a_seed(tmp_path: Path, repository: Path) -> None:
    models, ids = _shipped(repository, tmp_path)
    found = known()["edgedec"]
    plain, auto, speculative = ways(found, "int4", sampled=True)

    def text(way: Way, seed: int) -> list[int]:
        asked = {**way, **Sampling(0.7).request(seed), "paths": sys.path}
        written: list[int] = _decoded(found, models, ids, asked)["ids"]
        assert len(written) == 24
        return written

    plainly, drafted = ([text(way, seed) for seed in (1, 2, 3)] for way in (plain, auto))
    # Rounding may part a seed's two texts at a near-tie, but not those of all seeds.
    assert any(one == other for one, other in zip(plainly, drafted, strict=True))
    assert not any(drafted[n] == plainly[n - 1] for n in range(3))
    text(speculative, 1)
    assert [keeps_text(found, way, 0.7) for way in (plain, auto, speculative)] == [
        False, True, False,
    ]  # fmt: skip


def test_the_command_prints_a_table_and_reruns_nothing(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = peer(tmp_path, ways=(PLAIN, FAST))
    poor = peer(tmp_path, "poor", requirements=(), build="raise OSError('no compiler here')")
    monkeypatch.setattr(command, "known", lambda: {"fake": found, "poor": poor})
    arguments = [
        "--checkpoints", str(repository / "models" / "demo"), "--preset", "none", "--prompts", "2",
        "--tokens", "8", "--texts", "code", "--out", str(tmp_path / "out"),
        "--work", str(tmp_path / "work"),
    ]  # fmt: skip

    def counted() -> int:
        return sum(line.startswith("fake ") for line in ran(tmp_path))

    first = CliRunner().invoke(command.main, arguments)
    assert first.exit_code == 0, first.output
    assert "fake int4 draft seconds=1.0 length=4" in first.output
    assert "2 [2, 2]" in first.output
    assert (
        "poor: skipped: its environment cannot be made: OSError: no compiler here" in first.output
    )
    assert counted() == 4
    again = CliRunner().invoke(command.main, arguments)
    assert again.exit_code == 0
    assert counted() == 4
    other = CliRunner().invoke(command.main, [*arguments, "--tokens", "16"])
    assert (other.exit_code, counted()) == (2, 4)
    assert "a run with other tokens" in other.output
    sampled = CliRunner().invoke(
        command.main, [*arguments, "--temperature", "0.7", "--seeds", "2", "--ways", "plain"]
    )
    assert sampled.exit_code == 0, sampled.output
    assert "== code, temperature 0.7" in sampled.output
    assert "draft" not in sampled.output
    assert counted() == 8


@pytest.mark.parametrize("drafted", [False, True])
def test_a_target_alone_races_without_what_needs_a_draft(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch, drafted: bool
) -> None:
    monkeypatch.setattr(command, "known", lambda: {"fake": peer(tmp_path, ways=(PLAIN, FAST))})
    models = repository / "models" / "demo"
    draft = ["--draft", str(models / "draft")] if drafted else []
    found = CliRunner().invoke(
        command.main,
        [
            "--target", str(models / "target"), *draft, "--prompts", "1", "--tokens", "8",
            "--texts", "code", "--out", str(tmp_path / "out"), "--work", str(tmp_path / "work"),
        ],
    )  # fmt: skip
    assert found.exit_code == 0, found.output
    kinds = [line.split()[1] for line in ran(tmp_path) if line.startswith("fake ")]
    assert kinds == ["plain", *["draft"] * drafted]


def test_a_peer_runs_as_this_interpreter_has_it(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its environment, which cannot be made here, is not asked for."""
    known = {
        name: peer(tmp_path, name, ways=(PLAIN,), requirements=(), build="raise OSError('no gcc')")
        for name in ("numpy", "absent")
    }
    monkeypatch.setattr(command, "known", lambda: known)
    arguments = [
        "--checkpoints", str(repository / "models" / "demo"), "--preset", "none", "--prompts", "1",
        "--tokens", "8", "--texts", "code", "--work", str(tmp_path / "work"),
    ]  # fmt: skip
    made = CliRunner().invoke(command.main, [*arguments, "--out", str(tmp_path / "made")])
    assert "no peer takes part" in made.output
    found = CliRunner().invoke(
        command.main, [*arguments, "--installed", "numpy,absent", "--out", str(tmp_path / "out")]
    )
    assert found.exit_code == 0, found.output
    assert [line.split()[0] for line in ran(tmp_path) if " plain " in line] == ["numpy"]
    assert "has no absent: install it there" in found.output
    records = (tmp_path / "out" / "peers.jsonl").read_text("utf-8")
    assert f'"versions": ["numpy=={np.__version__}"]' in records


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--peers", "lama.cpp"), "'lama.cpp': expected one of"),
        (("--texts", "poetry"), "'poetry': expected one of code, chat, unpredictable"),
        (("--ways", "draft["), "'draft[' is not a regular expression"),
        (("--draft", "."), "expected --target with --draft"),
        (("--target", "."), "has no checkpoint"),
        (("--target", ".", "--draft", "."), "has no checkpoint"),
    ],
)
def test_wrong_uses_say_what_was_expected(arguments: tuple[str, ...], said: str) -> None:
    found = CliRunner().invoke(command.main, arguments)
    assert found.exit_code == 2
    assert said in found.output
    assert "Traceback" not in found.output


def test_perplexity_is_that_of_every_token_but_each_windows_first() -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(size=(50, 50))
    ids = rng.integers(0, 50, 700).tolist()
    found = Tools().perplexity(ids, lambda part: table[part])
    losses = [
        np.log(np.exp(table[a]).sum()) - table[a][b]
        for n, (a, b) in enumerate(itertools.pairwise(ids))
        if n != 511
    ]
    assert found == pytest.approx(np.exp(np.mean(losses)))
    assert found != pytest.approx(Tools().perplexity(ids, lambda part: table[part] * 1.1))
