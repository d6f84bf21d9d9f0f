"""A pipeline whose target is on RPC servers: same text, and it goes on after a lost server."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from rpc_servers import RpcServer, rpc_servers

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")
pytest.importorskip("gguf", reason="gguf is not installed: extra gguf")

import tiny_bundles
from tiny_gguf import write_tiny_gguf

from benchmarks.sections.rpc import servers as delayed
from edgedec.errors import PassFailed, RuntimeUnavailable
from edgedec.export import ExportOptions
from edgedec.loading.options import OpenOptions
from edgedec.models import demo
from edgedec.models.demo.heldout import heldout_prompts
from edgedec.pipeline import Pipeline
from edgedec.runtimes.llamacpp import remote

pytestmark = pytest.mark.skipif(remote.client() is None, reason="llama.cpp was built without RPC")
PROMPT, TOKENS = [5, 6, 7, 5, 6, 7, 5, 6], 40
# The kernels of a server.
SAME = {"plan": "none", "threads": 1, "repack": False, "flash_attention": False}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pair")
    target = write_tiny_gguf(folder / "target.gguf", weights="Q4_0", layers=4)
    return target, write_tiny_gguf(folder / "draft.gguf", weights="Q4_0", layers=4, noise=0.05)


@pytest.fixture(scope="module")
def expected(files: tuple[Path, Path]) -> list[int]:
    with Pipeline.open(files[0], OpenOptions(**SAME, drafter="none")) as pipeline:
        return text(pipeline)


@pytest.fixture
def servers() -> Iterator[list[RpcServer]]:
    with rpc_servers(2) as running:
        yield running


def text(pipeline: Pipeline) -> list[int]:
    return pipeline.generate(PROMPT, max_new_tokens=TOKENS, ignore_eos=True).token_ids


def opened(files: tuple[Path, Path], servers: list[RpcServer], **more: object) -> Pipeline:
    names = ",".join(server.name for server in servers)
    return Pipeline.open(files[0], OpenOptions(**{**SAME, "rpc": names, **more}))


def said_until(pipeline: Pipeline, server: RpcServer, said: list[int]) -> None:
    """Stream a text into a list; the server is killed after some tokens."""
    for event in pipeline.stream(PROMPT, max_new_tokens=TOKENS, ignore_eos=True):
        said.append(event.token)
        if len(said) == 4:
            server.kill()


@pytest.mark.parametrize("drafter", ["none", "model", "tree", "lookup", "auto"])
def test_the_text_of_the_local_target(
    files: tuple[Path, Path], expected: list[int], servers: list[RpcServer], drafter: str
) -> None:
    draft = files[1] if drafter in ("model", "tree", "auto") else None
    with opened(files, servers, drafter=drafter, draft=draft) as pipeline:
        assert text(pipeline) == expected
        assert pipeline.plan["device"] == "rpc:" + ",".join(server.name for server in servers)
    assert OpenOptions(rpc="127.0.0.1:7", gpu_layers=3).of_draft().own == {"gpu_layers": 3}


def test_a_text_goes_on_with_a_server_that_is_started_again(
    files: tuple[Path, Path],
    expected: list[int],
    servers: list[RpcServer],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with opened(files, servers, draft=files[1]) as pipeline:
        stream = pipeline.stream(PROMPT, max_new_tokens=TOKENS, ignore_eos=True)
        with caplog.at_level(logging.WARNING, "edgedec"):
            for number, _ in enumerate(stream):
                if number == 4:
                    servers[1].kill()
                    servers[1].start()
        assert stream.result is not None
        assert stream.result.token_ids == expected
        (note,) = pipeline.notes
        assert "lost in a pass and is there again" in note
        assert caplog.messages == [note]


def test_a_server_that_stays_away(
    files: tuple[Path, Path], expected: list[int], servers: list[RpcServer]
) -> None:
    """The text so far was given out; the pipeline answers again once the server does."""
    with opened(files, servers, draft=files[1]) as pipeline:
        said: list[int] = []
        with pytest.raises(PassFailed, match=f"{servers[0].name} was lost in a pass"):
            said_until(pipeline, servers[0], said)
        assert 4 <= len(said) < TOKENS
        assert said == expected[: len(said)]
        with pytest.raises(RuntimeUnavailable, match=f"{servers[0].name}: no server answers"):
            text(pipeline)
        servers[0].start()
        assert text(pipeline) == expected


def test_this_machine_does_not_take_over(
    files: tuple[Path, Path], servers: list[RpcServer]
) -> None:
    """A target that needs other machines would not fit here; the control has no servers."""
    from edgedec.loading.opening import unplanned_configurations

    assert len(unplanned_configurations(OpenOptions(rpc="127.0.0.1:7"))) == 1
    assert len(unplanned_configurations(OpenOptions())) == 3


def test_what_a_pass_waits_for_is_the_targets_cost(files: tuple[Path, Path]) -> None:
    """By it drafts are longer: see the policies' tests. A wait takes at least its time."""
    delay_s = 0.02
    with delayed(1e3 * delay_s) as (names, _):
        options = OpenOptions(
            **SAME, rpc=",".join(names), draft=files[1], drafter="model", draft_length=2
        )
        with Pipeline.open(files[0], options) as pipeline:
            metrics = pipeline.generate(PROMPT, max_new_tokens=24, ignore_eos=True).metrics
    assert metrics.target_s >= delay_s * metrics.target_passes > 0


@pytest.mark.slow
def test_the_shipped_pair(servers: list[RpcServer]) -> None:
    """In q4_0, drafted by its own draft, which is local; the control is the draft as the target."""
    folder = Path(demo.__file__).parent
    target, draft = (gguf(folder / role, weights) for role, weights in
                     (("target", "q4_0"), ("draft", "q8_0")))  # fmt: skip
    prompts = [prompt.text for prompt in heldout_prompts(3)]

    def texts(pipeline: Pipeline) -> list[str]:
        with pipeline:
            return [pipeline.generate(prompt, max_new_tokens=64).text for prompt in prompts]

    exact = {"batch_invariant": True}  # near-ties may part otherwise
    local = texts(Pipeline.open(target, OpenOptions(**SAME, **exact, drafter="none")))
    assert texts(opened((target, draft), servers, draft=draft, **exact)) == local
    assert texts(opened((draft, draft), servers, drafter="none")) != local


def gguf(checkpoint: Path, weights: str) -> Path:
    options = ExportOptions(
        checkpoint, Path(checkpoint.name), formats=("gguf",), weights=weights, parity=False
    )
    (file,) = (tiny_bundles.kept(options) / "target").glob("*.gguf")
    return file
